package exposition

import (
	"fmt"
	"strings"
	"testing"

	"vigia/internal/catalog"
)

func TestClosedLabelsHaveListedValues(t *testing.T) {
	directions := map[string][]string{"direction": {"from_tenant", "to_tenant", "own traffic", ""}}
	c := NewFamily(catalog.Metric{
		Name: "vigia_a_total", Type: catalog.Counter, Labels: []string{"port", "direction"}, Values: directions, Help: "Help.",
	})
	h := NewFamily(catalog.Metric{
		Name: "vigia_h_bytes", Type: catalog.Histogram, Labels: []string{"direction"}, Values: directions, Help: "Help.",
	})
	p := NewPage(nil)
	p.Emit(c, 1, "from_tenant", "from_tenant") // an open label may have any value
	p.Emit(c, 2, "b", "own traffic")
	p.Emit(c, 3, "b", "")
	p.Histogram(h, []float64{64}, []uint64{1, 2}, 100, "to_tenant")
	out := text(t, p)
	for _, line := range []string{
		`vigia_a_total{port="from_tenant",direction="from_tenant"} 1`, `vigia_a_total{port="b",direction="own traffic"} 2`,
		`vigia_a_total{port="b",direction=""} 3`, `vigia_h_bytes_count{direction="to_tenant"} 2`,
	} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("no %s in\n%s", line, out)
		}
	}
	for name, fn := range map[string]func(){
		// What was let through at an open label is not let through at a closed one.
		"sample after an open label": func() { p.Emit(c, 1, "In", "from_tenant"); p.Emit(c, 1, "b", "In") },
		"sample":                     func() { p.Emit(c, 1, "b", "In") },
		"histogram":                  func() { p.Histogram(h, []float64{64}, []uint64{1, 2}, 100, "In") },
	} {
		t.Run(name, func(t *testing.T) {
			before := p.Series()
			defer func() {
				want := `label direction cannot be "In": the catalogue lists from_tenant, to_tenant,`
				if said := fmt.Sprint(recover()); !strings.Contains(said, want) {
					t.Errorf("panic %q, want one that says %q", said, want)
				}
				if strings.Contains(text(t, p), `direction="In"`) {
					t.Errorf("it is on the page of %d series, which had %d", p.Series(), before)
				}
			}()
			fn()
		})
	}
}

// BenchmarkClosed writes the counters of a port with a closed label, and with an open one.
func BenchmarkClosed(b *testing.B) {
	for name, values := range map[string]map[string][]string{"open": nil, "closed": {"direction": {"from_tenant", "to_tenant"}}} {
		b.Run(name, func(b *testing.B) {
			f := NewFamily(catalog.Metric{
				Name: "vigia_port_bytes_total", Type: catalog.Counter, Labels: []string{"port", "tenant", "direction"}, Values: values, Help: "H.",
			})
			p := NewPage(nil)
			b.ReportAllocs()
			for b.Loop() {
				p.Reset(nil)
				for range 1000 {
					p.Emit(f, 123456789, "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "project-of-a-tenant", "from_tenant")
					p.Emit(f, 987654321, "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "project-of-a-tenant", "to_tenant")
				}
			}
		})
	}
}
