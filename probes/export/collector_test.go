package export

import (
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/probes/accounting"
	"vigia/probes/clockerror"
	"vigia/probes/delay"
	"vigia/probes/health"
	"vigia/probes/objective"
	"vigia/probes/protocol"
	"vigia/probes/protocol/connect"
	"vigia/probes/protocol/echo"
	"vigia/probes/protocol/registry"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/sender"
	"vigia/probes/settings"
	"vigia/probes/twin"
)

var labels = sender.Labels{Src: "a", Dst: "b", Path: "p", Tenant: "t", Probe: "c"}

// suffix is how values end the names of the series of labels.
const suffix = " b p c a t"

func factory(t testing.TB, reg prometheus.Registerer) *catalog.Factory {
	t.Helper()
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c.NewFactory("probe", reg)
}

// measured is a state of everything that a test sets.
type measured struct {
	status  []sender.Status
	totals  sender.Totals
	err     error
	clock   clockerror.Reading
	reading health.Reading
	unfit   map[health.Reason]bool
	busy    time.Duration
}

func (m *measured) Snapshot(to []sender.Status) ([]sender.Status, sender.Totals, error) {
	return append(to, m.status...), m.totals, m.err
}
func (m *measured) Read() clockerror.Reading              { return m.clock }
func (m *measured) Reading() health.Reading               { return m.reading }
func (m *measured) Unfit(r health.Reason) bool            { return m.unfit[r] }
func (m *measured) Busy() time.Duration                   { return m.busy }
func (m *measured) Kernel() (health.Reason, bool)         { return health.Steal, m.unfit[health.Steal] }
func (*measured) Application(int64) (health.Reason, bool) { return 0, false }

// collected returns a registry with a collector and recorders over a state.
func collected(t *testing.T, m *measured, burning *objective.Watch) (*prometheus.Registry, *Recorders) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	f := factory(t, reg)
	judges := newBook(objective.Target{Labels: labels, Bounds: objective.Bounds{3 * time.Millisecond, 2 * time.Millisecond}})
	recorders := NewRecorders(f, reg, Context{Host: m, Objectives: burning, Judges: judges, Twins: twin.New()}, registry.All())
	reg.MustRegister(NewCollector(f, Sources{
		Targets: m, Recorders: recorders, Host: m, Clock: m, Objectives: burning,
		Paths: func() []settings.Path {
			return []settings.Path{{Name: "p", Dataplane: "ovs", Encap: "gre", Mode: "normal", Security: "none", Layer: "overlay", Placement: "remote"}}
		},
	}))
	return reg, recorders
}

func stampTarget() sender.Target {
	return sender.Target{
		Labels: labels, Protocol: stampprobe.Protocol{}, Size: 64, Host: "10.0.0.2", Port: 862,
		Interval: 50 * time.Millisecond, Deadline: 2 * time.Second, Flows: 4, ECMPPaths: 4,
	}
}

// TestEveryCounterIsExported sets every number to another value and looks for it.
func TestEveryCounterIsExported(t *testing.T) {
	m := &measured{reading: health.Reading{CPUPressure: 0.25, Steal: 0.5, ThrottledSeconds: 7}, unfit: map[health.Reason]bool{health.Steal: true}, busy: 1500 * time.Millisecond}
	m.clock = clockerror.Reading{Bound: 3 * time.Microsecond, Synchronized: true, Source: clockerror.SourceChrony}
	st := sender.Status{
		Target: stampTarget(), Up: true, InFlight: 3, Jitter: 0.125, ErrorBound: 4000, Rewritten: [2]uint64{21, 22},
		Counts: accounting.Counts{
			Sent: 100, Received: 79, Lost: [accounting.NumCauses]uint64{1, 2, 3, 4, 5, 6}, Late: 7, Duplicate: 8, Reordered: 9, Corrupt: 10,
			Skipped: 11, Handed: 103, Refused: 1,
		},
	}
	st.Quarantined[delay.ClockStep], st.Quarantined[delay.Good] = 13, 99
	m.status, m.totals = []sender.Status{st}, sender.Totals{Stray: 17}
	m.totals.Stamps[sender.RX][sender.Kernel] = 18
	watch := objective.New()
	watch.Set([]objective.Objective{{Tenant: "blue", Ratio: 0.99}})
	reg, recorders := collected(t, m, watch)
	recorders.ShowAll(true)
	got := values(t, reg)
	want := map[string]float64{
		"vigia_probe_sent_total" + suffix: 100, "vigia_probe_received_total" + suffix: 79, "vigia_probe_late_total" + suffix: 7,
		"vigia_probe_duplicate_total" + suffix: 8, "vigia_probe_reordered_total" + suffix: 9, "vigia_probe_corrupt_total" + suffix: 10,
		"vigia_probe_skipped_total" + suffix: 11, "vigia_probe_in_flight" + suffix: 3, "vigia_probe_jitter_seconds" + suffix: 0.125,
		"vigia_probe_interval_seconds" + suffix: 0.05, "vigia_probe_deadline_seconds" + suffix: 2, "vigia_probe_target_up" + suffix: 1,
		"vigia_probe_accounting_mismatch" + suffix:             float64(st.Counts.Mismatch(3)),
		"vigia_probe_quarantined_total b p c clock_step a t":   13,
		"vigia_probe_stray_total":                              17,
		"vigia_probe_timestamps_total rx kernel":               18,
		"vigia_probe_host_cpu_pressure_ratio":                  0.25,
		"vigia_probe_host_steal_ratio":                         0.5,
		"vigia_probe_host_throttled_seconds_total":             7,
		"vigia_probe_host_unfit steal":                         1,
		"vigia_probe_host_unfit throttled":                     0,
		"vigia_probe_host_busy_seconds_total":                  1.5,
		"vigia_probe_host_clock_error_bound_seconds chrony":    3e-6,
		"vigia_probe_objective_burning blue":                   0,
		"vigia_path_info ovs gre overlay normal p remote none": 1,
		"vigia_probe_ecmp_coverage_ratio" + suffix:             1 - 4*math.Pow(3./4, 4)/4,
		"vigia_probe_lost_total send_error" + suffix:           1,
		"vigia_probe_lost_total reverse" + suffix:              5,
	}
	// Where the label's place is not at the end, it is looked for by its parts.
	find := func(family string, parts ...string) (float64, bool) {
		for key, v := range got {
			words := strings.Fields(key)
			if words[0] == family && !slices.ContainsFunc(parts, func(p string) bool { return !slices.Contains(words, p) }) {
				return v, true
			}
		}
		return 0, false
	}
	for name, v := range want {
		words := strings.Fields(name)
		if have, ok := find(words[0], words[1:]...); !ok || math.Abs(have-v) > 1e-12 {
			t.Errorf("%s is %v, %v; want %v", name, have, ok, v)
		}
	}
	for cause, lost := range st.Counts.Lost {
		if have, ok := find("vigia_probe_lost_total", accounting.Cause(cause).String()); !ok || have != float64(lost) {
			t.Errorf("lost by %s: %v, want %d", accounting.Cause(cause), have, lost)
		}
	}
	for i, direction := range []string{"forward", "reverse"} {
		if have, _ := find("vigia_probe_dscp_rewritten_total", direction); have != float64(21+i) {
			t.Errorf("rewritten %s: %v", direction, have)
		}
		if have, ok := find("vigia_probe_clock_error_bound_seconds", direction); !ok || have != 4e-6 {
			t.Errorf("error bound %s: %v, %v", direction, have, ok)
		}
	}
	if _, ok := find("vigia_probe_quarantined_total", "good"); ok {
		t.Error("good samples are said to be quarantined")
	}
}

// TestWhatIsNotKnownHasNoSeries: a zero would be a lie.
func TestWhatIsNotKnownHasNoSeries(t *testing.T) {
	m := &measured{reading: health.Reading{CPUPressure: -1, Steal: -1, ThrottledSeconds: -1}}
	paused := stampTarget()
	paused.Labels.Dst, paused.Paused, paused.ECMPPaths = "gone", true, 0
	unprobed := stampTarget()
	m.status = []sender.Status{{Target: paused, ErrorBound: -1}, {Target: unprobed, ErrorBound: -1}}
	reg, _ := collected(t, m, objective.New())
	for key := range values(t, reg) {
		words := strings.Fields(key)
		for _, absent := range []string{"vigia_probe_host_cpu_pressure_ratio", "vigia_probe_host_steal_ratio", "vigia_probe_host_throttled_seconds_total", "vigia_probe_host_clock_error_bound_seconds", "vigia_probe_clock_error_bound_seconds"} {
			if words[0] == absent {
				t.Errorf("a series of what nobody knows: %s", key)
			}
		}
		if slices.Contains(words, "gone") && (words[0] == "vigia_probe_target_up" || words[0] == "vigia_probe_ecmp_coverage_ratio") {
			t.Errorf("a paused target has %s", key)
		}
	}
	m.err = errors.New("stopping")
	if got := values(t, reg); len(got) != 0 {
		t.Errorf("series without a snapshot: %v", slices.Sorted(maps.Keys(got)))
	}
}

// TestWhatHasNotOccurredHasNoSeries until it does; then it begins with zeros.
func TestWhatHasNotOccurredHasNoSeries(t *testing.T) {
	m := &measured{status: []sender.Status{{Target: stampTarget(), ErrorBound: -1, Up: true}}}
	reg, recorders := collected(t, m, objective.New())
	rec := recorders.New(stampTarget()).(*recorder)
	st := &m.status[0]
	rare := [][]string{
		{"vigia_probe_late_total"},
		{"vigia_probe_duplicate_total"},
		{"vigia_probe_reordered_total"},
		{"vigia_probe_corrupt_total"},
		{"vigia_probe_skipped_total"},
		{"vigia_probe_lost_total", "local_overflow"},
		{"vigia_probe_dscp_rewritten_total", "forward"},
		{"vigia_probe_quarantined_total", "clock_step"},
		{"vigia_probe_quarantined_total", "steal"},
		{"vigia_probe_judged_total", "delay"},
		{"vigia_probe_timestamps_total"},
	}
	before := values(t, reg)
	for _, words := range rare {
		if v := findIn(before, words); v != -1 {
			t.Errorf("%v is %v before there was one", words, v)
		}
	}
	for _, absent := range []string{"vigia_probe_in_flight", "vigia_probe_interval_seconds", "vigia_probe_loss_burst_packets", "vigia_probe_reflector_residence_seconds"} {
		if v := findIn(before, []string{absent}); v != -1 {
			t.Errorf("%s is %v, and nothing reads it", absent, v)
		}
	}
	for _, cause := range []string{"forward", "reverse", "unknown"} {
		if v := findIn(before, []string{"vigia_probe_lost_total", cause}); v != 0 {
			t.Errorf("lost by %s is %v, want 0: no loss is known, and not unknown", cause, v)
		}
	}
	st.Counts = accounting.Counts{Late: 3, Duplicate: 3, Reordered: 3, Corrupt: 3, Skipped: 3, Lost: [accounting.NumCauses]uint64{accounting.LocalOverflow: 3}}
	st.Rewritten[delay.Forward], st.Quarantined[delay.ClockStep] = 3, 3
	m.totals.Stamps[sender.RX][sender.Kernel] = 3
	for range 3 {
		rec.Settled(answered(time.Second))
	}
	rec.mu.Lock()
	rec.unfit[health.Steal] = 3
	rec.mu.Unlock()
	rec.Burst(2)
	for scrape, want := range []float64{0, 0, 3} {
		got := values(t, reg)
		for _, words := range rare {
			if v := findIn(got, words); v != want {
				t.Errorf("scrape %d: %v is %v, want %v", scrape, words, v, want)
			}
		}
		if slow := findIn(got, []string{"vigia_probe_slow_total"}); slow != want {
			t.Errorf("scrape %d: %v were slow, want %v", scrape, slow, want)
		}
	}
}

// findIn returns the value of the series with those words, -1 without one.
func findIn(got map[string]float64, words []string) float64 {
	for key, v := range got {
		have := strings.Fields(key)
		if have[0] == words[0] && !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(have, w) }) {
			return v
		}
	}
	return -1
}

// TestWhatWasCountedBeforeAnybodyLookedIsHistory, as after a pair was hidden, and is shown as it is.
func TestWhatWasCountedBeforeAnybodyLookedIsHistory(t *testing.T) {
	m := &measured{status: []sender.Status{{Target: stampTarget(), ErrorBound: -1, Counts: accounting.Counts{Late: 7}}}}
	reg, recorders := collected(t, m, objective.New())
	if v := findIn(values(t, reg), []string{"vigia_probe_late_total"}); v != 7 {
		t.Errorf("7 late answers of before the first scrape are shown as %v", v)
	}
	rec := recorders.New(stampTarget()).(*recorder)
	rec.hidden.Store(true)
	m.status[0].Counts.Duplicate = 5
	if v := findIn(values(t, reg), []string{"vigia_probe_late_total"}); v != -1 {
		t.Errorf("a hidden target has %v late answers", v)
	}
	rec.hidden.Store(false)
	m.status[0].Counts.Late = 9
	got := values(t, reg)
	if late, twice := findIn(got, []string{"vigia_probe_late_total"}), findIn(got, []string{"vigia_probe_duplicate_total"}); late != 9 || twice != 5 {
		t.Errorf("shown again: %v late, %v twice; want 9 and 5", late, twice)
	}
	m.status[0].Counts.Corrupt = 1
	if v := findIn(values(t, reg), []string{"vigia_probe_corrupt_total"}); v != 0 {
		t.Errorf("what came while it was looked at begins with %v, want 0", v)
	}
}

// TestLabelsOfGoneTargetsAreForgotten, so that memory is bounded by the targets there are.
func TestLabelsOfGoneTargetsAreForgotten(t *testing.T) {
	m := &measured{}
	reg := prometheus.NewPedanticRegistry()
	f := factory(t, reg)
	recorders := NewRecorders(f, reg, Context{Host: m, Objectives: objective.New(), Judges: newBook(), Twins: twin.New()}, nil)
	c := NewCollector(f, Sources{Targets: m, Recorders: recorders, Host: m, Clock: m, Objectives: objective.New(), Paths: func() []settings.Path { return nil }})
	reg.MustRegister(c)
	for round := range 20 {
		m.status = nil
		for i := range 10 {
			tg := stampTarget()
			tg.Labels.Dst = string(rune('a'+i)) + string(rune('a'+round))
			m.status = append(m.status, sender.Status{Target: tg})
		}
		values(t, reg)
		if len(c.labels) > 3*len(m.status) {
			t.Fatalf("labels of %d targets are kept, and there are %d", len(c.labels), len(m.status))
		}
	}
}

// TestSeriesPerTarget counts what plan multiplies: more where the other end leaves stamps.
func TestSeriesPerTarget(t *testing.T) {
	counts := make(map[string]int)
	for _, p := range registry.All() {
		n, err := SeriesPerTarget(p)
		if err != nil {
			t.Fatal(err)
		}
		counts[p.Traits().Name] = n
	}
	if counts[stampprobe.Name] != counts[echo.Name]+4 || counts[echo.Name] != counts[connect.Name] {
		t.Errorf("%v: STAMP has two variations and two causes of loss more", counts)
	}
}

// TestPathMTUInWords says what is known of a path.
func TestPathMTUInWords(t *testing.T) {
	for want, p := range map[string]PathMTU{
		"unreachable": {outcome: "unreachable"}, "9000 or more": {Bytes: 9000, atMax: true, outcome: "found"},
		"1400; last search: unsettled": {Bytes: 1400, outcome: "unsettled"}, "1500": {Bytes: 1500, outcome: "found"},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	reg := prometheus.NewPedanticRegistry()
	m := NewPathMTUs(factory(t, reg), reg, slog.New(slog.DiscardHandler), func(sender.Labels) bool { return false })
	m.Set(map[sender.Labels]bool{labels: true})
	if known, ok := m.Known(labels); !ok || known.String() != "searching" {
		t.Errorf("%v, %q", ok, known)
	}
}

// metered is a protocol with a metric of its own.
type metered struct{ stampprobe.Protocol }

func (metered) Traits() protocol.Traits {
	t := stampprobe.Protocol{}.Traits()
	t.Name = "metered"
	return t
}

func (metered) Metrics(f *catalog.Factory) protocol.Metrics {
	return &ownMetrics{gauge: f.Gauge("vigia_probe_path_mtu_bytes")}
}

type ownMetrics struct{ gauge *prometheus.GaugeVec }

func (m *ownMetrics) Added(labels []string) { m.gauge.WithLabelValues(labels...) }
func (m *ownMetrics) Settled(labels []string, p *protocol.Probe) {
	if v, ok := p.Detail.(float64); ok {
		m.gauge.WithLabelValues(labels...).Set(v)
	}
}
func (m *ownMetrics) Removed(labels []string) { m.gauge.DeleteLabelValues(labels...) }

// TestMetricsOfAProtocol exist for its targets alone, from their beginning to their end.
func TestMetricsOfAProtocol(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := &measured{}
	recorders := NewRecorders(factory(t, reg), reg, Context{Host: m, Objectives: objective.New(), Judges: newBook(), Twins: twin.New()}, append(registry.All(), metered{}))
	tg := stampTarget()
	tg.Protocol = metered{}
	own, other := recorders.New(tg), recorders.New(sender.Target{Protocol: stampprobe.Protocol{}, Labels: sender.Labels{Dst: "other"}})
	series := func() map[string]float64 {
		found := make(map[string]float64)
		for key, v := range values(t, reg) {
			if strings.HasPrefix(key, "vigia_probe_path_mtu_bytes") {
				found[key] = v
			}
		}
		return found
	}
	if got := series(); len(got) != 1 || got["vigia_probe_path_mtu_bytes"+suffix] != 0 {
		t.Errorf("a new target has %v", got)
	}
	own.Settled(&protocol.Probe{State: protocol.Answered, Detail: 1400.0})
	other.Settled(&protocol.Probe{State: protocol.Answered, Detail: 9000.0})
	if got := series(); len(got) != 1 || got["vigia_probe_path_mtu_bytes"+suffix] != 1400 {
		t.Errorf("after a probe of each: %v", got)
	}
	own.Removed()
	if got := series(); len(got) != 0 {
		t.Errorf("after the target is gone: %v", got)
	}
}

// TestRecordsAreSelectedAndOrdered writes those of the targets that are wanted.
func TestRecordsAreSelectedAndOrdered(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := &measured{}
	recorders := NewRecorders(factory(t, reg), reg, Context{Host: m, Objectives: objective.New(), Judges: newBook(), Twins: twin.New()}, nil)
	now := time.Now().UnixNano()
	for _, dst := range []string{"z", "m", "a"} {
		l := labels
		l.Dst = dst
		rec := recorders.New(sender.Target{Protocol: stampprobe.Protocol{}, Labels: l})
		for i := range uint64(3) {
			rec.Settled(&protocol.Probe{Sequence: i, Sent: now + int64(i), State: protocol.Lost, Cause: accounting.Forward})
		}
	}
	var out strings.Builder
	none := false
	if err := recorders.Write(&out, func(l sender.Labels) bool { return l.Dst != "m" }, func() { none = true }); err != nil || none {
		t.Fatal(err, none)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 6 || !strings.Contains(lines[0], `"dst":"a"`) || !strings.Contains(lines[5], `"dst":"z"`) || !strings.Contains(lines[2], `"sequence":2`) {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	if err := recorders.Write(&out, func(sender.Labels) bool { return false }, func() { none = true }); err != nil || !none || out.Len() != 0 {
		t.Errorf("%v, %v, %q", err, none, out.String())
	}
	if err := recorders.Write(broken{}, func(sender.Labels) bool { return true }, nil); !errors.Is(err, errBroken) {
		t.Errorf("a client that has gone: %v", err)
	}
	l := labels
	l.Dst = "a"
	if recent := recorders.Recent(l, 2); len(recent) != 2 || recent[0].Sequence != 1 || recent[1].Sequence != 2 {
		t.Errorf("%+v", recent)
	}
	if recent := recorders.Recent(labels, 2); recent != nil {
		t.Errorf("records of a target that is none: %+v", recent)
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// TestSourceChangedBeginsDelaysAnew, and nothing else.
func TestSourceChangedBeginsDelaysAnew(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := &measured{}
	recorders := NewRecorders(factory(t, reg), reg, Context{Host: m, Objectives: objective.New(), Judges: newBook(), Twins: twin.New()}, nil)
	rec := recorders.New(stampTarget()).(*recorder)
	rec.Launched(1000)
	rec.Settled(&protocol.Probe{State: protocol.Answered, Application: 5000, Own: protocol.Own{Known: true}, ErrorBound: -1, Stamps: delay.Stamps{T2: 1000, T3: 2000, T4: 5000}})
	rec.Varied([delay.NumDirections]int64{1, 2, 3})
	rec.Taxed(77)
	rec.SourceChanged()
	for i, want := range map[int]uint64{applicationHistogram: 1, rttHistogram: 0, residenceHistogram: 0, variationHistogram: 0, taxSeries: 0} {
		if count, _ := observed(t, rec, i); count != want {
			t.Errorf("histogram %d has %d observations, want %d", i, count, want)
		}
	}
	rec.Finished() // means nothing
}
