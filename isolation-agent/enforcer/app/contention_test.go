package app

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/internal/exposition"
	"vigia/isolation-agent/enforcer/contention"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/scheduling"
)

// contended is a book in which five tenants waited for what red took within the last second: w4 for
// a third of it, w0 for the least.
func contended(t *testing.T, received bool) (*contention.Book, time.Time) {
	t.Helper()
	book, now := contention.NewBook(), time.Now()
	book.Filled(now.Add(-2*time.Second), "up0", 0, 1e6)
	for i := range uint64(2) {
		at := now.Add(time.Duration(i)*time.Second - time.Second)
		if !book.Filled(at, "up0", (i+1)*1e6, 1e6) {
			t.Fatal("the link is not full")
		}
		var list []scheduling.Usage
		for n := range uint64(5) {
			list = append(list, scheduling.Usage{Owner: contract.Owner{Tenant: fmt.Sprint("w", n)}, Guarantee: 1000 * (n + 1), Ceiling: 1e9, Backlog: 1})
		}
		red := scheduling.Usage{Owner: contract.Owner{Tenant: "red"}, Guarantee: 1000, Ceiling: 1e9, Bytes: i * 1e6}
		book.Add(at, "up0", received, append(list, red))
	}
	return book, now
}

func parts(t *testing.T) (*catalog.Factory, *prometheus.Registry) {
	t.Helper()
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	return c.NewFactory("enforcer", registry), registry
}

func TestTheFastPageHasThePairsWithMost(t *testing.T) {
	metrics, _ := parts(t)
	book, now := contended(t, true)
	page := func(b *contention.Book, at time.Time) string {
		p := exposition.NewPage(nil)
		newFast(metrics, nil, b).writeTaken(p, at)
		var out strings.Builder
		if _, err := p.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	got := page(book, now)
	for n := range 5 {
		series := fmt.Sprintf(`vigia_isolation_taken_bytes_per_second{tenant="w%d",taker="red",direction="to_tenant"}`, n)
		if shown := strings.Contains(got, series); shown != (n > 0) {
			t.Errorf("%s: shown %v in\n%s", series, shown, got)
		}
	}
	for name, quiet := range map[string]string{"without links": page(nil, now), "a minute later": page(book, now.Add(time.Minute))} {
		if strings.Contains(quiet, "{") {
			t.Errorf("%s:\n%s", name, quiet)
		}
	}
}

func TestCountersOfPairsBeginWithZeros(t *testing.T) {
	metrics, registry := parts(t)
	book, _ := contended(t, false)
	registry.MustRegister(newContentionCollector(metrics, book))
	scrape := func() map[string]float64 {
		out := make(map[string]float64)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				labels := make(map[string]string)
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if f.GetName() == "vigia_isolation_taken_bytes_total" && labels["taker"] == "red" && labels["direction"] == fromTenant {
					out[labels["tenant"]] = m.GetCounter().GetValue()
				}
			}
		}
		return out
	}
	for range 2 {
		if got, want := scrape(), (map[string]float64{"w0": 0, "w1": 0, "w2": 0, "w3": 0, "w4": 0}); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	got, sum := scrape(), 0.0
	for _, v := range got {
		sum += v
	}
	book.Keep(nil, map[string]bool{"red": true, "w4": true})
	if left := scrape(); len(left) != 1 || left["w4"] != got["w4"] {
		t.Errorf("of one pair that is left: %v", left)
	}
	if excess := 999_000.0; len(got) != 5 || sum < excess-5 || sum > excess || got["w4"] < excess/3-1 {
		t.Errorf("%v are %v, want %v", got, sum, excess)
	}
}
