package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"mime"
	"os"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// page is a captured page that goes on.
type page struct {
	contentType string
	packed      bool // the agent compresses it
	format      expfmt.Format
	families    []*dto.MetricFamily
	counters    []counter
	gauges      []gauge
	histograms  []*histogram
	random      *rand.Rand
}

// counter grows as it did between the two captures.
type counter struct {
	value     *float64
	perSecond float64
	whole     bool // it counts things
}

// gauge wavers about its value if that is no whole number.
type gauge struct {
	value *float64
	about float64
}

// capture reads two captures of a page and the time between them.
func capture(base string, seed uint64) (*page, error) {
	text, err := os.ReadFile(base + ".seconds")
	if err != nil {
		return nil, err
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if err != nil || seconds <= 0 {
		return nil, fmt.Errorf("%s.seconds: %q is no number of seconds above 0", base, text)
	}
	_, _, before, err := read(base + ".0")
	if err != nil {
		return nil, err
	}
	contentType, packed, after, err := read(base + ".1")
	if err != nil {
		return nil, err
	}
	p := &page{contentType: contentType, packed: packed, format: expfmt.ResponseFormat(map[string][]string{"Content-Type": {contentType}}), families: after, random: rand.New(rand.NewPCG(seed, 1))}
	old := make(map[string]*dto.Metric)
	for _, f := range before {
		for _, m := range f.Metric {
			old[key(f, m)] = m
		}
	}
	for _, f := range after {
		for _, m := range f.Metric {
			p.follow(f, m, old[key(f, m)], seconds)
		}
	}
	p.advance(float64(seed) * seconds) // personalities differ from the start
	return p, nil
}

// read returns the families of a captured page, its Content-Type, and whether it was compressed.
func read(name string) (contentType string, packed bool, families []*dto.MetricFamily, err error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return "", false, nil, err
	}
	head, body, found := bytes.Cut(raw, []byte("\n\n"))
	contentType, encoding, _ := strings.Cut(string(head), "\n")
	if _, _, err := mime.ParseMediaType(contentType); err != nil || !found {
		return "", false, nil, fmt.Errorf("%s does not begin with a Content-Type and an empty line", name)
	}
	if packed = encoding == "gzip"; !packed && encoding != "" {
		return "", false, nil, fmt.Errorf("%s: Content-Encoding %q is not gzip", name, encoding)
	}
	decoder := expfmt.NewDecoder(bytes.NewReader(body), expfmt.ResponseFormat(map[string][]string{"Content-Type": {contentType}}))
	for {
		var f dto.MetricFamily
		switch err := decoder.Decode(&f); {
		case errors.Is(err, io.EOF):
			return contentType, packed, families, nil
		case err != nil:
			return "", false, nil, fmt.Errorf("%s: %w", name, err)
		}
		families = append(families, &f)
	}
}

// key is unique to a series.
func key(f *dto.MetricFamily, m *dto.Metric) string {
	var b strings.Builder
	b.WriteString(f.GetName())
	for _, l := range m.Label {
		b.WriteString("\xff" + l.GetName() + "\xff" + l.GetValue())
	}
	return b.String()
}

// follow keeps what changes of a series; old is it as it was, or nil.
func (p *page) follow(f *dto.MetricFamily, m, old *dto.Metric, seconds float64) {
	if old == nil {
		old = m
	}
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		now, was := m.GetCounter().GetValue(), old.GetCounter().GetValue()
		p.counters = append(p.counters, counter{m.Counter.Value, max(now-was, 0) / seconds, now == math.Trunc(now)})
	case dto.MetricType_GAUGE:
		if v := m.GetGauge().GetValue(); v != math.Trunc(v) && !strings.HasSuffix(f.GetName(), "_timestamp_seconds") {
			p.gauges = append(p.gauges, gauge{m.Gauge.Value, v})
		}
	case dto.MetricType_HISTOGRAM:
		p.histograms = append(p.histograms, newHistogram(m.Histogram, old.GetHistogram(), seconds))
	}
}

// wavers is by how much gauges do.
const wavers = 0.05

// advance lets so many seconds pass.
func (p *page) advance(seconds float64) {
	for _, c := range p.counters {
		if c.whole {
			*c.value += float64(poisson(p.random, c.perSecond*seconds))
		} else {
			*c.value += c.perSecond * seconds * (1 + wavers*p.random.NormFloat64())
		}
	}
	for _, g := range p.gauges {
		*g.value = g.about * (1 + wavers*p.random.NormFloat64())
	}
	for _, h := range p.histograms {
		h.advance(p.random, seconds)
	}
}

// render writes the page as the agent did.
func (p *page) render() ([]byte, error) {
	var out bytes.Buffer
	encoder := expfmt.NewEncoder(&out, p.format)
	for _, f := range p.families {
		if err := encoder.Encode(f); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// poisson draws how many events there are where so many are expected.
func poisson(r *rand.Rand, expected float64) uint64 {
	if expected <= 0 {
		return 0
	}
	if expected > 50 {
		return uint64(max(0, math.Round(expected+math.Sqrt(expected)*r.NormFloat64())))
	}
	limit, product, n := math.Exp(-expected), r.Float64(), uint64(0)
	for product > limit {
		product *= r.Float64()
		n++
	}
	return n
}
