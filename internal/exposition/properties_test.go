package exposition

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"vigia/internal/catalog"
)

// letters are what label values are made of: all that must be escaped, and some more.
var letters = []rune("ab\\\"\n{}=,# \tü€\U0001F600\x7f_")

func anyValue(r *rand.Rand) string {
	out := make([]rune, r.IntN(20))
	for i := range out {
		out[i] = letters[r.IntN(len(letters))]
	}
	return string(out)
}

func anyNumber(r *rand.Rand) float64 {
	switch r.IntN(8) {
	case 0:
		return math.Inf(1 - 2*r.IntN(2))
	case 1:
		return math.NaN()
	case 2:
		return -r.Float64()
	case 3:
		return r.Float64() * 1e300
	case 4:
		return float64(uint64(1)<<53 + r.Uint64N(1000))
	}
	return float64(r.Uint64N(1 << 40))
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// parse reads a page as Prometheus does.
func parse(t testing.TB, page string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatalf("%v in\n%s", err, page)
	}
	return families
}

// TestWhateverIsEmittedIsReadBack writes random samples, at several scrapes into the same
// page, and has Prometheus's parser read them.
func TestWhateverIsEmittedIsReadBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	families := []*Family{gauge("vigia_a", "x", "y", "port"), gauge("vigia_b", "x"), gauge("vigia_c"), gauge("vigia_d", "a", "b", "c", "d", "e", "f")}
	page := NewPage(nil)
	for round := range 200 {
		page.Reset(nil)
		want := make(map[string]float64)
		for range r.IntN(60) {
			f := families[r.IntN(len(families))]
			values := make([]string, len(f.Labels()))
			for i := range values {
				if values[i] = anyValue(r); r.IntN(2) == 0 {
					values[i] = "again" // what follows itself is written another way
				}
			}
			key := f.Name() + fmt.Sprintf("%q", values)
			if _, twice := want[key]; twice {
				continue
			}
			want[key] = anyNumber(r)
			page.Emit(f, want[key], values...)
		}
		if page.Series() != len(want) {
			t.Fatalf("round %d: %d series, want %d", round, page.Series(), len(want))
		}
		got := 0
		for name, f := range parse(t, text(t, page)) {
			for _, m := range f.GetMetric() {
				values := make([]string, len(m.GetLabel()))
				for i, l := range m.GetLabel() {
					values[i] = l.GetValue()
				}
				key := name + fmt.Sprintf("%q", values)
				if expected, ok := want[key]; !ok || !same(m.GetGauge().GetValue(), expected) {
					t.Fatalf("round %d: %s is %v, want %v, %v", round, key, m.GetGauge().GetValue(), expected, ok)
				}
				got++
			}
		}
		if got != len(want) {
			t.Fatalf("round %d: %d series are read back, want %d", round, got, len(want))
		}
	}
}

func TestHistogramsAreReadBack(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 9))
	f := NewFamily(catalog.Metric{Name: "vigia_h", Type: catalog.Histogram, Labels: []string{"port", "x"}, Help: "Help."})
	page := NewPage(nil)
	for range 50 {
		page.Reset(nil)
		bounds, counts := []float64{}, []uint64{}
		var sum uint64
		for i := range 1 + r.IntN(6) {
			bounds = append(bounds, float64(i)+r.Float64())
			sum += r.Uint64N(100)
			counts = append(counts, sum)
		}
		sum += r.Uint64N(100)
		counts = append(counts, sum)
		label, total := anyValue(r), r.Float64()*1e6
		page.Histogram(f, bounds, counts, total, "p", label)
		h := parse(t, text(t, page))["vigia_h"].GetMetric()[0]
		if h.GetLabel()[1].GetValue() != label || h.GetHistogram().GetSampleCount() != sum || h.GetHistogram().GetSampleSum() != total {
			t.Fatalf("%v", h)
		}
		for i, b := range h.GetHistogram().GetBucket() {
			bound := math.Inf(1)
			if i < len(bounds) {
				bound = bounds[i]
			}
			if b.GetUpperBound() != bound || b.GetCumulativeCount() != counts[i] {
				t.Errorf("bucket %d is %v", i, b)
			}
		}
	}
	page.Reset(nil)
	page.Quota(4)
	page.Histogram(f, []float64{1, 2}, []uint64{1, 2, 3}, 1, "p", "x") // five series
	if page.Series() != 0 || page.Quota(-1) != 5 {
		t.Errorf("a histogram that does not fit left %d series", page.Series())
	}
}

// TestPortsKeepTheirPlaceAndSumsOnlyGrow has ports come, go and count at random beside a
// limiter of few places.
func TestPortsKeepTheirPlaceAndSumsOnlyGrow(t *testing.T) {
	const places = 3
	bytesTotal := counter("vigia_port_bytes_total", "port", "tenant")
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 11))
		l, page := NewLimiter(places), NewPage(nil)
		counts := make(map[string]float64) // by port
		own := make(map[string]bool)       // ports that had series of their own at the scrape before
		sums := make(map[string]float64)   // of the overflow, by tenant
		for scrape := range 40 {
			for range 3 {
				name := fmt.Sprintf("p%d", r.IntN(9))
				if _, there := counts[name]; there && r.IntN(2) == 0 {
					delete(counts, name)
				} else if !there {
					counts[name] = float64(r.IntN(1000))
				}
			}
			var ports []string
			for name := range counts {
				if counts[name] += float64(r.IntN(100)); r.IntN(20) == 0 {
					counts[name] = 0 // its device started again
				}
				ports = append(ports, name)
			}
			slices.Sort(ports)
			overflow := l.Admit(ports)
			page.Reset(l)
			for _, name := range ports {
				page.Emit(bytesTotal, counts[name], name, "t"+name[1:2])
			}
			page.Overflow()
			now := make(map[string]bool)
			for _, m := range parse(t, text(t, page))["vigia_port_bytes_total"].GetMetric() {
				port, tenant, value := m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue(), m.GetCounter().GetValue()
				if port != OverflowPort {
					now[port] = true
					if value != counts[port] {
						t.Fatalf("seed %d, scrape %d: %s is %v, not %v", seed, scrape, port, value, counts[port])
					}
					continue
				}
				if value < sums[tenant] {
					t.Fatalf("seed %d, scrape %d: the sum of %s fell from %v to %v", seed, scrape, tenant, sums[tenant], value)
				}
				sums[tenant] = value
			}
			if len(now) != min(places, len(ports)) || overflow != len(ports)-len(now) {
				t.Fatalf("seed %d, scrape %d: %d of %d ports have series, %d overflow", seed, scrape, len(now), len(ports), overflow)
			}
			for port := range own {
				if _, there := counts[port]; there && !now[port] {
					t.Fatalf("seed %d, scrape %d: %s lost its series", seed, scrape, port)
				}
			}
			own = now
		}
	}
}

// refusing takes so many bytes and no more.
type refusing struct {
	bytes.Buffer
	left int
}

var errFull = errors.New("no more")

func (w *refusing) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	w.Buffer.Write(p[:n])
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

func TestAWriterThatRefusesEndsThePage(t *testing.T) {
	page := NewPage(nil)
	page.Emit(gauge("vigia_a", "x"), 1, "y")
	page.Emit(counter("vigia_b_total"), 2)
	whole := text(t, page)
	for n := range len(whole) {
		w := &refusing{left: n}
		written, err := page.WriteTo(w)
		if !errors.Is(err, errFull) || written != int64(n) || w.String() != whole[:n] {
			t.Fatalf("after %d bytes: %d, %v", n, written, err)
		}
	}
	if n, err := page.WriteTo(&refusing{left: len(whole)}); err != nil || n != int64(len(whole)) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func FuzzLabels(f *testing.F) {
	f.Add("a", "b\n", 1.5)
	f.Add("\\\"", "12345678\"", math.Inf(-1))
	family := gauge("vigia_a", "x", "y")
	f.Fuzz(func(t *testing.T, a, b string, value float64) {
		if !model.LabelValue(a).IsValid() || !model.LabelValue(b).IsValid() {
			return // the format has no others
		}
		page := NewPage(nil)
		page.Emit(family, value, a, b)
		page.Emit(family, value, b, a)
		for i, m := range parse(t, text(t, page))["vigia_a"].GetMetric() {
			x, y := m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue()
			if i == 1 {
				x, y = y, x
			}
			if x != a || y != b || !same(m.GetGauge().GetValue(), value) {
				t.Errorf("%q, %q, %v are read back as %v", a, b, value, m)
			}
		}
	})
}
