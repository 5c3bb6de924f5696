package export

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/exposition"
	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/health"
	"vigia/probes/mesh"
	"vigia/probes/objective"
	"vigia/probes/protocol"
	"vigia/probes/protocol/registry"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/sender"
	"vigia/probes/settings"
	"vigia/probes/twin"
)

// meshed is a node with pairs of a mesh, and what is exported of it.
type meshed struct {
	t         *testing.T
	host      *measured
	reg       *prometheus.Registry
	recorders *Recorders
	fast      *Fast
	site      *Site
	members   map[sender.Labels]Member
	targets   map[string]sender.Recorder // by node
}

// newMeshed returns node n0 of a site of racks of ten, thirty nodes a zone, that probes all
// others; extra protocols beside the usual are those of which metrics are registered.
func newMeshed(t *testing.T, nodes int, p protocol.Protocol) *meshed {
	t.Helper()
	m := &meshed{t: t, host: &measured{unfit: make(map[health.Reason]bool)}, reg: prometheus.NewPedanticRegistry()}
	m.members, m.targets = make(map[sender.Labels]Member), make(map[string]sender.Recorder)
	f := factory(t, m.reg)
	site := make([]mesh.Node, 0, nodes)
	var judged []objective.Target
	for i := range nodes {
		site = append(site, mesh.Node{Name: fmt.Sprintf("n%d", i), Rack: fmt.Sprintf("r%d", i/10), Zone: fmt.Sprintf("z%d", i/30)})
		judged = append(judged, objective.Target{Labels: toward(site[i].Name), Bounds: objective.Bounds{3 * time.Millisecond, time.Second}})
	}
	protocols := registry.All()
	if _, known := p.(stampprobe.Protocol); !known {
		protocols = append(protocols, p)
	}
	m.recorders = NewRecorders(f, m.reg, Context{Host: m.host, Objectives: objective.New(), Judges: newBook(judged...), Twins: twin.New()}, protocols)
	m.fast = NewFast(f, m.recorders)
	m.reg.MustRegister(NewCollector(f, Sources{
		Targets: m.host, Recorders: m.recorders, Host: m.host, Clock: m.host, Objectives: objective.New(),
		Paths: func() []settings.Path { return nil },
	}))
	m.site = &Site{Mesh: mesh.New(site, mesh.Rule{}), Self: site[0]}
	for _, n := range site[1:] {
		m.members[toward(n.Name)] = Member{Site: m.site, Peer: n, Interval: time.Second, Cost: 50}
	}
	m.set(1000)
	for _, n := range site[1:] {
		m.probe(n.Name, p)
	}
	return m
}

func toward(node string) sender.Labels {
	return sender.Labels{Src: "n0", Dst: node, Path: "p", Tenant: "_infra", Probe: "c"}
}

func (m *meshed) set(budget int) {
	m.recorders.SetMesh(Membership{Members: maps.Clone(m.members), Budget: budget})
}

// probe begins to probe a node.
func (m *meshed) probe(node string, p protocol.Protocol) {
	target := stampTarget()
	target.Labels, target.Protocol, target.Interval = toward(node), p, time.Second
	m.host.status = append(m.host.status, sender.Status{Target: target})
	m.targets[node] = m.recorders.New(target)
}

// later lets time pass.
func (m *meshed) later(d time.Duration) { m.recorders.began = m.recorders.began.Add(-d) }

var (
	inTime   = &protocol.Probe{State: protocol.Answered, ErrorBound: -1, Stamps: delay.Stamps{T2: 1000, T3: 2000, T4: 5000}}
	overdue  = &protocol.Probe{State: protocol.Answered, ErrorBound: -1, Stamps: delay.Stamps{T2: 1000, T3: 2000, T4: int64(time.Second)}}
	vanished = &protocol.Probe{State: protocol.Lost, Cause: accounting.Forward}
	refused  = &protocol.Probe{State: protocol.Lost, Cause: accounting.SendError}
	dropped  = &protocol.Probe{State: protocol.Lost, Cause: accounting.LocalOverflow}
)

// settle settles a probe of each node a second, for so many seconds.
func (m *meshed) settle(seconds int, p *protocol.Probe, nodes ...string) {
	for range seconds {
		m.later(time.Second)
		for _, n := range nodes {
			m.targets[n].Settled(p)
		}
	}
}

// scrape returns all series and, of the pairs, which have any and how many.
func (m *meshed) scrape() (series map[string]float64, pairs map[string]int) {
	m.t.Helper()
	m.later(2 * time.Second)
	families, err := m.reg.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	pairs = make(map[string]int)
	for _, f := range families {
		for _, s := range f.Metric {
			for _, l := range s.Label {
				if l.GetName() == "dst" {
					pairs[l.GetValue()]++
				}
			}
		}
	}
	return values(m.t, m.reg), pairs
}

func (m *meshed) states(series map[string]float64) string {
	var out []string
	for _, s := range pairStates {
		out = append(out, fmt.Sprintf("%s %v", s, series["vigia_probe_mesh_pairs "+s]))
	}
	return strings.Join(out, ", ")
}

// At rest the pairs have no series; what they count is that of the node, for each zone.
func TestPairsAtRest(t *testing.T) {
	m := newMeshed(t, 60, stampprobe.Protocol{})
	for n := range m.targets {
		m.settle(3, inTime, n)
	}
	m.settle(1, overdue, "n40")
	series, pairs := m.scrape()
	if len(pairs) != 0 {
		t.Errorf("pairs have series: %v", pairs)
	}
	if got, want := m.states(series), "probed 59, bad 0, asked 0, exported 0, left_out 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	count := 0
	for name := range series {
		if strings.HasPrefix(name, "vigia_probe_mesh_") {
			count++
		}
	}
	want, err := SeriesPerNode(stampprobe.Protocol{}, 2)
	if err != nil || count != want || count > 50 {
		t.Errorf("%d series, %d are planned, %v", count, want, err)
	}
	for key, want := range map[string]float64{
		"vigia_probe_mesh_sent_total z0 p c n0 z0 _infra":              3 * 29,
		"vigia_probe_mesh_sent_total z1 p c n0 z0 _infra":              3*30 + 1,
		"vigia_probe_mesh_rtt_seconds z1 p c n0 z0 _infra":             3*30 + 1,
		"vigia_probe_mesh_slow_total z1 p c n0 z0 _infra":              1,
		"vigia_probe_mesh_slow_total z0 p c n0 z0 _infra":              0,
		"vigia_probe_mesh_judged_total z1 delay p c n0 z0 _infra":      3*30 + 1,
		"vigia_probe_mesh_lost_total network z0 p c n0 z0 _infra":      0,
		"vigia_probe_mesh_judged_total z0 jitter p c n0 z0 _infra":     0,
		"vigia_probe_mesh_unsteady_total z0 p c n0 z0 _infra":          0,
		"vigia_probe_mesh_delay_variation_seconds z0 p c n0 z0 _infra": 0,
	} {
		if got, ok := lookup(series, key); !ok || got != want {
			t.Errorf("%s: %v (%v), want %v", key, got, ok, want)
		}
	}
}

// TestTaxOfAMesh is added up by zones, and has no series before anything was compared.
func TestTaxOfAMesh(t *testing.T) {
	m := newMeshed(t, 35, stampprobe.Protocol{})
	const key = "vigia_probe_mesh_overlay_tax_seconds z1 p c n0 z0 _infra"
	if series, _ := m.scrape(); series == nil {
		t.Fatal("nothing is exported")
	} else if v, ok := lookup(series, key); ok {
		t.Errorf("before anything was compared: %v", v)
	}
	for _, n := range []string{"n30", "n31", "n31"} {
		m.targets[n].(*recorder).Taxed(int64(time.Microsecond))
	}
	series, _ := m.scrape()
	if v, ok := lookup(series, key); !ok || v != 3 {
		t.Errorf("%v (%v), want 3", v, ok)
	}
	if v, ok := lookup(series, strings.Replace(key, "z1", "z0", 1)); ok {
		t.Errorf("of another zone: %v", v)
	}
}

// lookup finds a series by its name and the values of its labels in any order.
func lookup(series map[string]float64, key string) (float64, bool) {
	want := strings.Fields(key)
	for k, v := range series {
		got := strings.Fields(k)
		if got[0] != want[0] || len(got) != len(want) {
			continue
		}
		left := make(map[string]int)
		for i := range got {
			left[got[i]]++
			left[want[i]]--
		}
		same := true
		for _, n := range left {
			same = same && n == 0
		}
		if same {
			return v, true
		}
	}
	return 0, false
}

// A pair that loses probes has series of its own until five minutes after it was last bad.
func TestBadPairHasSeries(t *testing.T) {
	m := newMeshed(t, 20, stampprobe.Protocol{})
	m.settle(1, vanished, "n3")
	if _, pairs := m.scrape(); len(pairs) != 0 {
		t.Errorf("after one loss: %v", pairs)
	}
	m.settle(1, vanished, "n3")
	m.settle(1, dropped, "n4")
	series, pairs := m.scrape()
	least, err := SeriesPerTarget(stampprobe.Protocol{})
	if len(pairs) != 1 || pairs["n3"] < least {
		t.Errorf("after two losses: %v", pairs)
	}
	if err != nil {
		t.Fatal(err)
	}
	atMost, err := SeriesPerTargetAtMost(stampprobe.Protocol{})
	if err != nil || pairs["n3"] > atMost {
		t.Errorf("%d series, at most %d, %v", pairs["n3"], atMost, err)
	}
	if got, want := m.states(series), "probed 19, bad 1, asked 0, exported 1, left_out 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for cause, want := range map[string]float64{"network": 2, "host": 1} {
		if got, _ := lookup(series, "vigia_probe_mesh_lost_total "+cause+" z0 z0 p c n0 _infra"); got != want {
			t.Errorf("%v lost by %s, want %v", got, cause, want)
		}
	}
	m.later(4 * time.Minute)
	if _, pairs = m.scrape(); len(pairs) != 1 {
		t.Errorf("after four minutes: %v", pairs)
	}
	m.later(time.Minute)
	if _, pairs = m.scrape(); len(pairs) != 0 {
		t.Errorf("after five minutes: %v", pairs)
	}
}

// The budget holds however many are bad, and those that have series keep them.
func TestBudgetOfPairs(t *testing.T) {
	m := newMeshed(t, 60, stampprobe.Protocol{})
	m.set(150)
	m.settle(2, vanished, "n1", "n2")
	if _, pairs := m.scrape(); len(pairs) != 2 {
		t.Fatalf("%v", pairs)
	}
	for i := 3; i < 60; i++ {
		m.settle(5, vanished, fmt.Sprint("n", i))
	}
	series, pairs := m.scrape()
	total := 0
	for _, n := range pairs {
		total += n
	}
	if len(pairs) != 3 || pairs["n1"] == 0 || pairs["n2"] == 0 || total > 150 {
		t.Errorf("%v", pairs)
	}
	if got, want := m.states(series), "probed 59, bad 59, asked 0, exported 3, left_out 56"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	m.set(0)
	if _, pairs = m.scrape(); len(pairs) != 0 {
		t.Errorf("without a budget: %v", pairs)
	}
}

// Pairs that the configuration or somebody asks for have series, those for a time.
func TestAskedPairs(t *testing.T) {
	m := newMeshed(t, 20, stampprobe.Protocol{})
	always := m.members[toward("n5")]
	always.Asked = true
	m.members[toward("n5")] = always
	m.set(1000)
	if _, pairs := m.scrape(); len(pairs) != 1 || pairs["n5"] == 0 {
		t.Errorf("%v", pairs)
	}
	if err := m.recorders.Ask("n7", MinAsk); err != nil {
		t.Fatal(err)
	}
	series, pairs := m.scrape()
	if len(pairs) != 2 || pairs["n7"] == 0 {
		t.Errorf("%v", pairs)
	}
	if got, want := m.states(series), "probed 19, bad 0, asked 2, exported 2, left_out 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var said []string
	for _, p := range m.recorders.Pairs() {
		if p.Asked != p.Exported || p.Bad || p.Unreachable {
			t.Errorf("%+v", p)
		}
		if p.Asked {
			said = append(said, p.Dst)
		}
	}
	if got := strings.Join(said, " "); got != "n5 n7" || len(m.recorders.Pairs()) != 19 {
		t.Errorf("asked for: %s, of %d pairs", got, len(m.recorders.Pairs()))
	}
	m.later(MinAsk)
	if _, pairs := m.scrape(); len(pairs) != 1 || pairs["n5"] == 0 {
		t.Errorf("when its time is over: %v", pairs)
	}
	for want, err := range map[string]error{
		`dst "n0" is no node that is probed as part of a mesh`: m.recorders.Ask("n0", MinAsk),
		"ttl 1s is out of bounds; write 1m0s to 24h0m0s":       m.recorders.Ask("n7", time.Second),
		"ttl 25h0m0s is out of bounds":                         m.recorders.Ask("n7", 25*time.Hour),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What the node counts never falls: not when a pair is gone, nor when a target becomes a pair
// or none.
func TestCountsOfTheNodeStay(t *testing.T) {
	m := newMeshed(t, 20, stampprobe.Protocol{})
	sent := func() float64 {
		series, _ := m.scrape()
		n, _ := lookup(series, "vigia_probe_mesh_sent_total z0 z0 p c n0 _infra")
		return n
	}
	m.settle(10, inTime, "n1", "n2")
	if n := sent(); n != 20 {
		t.Fatalf("%v sent", n)
	}
	m.settle(5, inTime, "n1")
	m.targets["n1"].Removed()
	delete(m.members, toward("n1"))
	m.set(1000)
	if n := sent(); n != 25 {
		t.Errorf("%v sent after a pair is gone, want 25", n)
	}
	byHand := m.members[toward("n2")]
	m.settle(3, inTime, "n2")
	delete(m.members, toward("n2"))
	m.set(1000)
	m.settle(7, inTime, "n2")
	if _, pairs := m.scrape(); pairs["n2"] < 15 {
		t.Errorf("a target that is no pair has series %v", pairs)
	}
	m.members[toward("n2")] = byHand
	m.set(1000)
	m.settle(1, inTime, "n2")
	if n := sent(); n != 29 {
		t.Errorf("%v sent, want 29: what it counted as a target of its own is not the mesh's", n)
	}
	if _, pairs := m.scrape(); pairs["n2"] != 0 {
		t.Errorf("a pair again: %v", pairs)
	}
}

// Where there are too many zones they share a series.
func TestManyZones(t *testing.T) {
	m := newMeshed(t, 30*(maxGroups+6), stampprobe.Protocol{})
	m.settle(1, inTime, "n1", fmt.Sprint("n", 30*(maxGroups+5)))
	series, _ := m.scrape()
	groups := 0
	for name := range series {
		if strings.HasPrefix(name, "vigia_probe_mesh_sent_total") {
			groups++
		}
	}
	if groups != maxGroups+1 {
		t.Errorf("%d groups, want %d", groups, maxGroups+1)
	}
	total := 0.0
	for name, v := range series {
		if strings.HasPrefix(name, "vigia_probe_mesh_sent_total") {
			total += v
		}
	}
	if total != 2 {
		t.Errorf("%v sent in all, want 2", total)
	}
}

// Metrics that a protocol has of its own are there while the pair has series.
func TestProtocolMetricsOfPairs(t *testing.T) {
	m := newMeshed(t, 5, metered{})
	own := func() (n int) {
		series, _ := m.scrape()
		for name := range series {
			if strings.HasPrefix(name, "vigia_probe_path_mtu_bytes") {
				n++
			}
		}
		return n
	}
	m.settle(1, &protocol.Probe{State: protocol.Answered, Detail: 1400.0}, "n1", "n2")
	if n := own(); n != 0 {
		t.Errorf("%d at rest", n)
	}
	m.settle(2, vanished, "n1")
	own() // series come with this scrape
	m.settle(1, &protocol.Probe{State: protocol.Answered, Detail: 1400.0}, "n1", "n2")
	if n := own(); n != 1 {
		t.Errorf("%d of a bad pair", n)
	}
	m.later(6 * time.Minute)
	own()
	if n := own(); n != 0 {
		t.Errorf("%d when it is over", n)
	}
}

// page returns the lines of the fast page that begin with a name.
func (m *meshed) page(name string) (lines []string, all int) {
	m.t.Helper()
	out := exposition.NewPage(nil)
	m.fast.Write(out, time.Now())
	var b strings.Builder
	if _, err := out.WriteTo(&b); err != nil {
		m.t.Fatal(err)
	}
	for _, line := range strings.Split(b.String(), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		all++
		if strings.HasPrefix(line, name) {
			lines = append(lines, line)
		}
	}
	return lines, all
}

// A node votes while it cannot reach another, and abstains when its host is not fit.
func TestVotesOnTheFastPage(t *testing.T) {
	m := newMeshed(t, 60, stampprobe.Protocol{})
	for n := range m.targets {
		if n != "n3" {
			m.settle(1, inTime, n)
		}
	}
	const peer, outside = "vigia_probe_unreachable_ratio", "vigia_probe_outside_unreachable_ratio"
	m.settle(2, refused, "n3")
	if lines, all := m.page(peer); len(lines) != 0 || all != 1 {
		t.Errorf("after two losses: %q, %d series", lines, all)
	}
	m.settle(1, refused, "n3")
	lines, _ := m.page(peer)
	if want := peer + `{src="n0",dst="n3",dst_rack="r0",dst_zone="z0",scope="node"} 0.1111111111111111`; len(lines) != 1 || lines[0] != want {
		t.Errorf("%q, want %s", lines, want)
	}
	m.host.unfit[health.Steal] = true
	if lines, _ := m.page(peer); len(lines) != 0 {
		t.Errorf("of a host that is not fit: %q", lines)
	}
	m.host.unfit[health.Steal] = false
	m.settle(1, inTime, "n3")
	if lines, _ := m.page(peer); len(lines) != 0 {
		t.Errorf("after an answer: %q", lines)
	}
	for i := 1; i < 9; i++ {
		m.settle(3, vanished, fmt.Sprint("n", i))
	}
	for range 3 { // all at once
		m.later(time.Second)
		for i := 1; i < 9; i++ {
			m.targets[fmt.Sprint("n", i)].Settled(vanished)
		}
	}
	if lines, all := m.page(peer); len(lines) != maxVotes || all > maxFast {
		t.Errorf("of many: %q, %d series", lines, all)
	}
	for range 3 {
		m.later(time.Second)
		for i := 1; i < 60; i++ {
			p := vanished
			if i < 10 {
				p = inTime
			}
			m.targets[fmt.Sprint("n", i)].Settled(p)
		}
	}
	lines, _ = m.page(outside)
	if want := outside + `{src="n0",src_rack="r0",src_zone="z0",scope="rack"} 0.1`; len(lines) != 1 || lines[0] != want {
		t.Errorf("%q, want %s", lines, want)
	}
	if lines, _ := m.page(peer); len(lines) != 0 {
		t.Errorf("of others, when it is its own uplink: %q", lines)
	}
}

// Probes are settled, scrapes made and members replaced at the same time.
func TestMeshAtOnce(t *testing.T) {
	m := newMeshed(t, 30, stampprobe.Protocol{})
	var wg sync.WaitGroup
	for _, r := range m.targets {
		wg.Go(func() {
			for i := range 300 {
				if i%3 == 0 {
					r.Settled(vanished)
				} else {
					r.Settled(inTime)
				}
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			if _, err := m.reg.Gather(); err != nil {
				t.Error(err)
			}
			m.recorders.Votes(maxVotes)
		}
	})
	wg.Go(func() {
		for i := range 20 {
			m.set(1000 * (i % 2))
			if err := m.recorders.Ask("n1", MinAsk); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	series, _ := m.scrape()
	if n, _ := lookup(series, "vigia_probe_mesh_sent_total z0 z0 p c n0 _infra"); n != 29*300 {
		t.Errorf("%v sent, want %d", n, 29*300)
	}
}
