// Package catalogtest compares the label values that a program's code can emit with
// those that the catalogue lists. It reads the code: a value that somebody adds at
// the place where it is emitted, and not to the catalogue, fails the program's test.
package catalogtest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"vigia/internal/catalog"
)

// Values are the label values that a program can emit, by "metric.label".
type Values map[string][]string

// Add adds values of a metric's label.
func (v Values) Add(what string, values ...string) {
	v[what] = append(v[what], values...)
}

// Compare fails the test unless the values of all closed labels of a part are exactly
// those that the catalogue lists. What the catalogue leaves open need not be there.
func Compare(t testing.TB, part string, emitted Values) {
	t.Helper()
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range differences(c.Part(part), emitted) {
		t.Error(problem)
	}
}

// differences returns what does not fit, sorted.
func differences(metrics []catalog.Metric, emitted Values) (problems []string) {
	known := make(map[string]bool)
	for i := range metrics {
		m := &metrics[i]
		for _, label := range m.Labels {
			what := m.Name + "." + label
			known[what] = true
			values, given := emitted[what]
			listed, closed := m.Values[label]
			if !closed {
				if given {
					problems = append(problems, what+": the catalogue leaves it open: list its values there, or leave them out here")
				}
				continue
			}
			for _, v := range listed {
				if !slices.Contains(values, v) {
					problems = append(problems, what+": the catalogue lists "+v+", which nothing emits")
				}
			}
			for _, v := range slices.Compact(slices.Sorted(slices.Values(values))) {
				if !slices.Contains(listed, v) {
					problems = append(problems, what+": "+v+" can be emitted, and is not in the catalogue's list "+strings.Join(listed, ", "))
				}
			}
		}
	}
	for what := range maps.Keys(emitted) {
		if !known[what] {
			problems = append(problems, what+": no metric of the part has that label")
		}
	}
	slices.Sort(problems)
	return problems
}
