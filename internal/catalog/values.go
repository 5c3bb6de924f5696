package catalog

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// labelsFile says which labels are open, and has the lists that several metrics share.
const labelsFile = "labels.yaml"

// openLabel stands in place of a list for a label that is open for one metric alone.
const openLabel = "open"

// labels is what holds for the labels of all files.
type labels struct {
	Sets map[string][]string `yaml:"sets"`
	Open map[string]string   `yaml:"open"` // what an open label is, by its name

	used map[string]bool // sets and open labels, as a metric refers to them
}

// valueRef is what stands for a label's values: a list, in which {set: NAME} stands for
// those of a set, or the name of a set alone, or openLabel.
type valueRef struct {
	open  bool
	items []valueItem
}

// valueItem is one value, or the name of a set.
type valueItem struct{ value, set string }

// UnmarshalYAML reads any of the forms.
func (r *valueRef) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		if r.open = n.Value == openLabel; !r.open {
			r.items = []valueItem{{set: n.Value}}
		}
		return nil
	}
	for _, c := range n.Content {
		var of struct{ Set string }
		switch {
		case c.Kind == yaml.ScalarNode && c.Tag == "!!str":
			r.items = append(r.items, valueItem{value: c.Value})
		case c.Kind == yaml.MappingNode && c.Decode(&of) == nil && of.Set != "":
			r.items = append(r.items, valueItem{set: of.Set})
		default:
			return fmt.Errorf("line %d: value %q is no string; quote it", c.Line, c.Value)
		}
	}
	return nil
}

func readLabels(fsys fs.FS, name string) (*labels, error) {
	l := &labels{used: make(map[string]bool)}
	if err := decode(fsys, name, l); err != nil {
		return nil, err
	}
	for set, values := range l.Sets {
		if set == openLabel {
			return nil, fmt.Errorf("set %s: the name says that a label has no list; choose another", set)
		}
		if err := checkList(values); err != nil {
			return nil, fmt.Errorf("set %s: %w", set, err)
		}
	}
	return l, nil
}

// checkList returns an error for a list that cannot be one of label values. The
// values are written to the exposition as they are, without being escaped.
func checkList(values []string) error {
	if len(values) == 0 {
		return fmt.Errorf("the list of values is empty")
	}
	for i, v := range values {
		if strings.ContainsAny(v, "\"\\\n") || slices.Contains(values[:i], v) {
			return fmt.Errorf("bad or repeated value %q", v)
		}
	}
	return nil
}

// valuesOf returns the values of a metric's closed labels: its own, else those of
// its file. Every label has a list or is declared open.
func (l *labels) valuesOf(m *Metric, own, ofFile map[string]valueRef) (map[string][]string, error) {
	for name := range own {
		if !slices.Contains(m.Labels, name) {
			return nil, fmt.Errorf("values for %s, which is none of its labels", name)
		}
	}
	var out map[string][]string
	for _, name := range m.Labels {
		ref, given := own[name]
		if !given {
			ref, given = ofFile[name]
		}
		if !given {
			if l.Open[name] == "" {
				return nil, fmt.Errorf("label %s has no values; list them, or declare it open in %s", name, labelsFile)
			}
			l.used[name] = true
			continue
		}
		values, err := l.list(ref)
		if err != nil {
			return nil, fmt.Errorf("values of label %s: %w", name, err)
		}
		if values == nil {
			continue
		}
		if out == nil {
			out = make(map[string][]string)
		}
		out[name] = values
	}
	return out, nil
}

// list returns what a reference means; nil for an open label.
func (l *labels) list(ref valueRef) (values []string, err error) {
	if ref.open {
		return nil, nil
	}
	for _, item := range ref.items {
		if item.set == "" {
			values = append(values, item.value)
			continue
		}
		set, ok := l.Sets[item.set]
		if !ok {
			return nil, fmt.Errorf("no set %s in %s", item.set, labelsFile)
		}
		l.used["set "+item.set] = true
		values = append(values, set...)
	}
	return values, checkList(values)
}

// allUsed returns an error for sets and open labels that no metric has.
func (l *labels) allUsed() error {
	var unused []string
	for set := range l.Sets {
		if !l.used["set "+set] {
			unused = append(unused, "set "+set)
		}
	}
	for name := range maps.Keys(l.Open) {
		if !l.used[name] {
			unused = append(unused, "open label "+name)
		}
	}
	if slices.Sort(unused); len(unused) > 0 {
		return fmt.Errorf("no metric uses %s; remove it", strings.Join(unused, ", "))
	}
	return nil
}

// Closed is the list of a closed label's values.
type Closed struct {
	label  string
	values []string
	index  map[string]bool // nil for a short list
}

// shortList is up to how many values a search in order is the fastest.
const shortList = 8

// Closed returns the lists of a metric's labels by their positions, nil for one
// that is open.
func (m Metric) Closed() []*Closed {
	out := make([]*Closed, len(m.Labels))
	for i, label := range m.Labels {
		values := m.Values[label]
		if values == nil {
			continue
		}
		out[i] = &Closed{label: label, values: values}
		if len(values) > shortList {
			out[i].index = make(map[string]bool, len(values))
			for _, v := range values {
				out[i].index[v] = true
			}
		}
	}
	return out
}

// Has tells whether the list has a value.
func (c *Closed) Has(value string) bool {
	if c.index != nil {
		return c.index[value]
	}
	for _, v := range c.values {
		if v == value {
			return true
		}
	}
	return false
}

// Refusal says that a metric cannot have a value, which is a mistake in the program.
func (c *Closed) Refusal(metric, value string) string {
	return fmt.Sprintf("metric %s: label %s cannot be %q: the catalogue lists %s", metric, c.label, value, strings.Join(c.values, ", "))
}

// check panics for a value that its list does not have.
func check(metric string, closed []*Closed, values []string) {
	for i, c := range closed {
		if i < len(values) && c != nil && !c.Has(values[i]) {
			panic(c.Refusal(metric, values[i]))
		}
	}
}
