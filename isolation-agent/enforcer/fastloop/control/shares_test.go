package control

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// settled is how long after a change what is offered is known: two windows, and the reading.
const settled = 3*demandWindow + 2*Tick

// flow is what a port sends to the guests of one asking node, or elsewhere.
type flow struct {
	contract int
	port     string
	to       Address
	demand   float64
}

// house is a node with ports of several contracts and those who ask it for limits.
type house struct {
	random  *rand.Rand
	s       *Sender
	now     time.Time
	floors  []float64 // by contract
	flows   []flow
	offered map[LimitKey]uint64
	changed []time.Time // by contract: when its flows last changed
	touched []time.Time // the same, and when it last was not known what goes through which limit
	got     []float64   // by contract, of the last tick
	wants   []float64
}

const askers = 3

func guestsOf(asker int) Address { return Address{10, 0, 0, byte(asker + 1)} }

func newHouse(seed uint64) *house {
	h := &house{random: rand.New(rand.NewPCG(seed, 5)), s: NewSender(), now: time.Now(), offered: map[LimitKey]uint64{}}
	for c := range 1 + h.random.IntN(3) {
		h.floors = append(h.floors, (1+30*h.random.Float64())*mbit)
		h.touched, h.changed = append(h.touched, h.now), append(h.changed, h.now)
		for p := range 1 + h.random.IntN(8) {
			for to := range askers + 1 {
				h.flows = append(h.flows, flow{contract: c, port: fmt.Sprintf("c%dp%d", c, p), to: guestsOf(to)})
			}
		}
	}
	h.got, h.wants = make([]float64, len(h.floors)), make([]float64, len(h.floors))
	return h
}

// change has some ports send something else.
func (h *house) change() {
	for i := range h.flows {
		if h.random.IntN(4) == 0 {
			h.flows[i].demand = []float64{0, 0, 5 * h.random.Float64(), 100 * h.random.Float64()}[h.random.IntN(4)] * mbit
			h.touched[h.flows[i].contract], h.changed[h.flows[i].contract] = h.now, h.now
		}
	}
}

// key is the limit that a flow goes through.
func (h *house) key(f *flow) (LimitKey, bool) {
	for _, to := range []Address{f.to, AllDestinations} {
		if key := (LimitKey{f.port, to}); h.s.Get(key) != nil {
			return key, true
		}
	}
	return LimitKey{}, false
}

// ask has a node say anything of one port, or of all ports of a contract.
func (h *house) ask() {
	f, asker := &h.flows[h.random.IntN(len(h.flows))], h.random.IntN(askers)
	o := Order{
		Group: Group{Contract: fmt.Sprint(f.contract), Asker: fmt.Sprint(asker)}, Floor: h.floors[f.contract], Ceiling: 95 * mbit, Link: 100 * mbit,
		Advised: []float64{0, 1, 5 * mbit, 40 * mbit, 95 * mbit, 1e18}[h.random.IntN(6)], Measured: []float64{0, f.demand, 1, 1e18}[h.random.IntN(4)],
		Severity: uint8(h.random.IntN(20)),
	}
	var orders []Order
	whole := h.random.IntN(3) == 0
	for i := range h.flows {
		to := &h.flows[i]
		if to.contract != f.contract || to.to != guestsOf(asker) || (!whole && to.port != f.port) {
			continue
		}
		o.LimitKey = LimitKey{to.port, to.to}
		if whole || h.random.IntN(3) == 0 {
			o.Destination = AllDestinations
		}
		orders = append(orders, o)
	}
	if h.random.IntN(50) == 0 {
		h.s.Release(h.now, o.Group, orders[0].LimitKey)
		return
	}
	for i := range orders {
		key := orders[i].LimitKey
		if d := h.s.demands[key]; h.s.Get(key) == nil && (d == nil || !d.known || d.at.Before(h.changed[f.contract].Add(settled))) {
			h.touched[f.contract] = h.now // what it is offered now has to be counted first
		}
	}
	h.s.Obey(h.now, orders...)
}

// read counts a limit, which fails now and then: what it is offered is not known until the next time.
func (h *house) read(key LimitKey) (uint64, bool) {
	if h.random.IntN(500) > 0 {
		return h.offered[key], true
	}
	for i := range h.flows {
		if f := &h.flows[i]; f.port == key.Port {
			h.touched[f.contract] = h.now
		}
	}
	return 0, false
}

// tick lets everything send for a tick.
func (h *house) tick() {
	h.now = h.now.Add(Tick)
	before := map[int]LimitKey{}
	for i := range h.flows {
		before[i], _ = h.key(&h.flows[i])
	}
	for range h.random.IntN(3) {
		if h.random.IntN(3) > 0 { // else it is lost
			h.ask()
		}
	}
	h.s.Measure(h.now, h.read)
	h.s.Grow(h.now)
	through := map[LimitKey]float64{}
	owner := map[LimitKey]int{}
	clear(h.got)
	clear(h.wants)
	for i := range h.flows {
		f := &h.flows[i]
		h.wants[f.contract] += f.demand
		key, limited := h.key(f)
		if key != before[i] {
			h.touched[f.contract] = h.now
		}
		if !limited {
			h.got[f.contract] += f.demand
			continue
		}
		through[key] += f.demand
		owner[key] = f.contract
	}
	for key, rate := range through {
		h.offered[key] += uint64(rate * Tick.Seconds())
		h.got[owner[key]] += min(rate, h.s.Get(key).Rate)
	}
}

// TestAContractHasItsGuaranteeWhateverIsOrdered: over random ports, notices, liars and losses
// all ports of a contract together send what they want, or what it bought.
func TestAContractHasItsGuaranteeWhateverIsOrdered(t *testing.T) {
	looked, held := 0, 0
	for seed := range uint64(40) {
		h := newHouse(seed)
		for tick := range 1000 {
			if tick%80 == 0 {
				h.change()
			}
			h.tick()
			for c, floor := range h.floors {
				if h.now.Sub(h.touched[c]) < settled {
					continue
				}
				looked++
				if h.got[c] < 0.999*h.wants[c] {
					held++
				}
				if want := min(h.wants[c], floor); h.got[c] < 0.98*want {
					t.Fatalf("seed %d, tick %d: contract %d sends %.3f Mbit/s of %.3f, and bought %.3f", seed, tick, c, h.got[c]/mbit, h.wants[c]/mbit, floor/mbit)
				}
			}
		}
	}
	if looked < 10_000 || held < 2_000 {
		t.Errorf("only %d times was a contract looked at, and %d times it was held", looked, held)
	}
}

// TestAGuaranteeDoesNotMultiply: however many ports and destinations a contract sends from and
// to, a node that has no more than the guarantee to give gets no more.
func TestAGuaranteeDoesNotMultiply(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 6))
		s, now := NewSender(), time.Now()
		floor := (1 + 30*random.Float64()) * mbit
		demands, offered := map[LimitKey]float64{}, map[LimitKey]uint64{}
		for p := range 1 + random.IntN(40) {
			for d := range 1 + random.IntN(5) {
				demands[LimitKey{fmt.Sprint(p), Address{10, 0, 0, byte(d)}}] = 50 * mbit * random.Float64()
			}
		}
		for tick := range 300 {
			now = now.Add(Tick)
			for key, demand := range demands {
				if s.Get(key) == nil || random.IntN(20) == 0 { // what arrives, in proportion, is short of the guarantee
					o := Order{LimitKey: key, Group: Group{"red", "n2"}, Advised: 0.9 * floor / float64(len(demands)), Floor: floor, Ceiling: 95 * mbit, Link: 100 * mbit, Severity: 1}
					o.Measured = demand
					s.Obey(now, o)
				}
				offered[key] += uint64(demand * Tick.Seconds())
			}
			s.Measure(now, func(key LimitKey) (uint64, bool) { return offered[key], true })
			var rates, got, wants float64
			for _, l := range s.List() {
				rates, got, wants = rates+l.Rate, got+min(l.Rate, demands[l.LimitKey]), wants+demands[l.LimitKey]
			}
			if math.Abs(rates/floor-1) > 0.011 {
				t.Fatalf("seed %d, tick %d: %d limits let through %.3f Mbit/s of a guarantee of %.3f", seed, tick, s.Len(), rates/mbit, floor/mbit)
			}
			if tick > 20 && got < 0.98*min(floor, wants) {
				t.Fatalf("seed %d, tick %d: %.3f Mbit/s are sent of %.3f, guaranteed are %.3f", seed, tick, got/mbit, wants/mbit, floor/mbit)
			}
		}
	}
}

// group sets up ports of one contract that are offered so much, in Mbit/s, asked for by one node.
type group struct {
	*Sender
	now     time.Time
	demands []float64
	asker   string
}

func keyOf(i int) LimitKey { return LimitKey{fmt.Sprint("p", i), AllDestinations} }

func newGroup(demands ...float64) *group {
	return &group{NewSender(), time.Now(), demands, "n2"}
}

func (g *group) order(i int, advised float64) []*Limit {
	return g.Obey(g.now, Order{
		LimitKey: keyOf(i), Group: Group{"red", g.asker}, Advised: advised * mbit, Measured: g.demands[i] * mbit, Floor: 24 * mbit, Ceiling: 95 * mbit, Link: 100 * mbit, Severity: 1,
	})
}

// count lets two windows pass.
func (g *group) count() {
	bytes := make([]float64, len(g.demands))
	for range 2 {
		g.now = g.now.Add(demandWindow)
		g.Measure(g.now, func(key LimitKey) (uint64, bool) {
			var i int
			if _, err := fmt.Sscanf(key.Port, "p%d", &i); err != nil {
				return 0, false
			}
			bytes[i] += g.demands[i] * mbit * demandWindow.Seconds()
			return uint64(bytes[i]), true
		})
	}
}

func (g *group) rates() (out []float64) {
	for i := range g.demands {
		rate := 0.0
		if l := g.Get(keyOf(i)); l != nil {
			rate = math.Round(l.Rate/mbit*10) / 10
		}
		out = append(out, rate)
	}
	return out
}

func TestAFloorIsSharedByWhatPortsSend(t *testing.T) {
	for name, tc := range map[string]struct {
		demands, advised []float64
		want             string
	}{
		"one port":                     {[]float64{80}, []float64{1}, "[24]"},
		"alike":                        {[]float64{80, 80}, []float64{1, 1}, "[12 12]"},
		"by what they send":            {[]float64{90, 30}, []float64{1, 1}, "[17.9 6.1]"},
		"one is idle":                  {[]float64{80, 0}, []float64{1, 1}, "[23.8 0.2]"},
		"all are idle":                 {[]float64{0, 0, 0}, []float64{1, 1, 1}, "[8 8 8]"},
		"advice above all floors":      {[]float64{80, 80}, []float64{40, 20}, "[40 20]"},
		"advice for one, not another":  {[]float64{80, 80}, []float64{40, 0.1}, "[28.1 12]"},
		"advice for who does not send": {[]float64{80, 0}, []float64{0.1, 24}, "[23.8 0.3]"},
	} {
		g := newGroup(tc.demands...)
		for i, advised := range tc.advised {
			g.order(i, advised)
		}
		g.count()
		if got := fmt.Sprint(g.rates()); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestWhatAnAskerSaysOfPortsCountsUntilTheyAreCounted, and no longer.
func TestWhatAnAskerSaysOfPortsCountsUntilTheyAreCounted(t *testing.T) {
	g := newGroup(80, 80)
	g.order(0, 1)
	first := g.rates()
	g.demands[1] = 1e9 // it says
	if changed := g.order(1, 1); len(changed) != 2 || changed[0].Port != "p1" || changed[1].Port != "p0" {
		t.Fatalf("changed %+v", changed)
	}
	if got := fmt.Sprint(first, g.rates()); got != "[24 0] [10.7 13.3]" { // no more than the link is believed
		t.Errorf("rates %s", got)
	}
	g.demands[1] = 0
	g.count()
	if got := fmt.Sprint(g.rates()); got != "[23.8 0.2]" {
		t.Errorf("counted: %s", got)
	}
	g.Release(g.now, Group{"red", "n2"}, keyOf(1)) // what was counted is remembered
	if got := fmt.Sprint(g.rates()); got != "[24 0]" {
		t.Errorf("released: %s", got)
	}
	g.demands[1] = 1e9
	g.order(1, 1)
	if got := fmt.Sprint(g.rates()); got != "[24 0.2]" { // less by so little is not worth a change
		t.Errorf("asked for again: %s", got)
	}
}

// TestAPortThatSeveralNodesAskForHasTheLowest, and each of them takes back only its own order.
func TestAPortThatSeveralNodesAskForHasTheLowest(t *testing.T) {
	g := newGroup(80)
	g.order(0, 60)
	g.asker = "n3"
	g.order(0, 40)
	g.asker = "n4"
	g.order(0, 50)
	if got := fmt.Sprint(g.rates()); got != "[40]" {
		t.Errorf("three ask: %s", got)
	}
	for _, step := range []struct {
		asker, want string
		over        bool
	}{{"n5", "[40]", false}, {"n3", "[50]", false}, {"n4", "[60]", false}, {"n2", "[0]", true}, {"n2", "[0]", false}} {
		if _, over := g.Release(g.now, Group{"red", step.asker}, keyOf(0)); over != step.over || fmt.Sprint(g.rates()) != step.want {
			t.Errorf("%s takes it back: %v, over %v, want %s", step.asker, g.rates(), over, step.want)
		}
	}
	if g.Len() != 0 || len(g.holds) != 0 || len(g.groups) != 0 {
		t.Errorf("left: %v %v %v", g.limits, g.holds, g.groups)
	}
}

// TestTwoNodesCannotTakeAFloorByAskingForDifferentPorts: each says that the other's port is the one.
func TestTwoNodesCannotTakeAFloorByAskingForDifferentPorts(t *testing.T) {
	g := newGroup(50, 50)
	for _, asker := range []string{"n2", "n3"} {
		g.asker = asker
		for i := range g.demands {
			advised := 0.001
			if (i == 0) == (asker == "n2") {
				advised = 24
			}
			g.order(i, advised)
		}
	}
	g.count()
	if got := fmt.Sprint(g.rates()); got != "[12 12]" {
		t.Errorf("both together leave %s", got)
	}
}

// TestAWholePortReplacesOnlyWhatItsOwnAskerHeldOfIt.
func TestAWholePortReplacesOnlyWhatItsOwnAskerHeldOfIt(t *testing.T) {
	s := NewSender()
	now := time.Now()
	one, other := Address{10, 0, 0, 1}, Address{10, 0, 0, 2}
	held := func(port string, to Address, asker string) Order {
		return Order{LimitKey: LimitKey{port, to}, Group: Group{"red", asker}, Advised: 30 * mbit, Floor: 24 * mbit, Ceiling: 95 * mbit, Link: 100 * mbit, Severity: 1}
	}
	for _, o := range []Order{held("p0", one, "n2"), held("p0", other, "n2"), held("p0", other, "n3"), held("p1", one, "n2")} {
		s.Obey(now, o)
	}
	for _, narrow := range []Order{held("p0", one, "n2"), held("p1", other, "n3")} {
		if got := s.Replaced(now, &narrow); got != nil {
			t.Errorf("%v replaces %v", narrow.LimitKey, got)
		}
	}
	whole := held("p0", AllDestinations, "n2")
	s.Obey(now, whole)
	if got := s.Replaced(now, &whole); got != nil {
		t.Errorf("%v, which their asker just asked for, are replaced", got)
	}
	now = now.Add(steady)
	got := s.Replaced(now, &whole)
	if len(got) != 2 || got[0].Port != "p0" || got[1].Port != "p0" {
		t.Fatalf("%v", got)
	}
	for _, key := range got {
		if _, over := s.Release(now, whole.Group, key); over != (key.Destination == one) {
			t.Errorf("%v is over: %v", key, over)
		}
	}
	if s.Replaced(now, &whole) != nil || s.Len() != 3 { // p0's to the other for n3, p1's, and the whole of p0
		t.Errorf("left %+v", s.List())
	}
}

// TestANoticeOfSeveralPortsIsAboutAllOfThemTogether.
func TestANoticeOfSeveralPortsIsAboutAllOfThemTogether(t *testing.T) {
	s, now := NewSender(), time.Now()
	var orders []Order
	for i := range 4 {
		orders = append(orders, Order{LimitKey: keyOf(i), Group: Group{"red", "n2"}, Advised: 40 * mbit, Measured: 80 * mbit, Floor: 24 * mbit, Ceiling: 95 * mbit, Link: 100 * mbit})
	}
	sum := 0.0
	for _, l := range s.Obey(now, orders...) {
		sum += l.Rate
	}
	if !near(sum, 40*mbit) {
		t.Errorf("together %.2f Mbit/s, want 40", sum/mbit)
	}
}

// TestAGroupGrowsAsOneAndEnds: many ports do not get back a link any faster than one does.
func TestAGroupGrowsAsOneAndEnds(t *testing.T) {
	for _, ports := range []int{1, 2, 10, 50} {
		g := newGroup(make([]float64, ports)...)
		for i := range ports {
			g.demands[i] = 80
			g.order(i, 0.01)
		}
		g.now = g.now.Add(steady)
		last, steps := 24.0, 0
		for ; g.Len() > 0 && steps < 200; steps++ {
			g.now = g.now.Add(growInterval)
			changed, over := g.Grow(g.now)
			sum := 0.0
			for _, l := range g.List() {
				sum += l.Rate / mbit
			}
			if len(over) == 0 && (len(changed) != ports || sum <= last || sum > last*1.08) {
				t.Fatalf("%d ports, step %d: %d changed, from %.2f to %.2f Mbit/s", ports, steps, len(changed), last, sum)
			}
			last = sum
		}
		if steps < 10 || steps > 60 {
			t.Errorf("%d ports: over after %d steps", ports, steps)
		}
	}
}

// TestWhatIsRememberedIsBounded: of limits that are over, what they were offered goes after a while.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	g := newGroup(80, 10)
	g.order(0, 1)
	g.order(1, 1)
	g.count()
	for i := range g.demands {
		g.End(keyOf(i))
	}
	none := func(LimitKey) (uint64, bool) { return 0, false }
	if g.Measure(g.now.Add(demandKept/2), none); len(g.Sender.demands) != 2 {
		t.Errorf("%d are remembered", len(g.Sender.demands))
	}
	if g.Measure(g.now.Add(2*demandKept), none); len(g.Sender.demands) != 0 {
		t.Errorf("%d are remembered for ever", len(g.Sender.demands))
	}
}
