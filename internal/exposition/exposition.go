// Package exposition writes metrics in the Prometheus text format 0.0.4, fast
// enough for tens of thousands of series: samples are appended to one buffer per
// family and nothing else is allocated.
//
// https://prometheus.io/docs/instrumenting/exposition_formats/
package exposition

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"vigia/internal/catalog"
)

// Family is a metric family that can be written.
type Family struct {
	metric catalog.Metric
	head   []byte            // the HELP and TYPE lines
	open   []byte            // name{label1="
	seps   [][]byte          // what stands before the second, third, ... label value: ",label2="
	port   int               // position of the label "port", or -1
	closed []*catalog.Closed // by the labels' positions; nil for an open one
}

// NewFamily returns the writer's form of a catalogued metric.
func NewFamily(m catalog.Metric) *Family {
	f := &Family{metric: m, port: slices.Index(m.Labels, "port"), closed: m.Closed()}
	f.head = fmt.Appendf(nil, "# HELP %s %s\n# TYPE %s %s\n", m.Name, escapeHelp(m.Help), m.Name, m.Type)
	f.open = []byte(m.Name)
	for i, l := range m.Labels {
		sep := fmt.Appendf(nil, `",%s="`, l)
		if i == 0 {
			f.open = fmt.Appendf(f.open, `{%s="`, l)
			continue
		}
		f.seps = append(f.seps, sep)
	}
	return f
}

// Name returns the family's name.
func (f *Family) Name() string { return f.metric.Name }

// Labels returns the family's label names.
func (f *Family) Labels() []string { return f.metric.Labels }

// Page collects the samples of one scrape.
type Page struct {
	buffers map[string]*[]byte // by name: several sources may emit one family
	known   map[*Family]*[]byte
	before  [4]string // the last values of a sample's first labels that were plain
	order   []*Family
	series  int
	limiter *Limiter
	left    int // series that may still be written; negative for no limit
	cut     int // samples that the limit kept out
}

// NewPage returns an empty page. The limiter may be nil.
func NewPage(l *Limiter) *Page {
	p := &Page{buffers: make(map[string]*[]byte), known: make(map[*Family]*[]byte)}
	p.Reset(l)
	return p
}

// Reset empties the page for another scrape and keeps its memory.
func (p *Page) Reset(l *Limiter) {
	if l != nil {
		l.begin()
	}
	for _, b := range p.buffers {
		*b = (*b)[:0]
	}
	p.order = p.order[:0]
	p.series, p.cut, p.left, p.limiter = 0, 0, -1, l
}

// Quota lets at most n further series in and returns how many samples the quota
// before it kept out. A negative n lifts the limit.
func (p *Page) Quota(n int) (cut int) {
	cut, p.cut = p.cut, 0
	p.left = n
	return cut
}

// Emit adds a sample. The label values stand in the order of the family's
// labels; another number of them is a mistake in the program and panics, and so is
// a value that the catalogue does not list for a closed label.
func (p *Page) Emit(f *Family, value float64, labels ...string) {
	if len(labels) != len(f.metric.Labels) {
		panic(fmt.Sprintf("metric %s has the labels %v, not %d of them", f.metric.Name, f.metric.Labels, len(labels)))
	}
	if p.limiter != nil && f.port >= 0 && p.limiter.take(f, value, labels) {
		return
	}
	p.write(f, value, labels)
}

func (p *Page) write(f *Family, value float64, labels []string) {
	if p.left == 0 {
		p.cut++
		return
	}
	if p.left > 0 {
		p.left--
	}
	p.series++
	b := p.buffer(f)
	out := append(*b, f.open...)
	for i, v := range labels {
		if i > 0 {
			out = append(out, f.seps[i-1]...)
		}
		switch {
		case f.closed[i] != nil: // what the catalogue lists needs no escape
			if c := f.closed[i]; !c.Has(v) {
				panic(c.Refusal(f.metric.Name, v))
			}
			out = append(out, v...)
		case i < len(p.before) && v == p.before[i]: // samples of one port follow each other
			out = append(out, v...)
		case i < len(p.before) && plain(v):
			p.before[i] = v
			out = append(out, v...)
		default:
			out = appendEscaped(out, v)
		}
	}
	if len(labels) > 0 {
		out = append(out, '"', '}')
	}
	out = append(out, ' ')
	out = appendValue(out, value)
	*b = append(out, '\n')
}

func (p *Page) buffer(f *Family) *[]byte {
	b := p.known[f]
	if b == nil {
		if b = p.buffers[f.metric.Name]; b == nil {
			b = new([]byte)
			p.buffers[f.metric.Name] = b
		}
		p.known[f] = b
	}
	if len(*b) == 0 {
		p.order = append(p.order, f)
	}
	return b
}

// Histogram adds a histogram with cumulative counts by upper bound; the last
// count is that of the bucket +Inf, so there is one more of them than bounds.
func (p *Page) Histogram(f *Family, bounds []float64, cumulative []uint64, sum float64, labels ...string) {
	if len(labels) != len(f.metric.Labels) || len(cumulative) != len(bounds)+1 {
		panic(fmt.Sprintf("metric %s: %d labels, %d bounds and %d counts do not fit", f.metric.Name, len(labels), len(bounds), len(cumulative)))
	}
	for i, c := range f.closed {
		if c != nil && !c.Has(labels[i]) {
			panic(c.Refusal(f.metric.Name, labels[i]))
		}
	}
	n := len(cumulative) + 2
	if p.left >= 0 && p.left < n {
		p.cut += n
		return
	}
	if p.left > 0 {
		p.left -= n
	}
	p.series += n
	b := p.buffer(f)
	out := *b
	for i, c := range cumulative {
		out = append(append(out, f.metric.Name...), "_bucket{"...)
		out = appendLabels(out, f.metric.Labels, labels)
		out = append(out, `le="`...)
		if i < len(bounds) {
			out = appendValue(out, bounds[i])
		} else {
			out = append(out, "+Inf"...)
		}
		out = append(out, `"} `...)
		out = append(strconv.AppendUint(out, c, 10), '\n')
	}
	for _, part := range []struct {
		suffix string
		value  float64
	}{{"_sum", sum}, {"_count", float64(cumulative[len(cumulative)-1])}} {
		out = append(append(out, f.metric.Name...), part.suffix...)
		if len(labels) > 0 {
			out = append(out, '{')
			out = appendLabels(out, f.metric.Labels, labels)
			out[len(out)-1] = '}'
		}
		out = append(appendValue(append(out, ' '), part.value), '\n')
	}
	*b = out
}

// appendLabels writes name="value", for each label, a comma after the last too.
func appendLabels(out []byte, names, values []string) []byte {
	for i, v := range values {
		out = append(append(out, names[i]...), '=', '"')
		out = append(appendEscaped(out, v), '"', ',')
	}
	return out
}

// Series returns the number of series on the page.
func (p *Page) Series() int { return p.series }

// Overflow writes the sums of the ports that the limiter put together. Nothing
// with a port may follow on the page.
func (p *Page) Overflow() {
	if p.limiter == nil {
		return
	}
	l := p.limiter
	p.limiter = nil
	l.flush(p.write)
}

// WriteTo writes the page, families in the order in which they first appeared.
func (p *Page) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for _, f := range p.order {
		for _, b := range [][]byte{f.head, *p.buffers[f.metric.Name]} {
			n, err := w.Write(b)
			total += int64(n)
			if err != nil {
				return total, err
			}
		}
	}
	return total, nil
}

func appendValue(out []byte, v float64) []byte {
	if u := uint64(v); v >= 0 && v < 1<<53 && float64(u) == v {
		return strconv.AppendUint(out, u, 10)
	}
	return strconv.AppendFloat(out, v, 'g', -1, 64) // writes NaN, +Inf and -Inf as the format does
}

func appendEscaped(out []byte, s string) []byte {
	if plain(s) {
		return append(out, s...)
	}
	from := 0
	for i := range len(s) {
		var escape byte
		switch s[i] {
		case '\\', '"':
			escape = s[i]
		case '\n':
			escape = 'n'
		default:
			continue
		}
		out = append(append(out, s[from:i]...), '\\', escape)
		from = i + 1
	}
	return append(out, s[from:]...)
}

// plain tells, eight bytes at a time, whether a value can be written as it is.
func plain(s string) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for ; len(s) >= 8; s = s[8:] {
		w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		slash, quote, newline := w^ones*'\\', w^ones*'"', w^ones*'\n'
		// The high bit of a byte is set where one of the three is zero.
		if ((slash-ones)&^slash|(quote-ones)&^quote|(newline-ones)&^newline)&high != 0 {
			return false
		}
	}
	for i := range len(s) {
		if s[i] == '\\' || s[i] == '"' || s[i] == '\n' {
			return false
		}
	}
	return true
}

func escapeHelp(s string) string {
	var out []byte
	for i := range len(s) {
		switch c := s[i]; c {
		case '\\':
			out = append(out, '\\', '\\')
		case '\n':
			out = append(out, '\\', 'n')
		default:
			out = append(out, c)
		}
	}
	return string(out)
}
