package main

import (
	"context"
	"math"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	kitlog "github.com/go-kit/log"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"vigia/tests/sitecost/names"
)

// learned has what a Prometheus would have stored in two minutes: a counter of 10 a second, a gauge, a recorded ratio,
// a native histogram, a port, and an alert that was there once.
func stored(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "learned")
	opts := tsdb.DefaultOptions()
	opts.EnableNativeHistograms = true
	db, err := tsdb.Open(folder, kitlog.NewNopLogger(), nil, opts, nil)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now().Add(-3 * time.Minute).UnixMilli()
	app := db.Appender(context.Background())
	add := func(at int64, v float64, pairs ...string) {
		t.Helper()
		if _, err := app.Append(0, labels.FromStrings(pairs...), at, v); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int64(9) {
		at, seconds := start+i*15_000, float64(i)*15
		add(at, 500+10*seconds, "__name__", "sent_total", "node", names.Node(1))
		add(at, 0.5+float64(i)/100, "__name__", "jitter_seconds")
		add(at, 7, "__name__", "path:loss:ratio_rate1m")
		add(at, 3, "__name__", "port_up", "port", names.Port(1, 4, 0))
		n := uint64(8 * seconds)
		h := &histogram.Histogram{
			Schema: 3, Count: n + 2, Sum: float64(n), ZeroThreshold: 1e-9, ZeroCount: 2,
			PositiveSpans: []histogram.Span{{Offset: -9, Length: 2}}, PositiveBuckets: []int64{int64(n / 4), int64(n - n/4 - n/4)},
		}
		if _, err := app.AppendHistogram(0, labels.FromStrings("__name__", "rtt_seconds"), at, h, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 * batch { // more than one appender takes
		add(start, 1, "__name__", "many", "number", strconv.Itoa(i))
		add(start+15_000, 1, "__name__", "many", "number", strconv.Itoa(i))
	}
	add(start+60_000, 1, "__name__", "ALERTS", "alertname", "Once")
	for at := start + 8*15_000 + 1; at < start+150_000; at += 15_000 { // another port is at the place
		add(at, 3, "__name__", "port_up", "port", names.Port(1, 4, 1))
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return folder
}

// samples of a metric, by series.
type samples struct {
	times  []int64
	values []float64 // of histograms their counts
	labels labels.Labels
}

func query(t *testing.T, folder, metric string) []samples {
	t.Helper()
	db, err := tsdb.OpenDBReadOnly(folder, kitlog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	q, err := db.Querier(context.Background(), math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	var out []samples
	set := q.Select(true, nil, labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, metric))
	for set.Next() {
		s := samples{labels: set.At().Labels()}
		it := set.At().Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if kind == chunkenc.ValHistogram {
				at, h := it.AtHistogram()
				var total uint64
				last := int64(0)
				for _, d := range h.PositiveBuckets {
					last += d
					total += uint64(last)
				}
				if total+h.ZeroCount != h.Count {
					t.Fatalf("at %d the buckets have %d observations, the histogram %d", at, total+h.ZeroCount, h.Count)
				}
				s.times, s.values = append(s.times, at), append(s.values, float64(h.Count))
				continue
			}
			at, v := it.At()
			s.times, s.values = append(s.times, at), append(s.values, v)
		}
		out = append(out, s)
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func (s samples) rate() float64 {
	last := len(s.times) - 1
	return (s.values[last] - s.values[0]) / float64(s.times[last]-s.times[0]) * 1000
}

// written is when run was called and had returned.
type written struct{ begin, end time.Time }

// history runs run.
func history(t *testing.T, args ...string) written {
	t.Helper()
	begin := time.Now()
	if err := run(args); err != nil {
		t.Fatal(err)
	}
	return written{begin, time.Now()}
}

// steadily fails unless samples go from an age to now, which run has read somewhere between its begin and its end, at
// most so far apart, and the values never fall.
func (s samples) steadily(t *testing.T, when written, age, apart time.Duration) {
	t.Helper()
	first := time.UnixMilli(s.times[0]).Add(age)
	if first.Before(when.begin.Add(-apart-time.Second)) || first.After(when.end.Add(apart+time.Second)) {
		t.Errorf("%s begins %s after %s, or before that", s.labels, first.Sub(when.begin), when.begin.Add(-age))
	}
	if last := time.UnixMilli(s.times[len(s.times)-1]); when.begin.Sub(last) > 2*apart+time.Minute {
		t.Errorf("%s ends at %s", s.labels, last)
	}
	for i := 1; i < len(s.times); i++ {
		if gap := s.times[i] - s.times[i-1]; gap > apart.Milliseconds() {
			t.Fatalf("%s has nothing for %d ms", s.labels, gap)
		}
		if s.values[i] < s.values[i-1] {
			t.Fatalf("%s fell from %g to %g", s.labels, s.values[i-1], s.values[i])
		}
	}
}

func TestThePastOfAnHourIsInTheHead(t *testing.T) {
	to := filepath.Join(t.TempDir(), "data")
	when := history(t, "-from", stored(t), "-to", to, "-age", "1h", "-port-life", "0s")
	if blocks, _ := filepath.Glob(filepath.Join(to, "*", "meta.json")); len(blocks) != 0 {
		t.Errorf("there are %d blocks", len(blocks))
	}
	sent := query(t, to, "sent_total")
	late := int(when.end.Sub(when.begin) / (15 * time.Second)) // what was due while it was written
	if len(sent) != 1 || len(sent[0].times) < 239 || len(sent[0].times) > 243+late {
		t.Fatalf("an hour of a counter scraped every 15 s: %d series", len(sent))
	}
	sent[0].steadily(t, when, time.Hour, 15*time.Second)
	if r := sent[0].rate(); math.Abs(r-10) > 0.1 {
		t.Errorf("the rate is %g, was 10", r)
	}
	rtt := query(t, to, "rtt_seconds")
	if len(rtt) != 1 {
		t.Fatalf("%d histograms", len(rtt))
	}
	rtt[0].steadily(t, when, time.Hour, 15*time.Second)
	if r := rtt[0].rate(); math.Abs(r-8) > 0.1 {
		t.Errorf("%g observations a second, were 8", r)
	}
	if once := query(t, to, "ALERTS"); len(once) != 1 || len(once[0].times) > 5 {
		t.Errorf("what was seen once is there too often: %v", once)
	}
}

func TestThePastOfDaysIsInBlocks(t *testing.T) {
	to := filepath.Join(t.TempDir(), "data")
	when := history(t, "-from", stored(t), "-to", to, "-age", "168h", "-dense", "12h", "-port-life", "24h")
	if blocks, _ := filepath.Glob(filepath.Join(to, "*", "meta.json")); len(blocks) < 3 || len(blocks) > 9 {
		t.Errorf("there are %d blocks, want at most 4 of 54 hours, 2 of 18, 2 of 6 and 1 of 2", len(blocks))
	}
	for _, metric := range []string{"sent_total", "rtt_seconds"} {
		found := query(t, to, metric)
		if len(found) != 1 {
			t.Fatalf("%s has %d series", metric, len(found))
		}
		found[0].steadily(t, when, 168*time.Hour, 5*time.Minute)
		recent := 0
		for _, at := range found[0].times {
			if when.begin.Sub(time.UnixMilli(at)) < 12*time.Hour {
				recent++
			}
		}
		// The first of them may be a thin step of 5 minutes late.
		if recent < 12*240-20-10 {
			t.Errorf("%s has %d samples in the last 12 hours, want one every 15 s", metric, recent)
		}
	}
	if many := query(t, to, "many"); len(many) != 2*batch {
		t.Errorf("of %d series %d have a past", 2*batch, len(many))
	}
	if ports := query(t, to, "port_up"); len(ports) < 7 || len(ports) > 9 {
		t.Errorf("in a week there were %d ports at a place where each stays a day", len(ports))
	}
}

func TestWrongDirectoriesAreRefused(t *testing.T) {
	there := stored(t)
	for _, args := range [][]string{
		{"-from", there, "-to", there},
		{"-from", t.TempDir(), "-to", filepath.Join(t.TempDir(), "new")},
	} {
		if err := run(args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

// Two that were given the past of one place would write the same samples twice.
func TestAPortThatWasReplacedHasNoPastBesideTheNext(t *testing.T) {
	learned, err := learn(stored(t))
	if err != nil {
		t.Fatal(err)
	}
	var ports []string
	for _, s := range learned {
		if s.node >= 0 {
			ports = append(ports, s.labels.Get("port"))
		}
	}
	if len(ports) != 1 || ports[0] != names.Port(1, 4, 1) {
		t.Errorf("learned of the place: %v", ports)
	}
}
