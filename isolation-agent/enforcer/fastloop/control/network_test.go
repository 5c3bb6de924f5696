package control

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// guest is a port of a tenant that sends to the receiver of a network.
type guest struct {
	tenant  int
	offers  func(second float64) float64 // Mbit/s that it wants to send; it does not adapt
	adapts  bool                         // it is a TCP sender: it halves what it sends when it loses
	rate    float64                      // of a TCP sender, Mbit/s
	sender  *Sender
	sent    uint64  // bytes since the receiver last read its classifier's counts
	got     float64 // Mbit that arrived behind the receiver's scheduler
	arrives float64 // in this tick, Mbit/s
}

// network is a receiver behind a link of 100 Mbit/s and guests of tenants that send to
// it, each on a node of its own: the whole control, closed, without I/O. Messages
// take time and may be lost.
type network struct {
	t          *testing.T
	random     *rand.Rand
	guarantees []float64 // by tenant, Mbit/s
	guests     []*guest
	receiver   *Receiver
	sources    *Sources
	advices    *Advices
	readings   map[uint32]Reading
	now, start time.Time
	loss       float64       // share of notices and answers that are lost
	delay      time.Duration // of those that are not
	way        []message
	notices    int
	sequence   uint64
	lowest     float64 // limit that any sender ever set below its floor, as a share of it
}

// message is a notice or an answer on its way.
type message struct {
	at     time.Time
	arrive func()
}

func newNetwork(t *testing.T, guarantees ...float64) *network {
	n := &network{
		t: t, random: rand.New(rand.NewPCG(1, uint64(len(guarantees)))), guarantees: guarantees, receiver: NewReceiver(Vigia, 95*mbit, 2.5*mbit),
		sources: NewSources(roomForSources), advices: NewAdvices(), readings: map[uint32]Reading{}, now: time.Now(), delay: 200 * time.Microsecond, lowest: 1,
	}
	n.start = n.now
	classes := map[uint32]ClassConfig{}
	for i, g := range guarantees {
		classes[uint32(i)] = ClassConfig{Tenant: fmt.Sprint(i), GuaranteeBytesPerSecond: uint64(g * mbit)}
	}
	n.receiver.SetClasses(classes)
	return n
}

// add adds a guest that offers so much, or a TCP sender that wants so much.
func (n *network) add(tenant int, adapts bool, offers func(second float64) float64) *guest {
	g := &guest{tenant: tenant, offers: offers, adapts: adapts, rate: 1, sender: NewSender()}
	n.guests = append(n.guests, g)
	return g
}

func steadily(rate float64) func(float64) float64 { return func(float64) float64 { return rate } }

// run lets seconds pass, and returns what each guest got, as a mean in Mbit/s.
func (n *network) run(seconds float64) []float64 {
	before := make([]float64, len(n.guests))
	for i, g := range n.guests {
		before[i] = g.got
	}
	for range int(seconds * 100) {
		n.tick()
	}
	out := make([]float64, len(n.guests))
	for i, g := range n.guests {
		out[i] = (g.got - before[i]) / seconds
	}
	return out
}

func (n *network) tick() {
	n.now = n.now.Add(Tick)
	second := n.now.Sub(n.start).Seconds()
	wire := 0.0
	for _, g := range n.guests {
		g.sender.Grow(n.now)
		g.arrives = g.offers(second)
		if g.adapts {
			g.arrives = min(g.arrives, g.rate)
		}
		if list := g.sender.List(); len(list) > 0 {
			g.arrives = min(g.arrives, list[0].Rate/mbit)
		}
		wire += g.arrives
	}
	squeeze := min(1, 100/max(wire, 1)) // the wire drops alike
	arrive := make([]float64, len(n.guarantees))
	for _, g := range n.guests {
		g.arrives *= squeeze
		arrive[g.tenant] += g.arrives
		g.sent += uint64(g.arrives * mbit * Tick.Seconds())
	}
	left := scheduler(95, n.guarantees, arrive)
	for _, g := range n.guests {
		passes := 1.0
		if arrive[g.tenant] > 0 {
			passes = left[g.tenant] / arrive[g.tenant]
		}
		g.got += g.arrives * passes * Tick.Seconds()
		switch {
		case !g.adapts:
		case squeeze < 1 || passes < 0.999:
			g.rate = max(1, g.rate*0.8)
		default:
			g.rate = min(g.rate*1.05, 100)
		}
	}
	for i := range n.guarantees {
		v := n.readings[uint32(i)]
		v.Arrived += uint64(arrive[i] * mbit * Tick.Seconds())
		v.Left += uint64(left[i] * mbit * Tick.Seconds())
		n.readings[uint32(i)] = v
	}
	n.decide()
	n.deliver()
}

// decide is what the receiver's loop does in a tick.
func (n *network) decide() {
	congested := n.receiver.Sample(n.now, readingsOf(n.receiver, n.readings))
	if n.receiver.Busy(n.now) && n.sources.Due(n.now) {
		n.sources.Begin(n.now)
		for i, g := range n.guests {
			n.sources.Count(Source{Link: 1, Class: uint32(g.tenant), From: MAC{byte(i)}, Destination: Address{1}}, g.sent)
			g.sent = 0
		}
	}
	for i := range congested {
		c := &congested[i]
		top, sources := n.sources.Top(1, c.Class)
		for j := range top {
			n.notify(c, &top[j], sources)
		}
	}
}

func (n *network) notify(c *Congestion, share *Share, sources int) {
	advice := n.advices.Begin(n.now, AdviceKey{Node: fmt.Sprint(share.Source.From[0]), From: share.Source.From, To: share.Source.Destination}, c.Renewal)
	if advice == nil {
		return
	}
	rate, due := advice.Next(n.now, Vigia, c, share, sources)
	if !due {
		return
	}
	if !c.Renewal {
		advice.Congested(n.now)
	}
	n.sequence++
	advice.Sent(n.now, rate, n.sequence)
	n.notices++
	g := n.guests[share.Source.From[0]]
	floor := n.guarantees[g.tenant] * mbit / float64(max(1, sources))
	order := Order{
		LimitKey: LimitKey{Port: "p", Destination: share.Source.Destination}, Advised: rate, Measured: share.Rate, Floor: floor, Ceiling: 100 * mbit,
		Link: 100 * mbit, Severity: advice.Severity(),
	}
	n.post(func() {
		l := g.sender.Obey(n.now, order)[0]
		n.lowest = min(n.lowest, l.Rate/floor)
		rate, atFloor := l.Rate, l.AtFloor()
		n.post(func() { advice.Acknowledged(n.now, rate, atFloor) })
	})
}

func (n *network) post(arrive func()) {
	if n.random.Float64() >= n.loss {
		n.way = append(n.way, message{n.now.Add(n.delay), arrive})
	}
}

func (n *network) deliver() {
	due := n.way
	n.way = nil
	var later []message
	for _, m := range due {
		if m.at.After(n.now) {
			later = append(later, m)
			continue
		}
		m.arrive()
	}
	n.way = append(n.way, later...)
}

// TestEveryTenantKeepsItsGuarantee floods a TCP tenant in many ways and judges what it
// and the others get.
func TestEveryTenantKeepsItsGuarantee(t *testing.T) {
	pulses := func(rate, on, period float64) func(float64) float64 {
		return func(second float64) float64 {
			if second-float64(int(second/period))*period < on {
				return rate
			}
			return 0
		}
	}
	for _, tc := range []struct {
		name       string
		guarantees []float64
		floods     []func(float64) float64 // each of a guest of tenant 1 and up, in turn
		loss       float64
		delay      time.Duration
		victim     float64 // least share of its guarantee
	}{
		{"one flood of twice the link", []float64{70, 24}, []func(float64) float64{steadily(200)}, 0, 0, 0.93},
		{"one flood of ten times the link", []float64{70, 24}, []func(float64) float64{steadily(1000)}, 0, 0, 0.93},
		{"a flood just above its guarantee", []float64{70, 24}, []func(float64) float64{steadily(35)}, 0, 0, 0.93},
		{"four floods of one tenant", []float64{70, 24}, []func(float64) float64{steadily(50), steadily(50), steadily(50), steadily(50)}, 0, 0, 0.93},
		{"a large and a small flood", []float64{70, 24}, []func(float64) float64{steadily(190), steadily(10)}, 0, 0, 0.93},
		{"sixteen floods of one tenant", []float64{70, 24}, slices.Repeat([]func(float64) float64{steadily(20)}, 16), 0, 0, 0.9},
		{"half of the messages lost", []float64{70, 24}, []func(float64) float64{steadily(200)}, 0.5, 0, 0.9},
		{"messages that take 50 ms", []float64{70, 24}, []func(float64) float64{steadily(200)}, 0, 50 * time.Millisecond, 0.9},
		{"pulses of a second", []float64{70, 24}, []func(float64) float64{pulses(200, 1, 2)}, 0, 0, 0.85},
		{"pulses of 300 ms", []float64{70, 24}, []func(float64) float64{pulses(200, 0.3, 1)}, 0, 0, 0.75},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNetwork(t, tc.guarantees...)
			n.loss, n.delay = tc.loss, tc.delay
			n.add(0, true, steadily(tc.guarantees[0]))
			n.run(2) // TCP has grown
			for i, offers := range tc.floods {
				n.add(1+i%(len(tc.guarantees)-1), false, offers)
			}
			n.run(1)
			got := n.run(10)
			if got[0] < tc.victim*tc.guarantees[0] {
				t.Errorf("the victim got %.1f of its %.0f Mbit/s, of the floods %.1f", got[0], tc.guarantees[0], got[1:])
			}
			if n.lowest < 0.999 {
				t.Errorf("a sender was limited to %.2f of its floor", n.lowest)
			}
			if most := 10*(1+len(tc.floods))*int(time.Second/noticeInterval) + 100; n.notices > most {
				t.Errorf("%d notices", n.notices)
			}
		})
	}
}

// TestAnOffenderKeepsItsGuaranteeAndEverybodyElseTheirs: what floods is limited to what
// it bought, and gets it.
func TestAnOffenderKeepsItsGuaranteeAndEverybodyElseTheirs(t *testing.T) {
	n := newNetwork(t, 50, 24, 20)
	n.add(0, true, steadily(50))
	n.add(2, true, steadily(20))
	n.run(2)
	n.add(1, false, steadily(200))
	n.run(2)
	got := n.run(10)
	for i, g := range n.guests {
		if got[i] < 0.9*n.guarantees[g.tenant] {
			t.Errorf("tenant %d got %.1f of its %.0f Mbit/s", g.tenant, got[i], n.guarantees[g.tenant])
		}
	}
	if total := got[0] + got[1] + got[2]; total < 0.9*95 {
		t.Errorf("%.1f of 95 Mbit/s are used", total)
	}
}

// TestAnInnocentSenderOfAnotherTenantIsLeftAlone: only those of the congested class get
// notices.
func TestAnInnocentSenderOfAnotherTenantIsLeftAlone(t *testing.T) {
	n := newNetwork(t, 60, 20, 14)
	n.add(0, true, steadily(60))
	quiet := n.add(2, false, steadily(10))
	n.run(2)
	n.add(1, false, steadily(200))
	for range 1000 {
		n.tick()
		if quiet.sender.Len() > 0 {
			t.Fatalf("it is limited after %s", n.now.Sub(n.start))
		}
	}
}

func TestWithoutContentionTheLinkIsTheSenders(t *testing.T) {
	n := newNetwork(t, 70, 24)
	n.add(0, true, steadily(1))
	n.add(1, false, steadily(90))
	n.run(3)
	got := n.run(10)
	if got[1] < 0.97*90 {
		t.Errorf("a sender beside a tenant that takes nothing got %.1f of the 90 Mbit/s that it offers", got[1])
	}
}

// TestLimitsEndAfterTheFlood: the sender is free again, and nobody sends notices.
func TestLimitsEndAfterTheFlood(t *testing.T) {
	for _, loss := range []float64{0, 0.5} {
		n := newNetwork(t, 70, 24)
		n.loss = loss
		n.add(0, true, steadily(70))
		n.run(2)
		flood := n.add(1, false, func(second float64) float64 {
			if second < 10 {
				return 200
			}
			return 5
		})
		n.run(8)
		if flood.sender.Len() != 1 {
			t.Fatalf("loss %.1f: the flood is not limited", loss)
		}
		n.run(30)
		before := n.notices
		n.run(10)
		if flood.sender.Len() != 0 || n.notices != before {
			t.Errorf("loss %.1f: %d limits, %d notices long after the flood", loss, flood.sender.Len(), n.notices-before)
		}
	}
}

// TestAReceiverThatIsGoneHoldsNobodyBack: what it asked for ends by itself.
func TestAReceiverThatIsGoneHoldsNobodyBack(t *testing.T) {
	n := newNetwork(t, 70, 24)
	n.add(0, true, steadily(70))
	flood := n.add(1, false, steadily(200))
	n.run(3)
	if flood.sender.Len() != 1 {
		t.Fatal("the flood is not limited")
	}
	n.loss = 1
	for range 6000 {
		if n.tick(); flood.sender.Len() == 0 {
			return
		}
	}
	t.Error("a minute after the last notice the limit is still there")
}
