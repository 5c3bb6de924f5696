package mesh_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"vigia/probes/mesh"
)

// sites are those of the table in docs/concepts/mesh.md.
func sites() []Site {
	return []Site{
		{Nodes: 100, PerRack: 20, Zones: 1, Rule: mesh.Rule{PerNode: 8}},
		{Nodes: 1000, PerRack: 20, Zones: 4, Rule: mesh.Rule{PerNode: 8, PerZone: 2}},
		{Nodes: 10_000, PerRack: 40, Zones: 4, Rule: mesh.Rule{PerNode: 8, PerZone: 2}},
	}
}

// A hundred nodes, fifty runs: whatever dies is named in time, and nobody else.
func TestSmallSite(t *testing.T) {
	r := Simulate(sites()[0], 50, 1)
	for _, f := range r.Failures() {
		t.Error(f)
	}
	for k := range zoneUplink { // there is one zone
		if len(r.After[k]) == 0 {
			t.Errorf("no %v in %d runs", k, r.Runs)
		}
	}
	if again := Simulate(sites()[0], 50, 1); !reflect.DeepEqual(r, again) {
		t.Error("the same seed gives another report")
	}
	if other := Simulate(sites()[0], 50, 2); reflect.DeepEqual(r, other) {
		t.Error("another seed gives the same report")
	}
	var b bytes.Buffer
	if err := Print(&b, []*Report{r}); err != nil || !strings.Contains(b.String(), "dead uplink of a rack") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// The report tells what goes wrong.
func TestFailures(t *testing.T) {
	r := &Report{}
	r.add(7, &Outcome{
		Named: []Named{{deadRack, -1}, {deadNode, int64(11 * time.Second)}},
		False: []mesh.Accused{{Name: "a"}, {Name: "a"}},
	})
	got := strings.Join(r.Failures(), "; ")
	const want = "a dead node was named after 11s; 1 of 1 times a dead rack was not named; falsely accused in run 7: node a, uplink: false"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// BenchmarkMesh is the whole table, make bench-mesh: a thousand runs of each size.
func BenchmarkMesh(b *testing.B) {
	for b.Loop() {
		var reports []*Report
		for _, s := range sites() {
			r := Simulate(s, 1000, 1)
			for _, f := range r.Failures() {
				b.Error(f)
			}
			b.Logf("%d nodes: at most %d bad pairs of a node, %d without series", r.Nodes, r.Bad, r.LeftOut)
			reports = append(reports, r)
		}
		var out strings.Builder
		if err := Print(&out, reports); err != nil {
			b.Fatal(err)
		}
		b.Log("\n" + out.String())
	}
}
