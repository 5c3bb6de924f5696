package bpf

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/bpf/vport"
	"vigia/internal/catalog"
	"vigia/internal/exposition"
	"vigia/internal/ports"
)

// node is a node whose signals and ports a test sets.
type node struct {
	places  []vport.Place
	signals []vport.Signals
	ports   []ports.Port
	err     error
	reads   int
}

// add adds a port with a program, whose identity is known if id is not empty.
func (n *node) add(index uint32, id, tenant string, s vport.Signals) {
	n.places = append(n.places, vport.Place{Incarnation: vport.Incarnation{Index: index, SinceNs: 1}})
	n.signals = append(n.signals, s)
	if id != "" {
		n.ports = append(n.ports, ports.Port{ID: id, Tenant: tenant, Index: int(index)})
	}
}

func (n *node) SnapshotSignals(s *vport.SignalSnapshot) error {
	n.reads++
	s.Places, s.Signals = n.places, n.signals
	return n.err
}

func (n *node) Ports() ([]ports.Port, []ports.SourceState) { return n.ports, nil }

func newTestFast(t testing.TB, n *node) *Fast {
	t.Helper()
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	return NewFast(c.NewFactory("exporter", prometheus.NewRegistry()), n, n)
}

// written returns the samples of the page, without the prefix of their names.
func written(t *testing.T, f *Fast) []string {
	t.Helper()
	p := exposition.NewPage(nil)
	if err := f.Write(p); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if _, err := p.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") {
			out = append(out, strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "vigia_"))
		}
	}
	return out
}

func TestOnlyPortsThatTellAreOnTheFastPage(t *testing.T) {
	n := &node{}
	f := newTestFast(t, n)
	expect := func(want ...string) {
		t.Helper()
		if got := written(t, f); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("the page has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	expect("exporter_flood_watched_ports 0")
	n.add(7, "quiet", "red", vport.Signals{FloodSinceNs: 1, FloodLastNs: 2})
	n.add(8, "below", "red", vport.Signals{FloodScore: suspicious - 0.01, DestinationPorts: 90, UDPPackets: 1000})
	n.add(9, "tells", "blue", vport.Signals{FloodScore: suspicious, DestinationPorts: 40.5})
	n.add(10, "floods", "red", vport.Signals{FloodScore: 100, DestinationPorts: 900})
	n.add(11, "", "", vport.Signals{FloodScore: 100, DestinationPorts: 900}) // whose identity is not known
	four := []string{
		`port_flood_score{port="tells",tenant="blue"} 30`, `port_flood_score{port="floods",tenant="red"} 100`,
		`port_udp_destination_ports{port="tells",tenant="blue"} 40.5`, `port_udp_destination_ports{port="floods",tenant="red"} 900`,
		"exporter_flood_watched_ports 4",
	}
	expect(four...)
	n.ports = append(append([]ports.Port{}, n.ports...), ports.Port{ID: "new", Tenant: "green", Index: 11}, ports.Port{ID: "without a program", Tenant: "green", Index: 12})
	expect(
		four[0], four[1], `port_flood_score{port="new",tenant="green"} 100`,
		four[2], four[3], `port_udp_destination_ports{port="new",tenant="green"} 900`, "exporter_flood_watched_ports 5",
	)
}

// TestSignalsThatCannotBeReadAreNoQuietPorts: there is an error, not a page without series.
func TestSignalsThatCannotBeReadAreNoQuietPorts(t *testing.T) {
	n := &node{err: errors.New("map is gone")}
	n.add(7, "p", "red", vport.Signals{FloodScore: 100})
	f, p := newTestFast(t, n), exposition.NewPage(nil)
	if err := f.Write(p); !errors.Is(err, n.err) || p.Series() != 0 {
		t.Errorf("%d series, %v", p.Series(), err)
	}
}

// TestAThousandQuietPortsCostOneLook: one read of all signals, no series of theirs, and no
// memory once the ports are known.
func TestAThousandQuietPortsCostOneLook(t *testing.T) {
	n := &node{}
	for i := range uint32(1000) {
		n.add(i+1, fmt.Sprint("port-", i), "red", vport.Signals{UDPPackets: 5, DestinationPorts: 1})
	}
	f, p := newTestFast(t, n), exposition.NewPage(nil)
	if got := written(t, f); len(got) != 1 || n.reads != 1 {
		t.Errorf("%d reads, the page has %q", n.reads, got)
	}
	allocations := testing.AllocsPerRun(100, func() {
		p.Reset(nil)
		if err := f.Write(p); err != nil {
			t.Error(err)
		}
	})
	if allocations > 2 {
		t.Errorf("%v allocations", allocations)
	}
}
