package exposition

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"vigia/internal/catalog"
)

func counter(name string, labels ...string) *Family {
	return NewFamily(catalog.Metric{Name: name, Type: catalog.Counter, Labels: labels, Help: `A \ and` + "\na line."})
}

func gauge(name string, labels ...string) *Family {
	return NewFamily(catalog.Metric{Name: name, Type: catalog.Gauge, Labels: labels, Help: "Help."})
}

func text(t *testing.T, p *Page) string {
	t.Helper()
	var b strings.Builder
	n, err := p.WriteTo(&b)
	if err != nil || int(n) != b.Len() {
		t.Fatalf("wrote %d of %d: %v", n, b.Len(), err)
	}
	return b.String()
}

func TestPageIsReadBackByPrometheus(t *testing.T) {
	c, g, plain := counter("vigia_a_total", "port", "x"), gauge("vigia_b", "x"), gauge("vigia_c")
	h := NewFamily(catalog.Metric{Name: "vigia_h_bytes", Type: catalog.Histogram, Labels: []string{"x"}, Help: "Help."})
	p := NewPage(nil)
	p.Emit(c, 1, "p1", "quote\" back\\ line\n")
	p.Emit(g, math.Inf(1), "")
	p.Emit(counter("vigia_a_total", "port", "x"), 1<<53+2, "p2", "é") // as another source would
	p.Emit(plain, -0.25)
	p.Histogram(h, []float64{64, 128.5}, []uint64{1, 2, 5}, 1000, "v")
	if p.Series() != 9 {
		t.Errorf("%d series, want 9", p.Series())
	}
	out := text(t, p)
	if strings.Count(out, "# TYPE vigia_a_total counter\n") != 1 {
		t.Errorf("the family is not in one piece:\n%s", out)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	got, err := parser.TextToMetricFamilies(strings.NewReader(out))
	if err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	a := got["vigia_a_total"]
	if len(a.Metric) != 2 || a.Metric[0].Label[1].GetValue() != "quote\" back\\ line\n" || a.Metric[1].Counter.GetValue() != 1<<53+2 {
		t.Errorf("read back %v", a)
	}
	if a.GetHelp() != `A \ and`+"\na line." {
		t.Errorf("help %q", a.GetHelp())
	}
	if v := got["vigia_b"].Metric[0].Gauge.GetValue(); !math.IsInf(v, 1) {
		t.Errorf("infinity became %v", v)
	}
	if v := got["vigia_c"].Metric[0].Gauge.GetValue(); v != -0.25 {
		t.Errorf("-0.25 became %v", v)
	}
	hist := got["vigia_h_bytes"].Metric[0].Histogram
	if hist.GetSampleCount() != 5 || hist.GetSampleSum() != 1000 || len(hist.Bucket) != 3 || hist.Bucket[1].GetUpperBound() != 128.5 {
		t.Errorf("histogram %v", hist)
	}
}

func TestWrongNumberOfLabelsPanics(t *testing.T) {
	h := NewFamily(catalog.Metric{Name: "vigia_h", Type: catalog.Histogram, Help: "Help."})
	for name, fn := range map[string]func(p *Page){
		"sample":    func(p *Page) { p.Emit(counter("vigia_a_total", "port"), 1) },
		"histogram": func(p *Page) { p.Histogram(h, []float64{1}, []uint64{1}, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			fn(NewPage(nil))
		})
	}
}

func TestQuotaCountsWhatItKeepsOut(t *testing.T) {
	g := gauge("vigia_b", "x")
	h := NewFamily(catalog.Metric{Name: "vigia_h", Type: catalog.Histogram, Help: "Help."})
	p := NewPage(nil)
	p.Quota(2)
	for _, x := range []string{"1", "2", "3", "4"} {
		p.Emit(g, 1, x)
	}
	p.Histogram(h, nil, []uint64{1}, 1)
	if cut := p.Quota(-1); cut != 2+3 {
		t.Errorf("%d samples cut, want 5", cut)
	}
	p.Emit(g, 1, "5")
	if p.Series() != 3 || strings.Contains(text(t, p), `"3"`) {
		t.Errorf("the page has %d series:\n%s", p.Series(), text(t, p))
	}
}

// scrape emits one counter, one gauge and one info per port.
func scrape(t *testing.T, l *Limiter, fams [3]*Family, values map[string]float64, order ...string) (string, int) {
	t.Helper()
	over := l.Admit(order)
	p := NewPage(l)
	for _, port := range order {
		p.Emit(fams[0], values[port], port, "red")
		p.Emit(fams[1], values[port], port, "red")
		p.Emit(fams[2], 1, port, "red")
	}
	p.Overflow()
	return text(t, p), over
}

func TestPortsBeyondTheLimitAreSummed(t *testing.T) {
	fams := [3]*Family{counter("vigia_a_total", "port", "tenant"), gauge("vigia_b", "port", "tenant"), gauge("vigia_port_info", "port", "tenant")}
	l := NewLimiter(1)
	values := map[string]float64{"b": 100, "c": 1000, "d": 5000}
	expect := func(out string, lines ...string) {
		t.Helper()
		for _, want := range lines {
			if !strings.Contains(out, want+"\n") {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		if strings.Contains(out, `info{port="_overflow"`) {
			t.Errorf("an identity was summed:\n%s", out)
		}
	}
	out, over := scrape(t, l, fams, values, "b", "c", "d")
	if over != 2 {
		t.Errorf("%d ports over, want 2", over)
	}
	expect(out, `vigia_a_total{port="b",tenant="red"} 100`, `vigia_a_total{port="_overflow",tenant="red"} 0`, `vigia_b{port="_overflow",tenant="red"} 5000`)

	values["c"], values["d"] = 1001, 5010
	// A port that sorts before the others takes nobody's place.
	values["a"] = 7
	out, _ = scrape(t, l, fams, values, "a", "b", "c", "d")
	expect(out, `vigia_a_total{port="b",tenant="red"} 100`, `vigia_a_total{port="_overflow",tenant="red"} 11`)

	values["c"] = 3 // its counters started again
	out, _ = scrape(t, l, fams, values, "b", "c", "d")
	expect(out, `vigia_a_total{port="_overflow",tenant="red"} 14`)

	// b goes and c moves up: the sum stays.
	out, over = scrape(t, l, fams, values, "c", "d")
	if over != 1 {
		t.Errorf("%d ports over, want 1", over)
	}
	expect(out, `vigia_a_total{port="c",tenant="red"} 3`, `vigia_a_total{port="_overflow",tenant="red"} 14`)

	out, over = scrape(t, l, fams, values, "c")
	if over != 0 || strings.Contains(out, `vigia_b{port="_overflow"`) {
		t.Errorf("%d ports over; the gauge stays:\n%s", over, out)
	}
	expect(out, `vigia_a_total{port="_overflow",tenant="red"} 14`)
	if len(l.last) != 0 {
		t.Errorf("%d readings of gone ports are kept", len(l.last))
	}
}

func BenchmarkPage(b *testing.B) {
	f := counter("vigia_port_bytes_total", "port", "tenant", "direction")
	p := NewPage(nil)
	for b.Loop() {
		p.Reset(nil)
		for range 10000 {
			p.Emit(f, 123456789, "6d5a5c3e-9b7e-4e0a-9d2b-0a1b2c3d4e5f", "red", "from_tenant")
		}
	}
}

// Whatever must be escaped is found at every place of values of any length, and nothing
// else is taken for it.
func TestWhatMustBeEscapedIsFoundAnywhere(t *testing.T) {
	for length := range 25 {
		for at := range length {
			for c := range 256 {
				value := bytes.Repeat([]byte{'!'}, length) // one less than a quotation mark
				value[at] = byte(c)
				want := c != '\\' && c != '"' && c != '\n'
				if got := plain(string(value)); got != want {
					t.Fatalf("%q: plain is %v", value, got)
				}
			}
		}
	}
	if got := string(appendEscaped(nil, "a longer \"value\" with\nboth\\kinds")); got != `a longer \"value\" with\nboth\\kinds` {
		t.Error(got)
	}
}

func TestValuesThatRepeatAreEscapedAsTheFirst(t *testing.T) {
	f, p := counter("vigia_a_total", "a", "b"), NewPage(nil)
	want := ""
	for _, v := range []string{"plain", "plain", `not "plain"`, `not "plain"`, "plain", "", "plain"} {
		p.Emit(f, 1, v, "plain")
		want += fmt.Sprintf("vigia_a_total{a=%q,b=\"plain\"} 1\n", v)
	}
	if got := text(t, p); !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
