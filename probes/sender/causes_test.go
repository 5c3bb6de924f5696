package sender

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"vigia/probes/accounting"
	"vigia/probes/protocol"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
)

// A virtual network lies between a session of the real engine and a real reflector: it
// loses, delays and copies packets in simulated time, and knows what it did.

// network is what happens to packets, as probabilities and spans.
type network struct {
	interval, deadline time.Duration
	latency            time.Duration // of each way
	forwardLoss        float64
	reverseLoss        float64
	outage             float64       // that a run of losses begins, on one way or the other
	forwardCopy        float64       // that a packet arrives twice
	reverseCopy        float64       // that an answer does
	overtaken          float64       // that a probe is overtaken, by up to overtakers
	overtakers         int           //
	reverseDelay       float64       // that an answer is late by up to reverseSpan
	reverseSpan        time.Duration //
	forwardLate        float64       // that a probe takes longer than the deadline
	reverseLate        float64       // that an answer does
	introduced         bool          // disorder shows before the first loss
}

// event is something that happens at a time: a packet arrives somewhere, or the engine's
// settle timer fires.
type event struct {
	at     int64
	order  int // of creation, for those at the same time
	kind   eventKind
	probe  int
	packet []byte
}

type eventKind int

const (
	atReflector eventKind = iota
	atSender
	atTimer
)

// journey is what became of a probe.
type journey struct {
	harmed, arrived bool
	answered        int64 // when its first answer came; 0 when none did
}

// virtual is the network with both ends.
type virtual struct {
	t         *testing.T
	rng       *rand.Rand
	net       network
	engine    *engine
	socket    *socket
	session   *session
	rec       *notes
	reflector *net.UDPConn
	stateless bool
	base      int64
	queue     []event
	order     int
	journeys  []journey
	outage    [2]int // packets that are still to be lost on each way
}

func newVirtual(t *testing.T, reflector *net.UDPConn, n network, size int, stateless bool, seed uint64) *virtual {
	t.Helper()
	e, err := newEngine(slog.New(slog.DiscardHandler), timestamping.ErrorBound)
	if err != nil {
		t.Fatal(err)
	}
	v := &virtual{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), net: n, engine: e, reflector: reflector, stateless: stateless,
		rec: &notes{}, base: e.clock.Now(),
	}
	tg := Target{Protocol: stampprobe.Protocol{}, Size: size, Port: stamp.Port, Interval: n.interval, Deadline: n.deadline}
	v.session = newSession(tg, &series{recorder: v.rec})
	v.session.setAddress(netip.MustParseAddr("10.0.0.1"))
	v.socket = newSocket(sockets.Key{}, nil, 0, uint16(seed%60000)+1)
	v.socket.adopt(&e.localClock, v.session)
	v.socket.readUntil = 1 << 62 // nothing waits in a buffer, and nothing is dropped there
	v.socket.dropsReadAt = v.socket.readUntil
	return v
}

func (v *virtual) add(ev event) {
	ev.order = v.order
	v.order++
	i, _ := slices.BinarySearchFunc(v.queue, ev, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), a.order-b.order) })
	v.queue = slices.Insert(v.queue, i, ev)
}

func (v *virtual) chance(p float64) bool { return p > 0 && v.rng.Float64() < p }

// undisturbed is how many probes at the beginning show the disorder of the path without a
// loss, where the numbers of answers shall be understood.
const undisturbed = 8

// run sends so many probes, and then some that nothing happens to, and waits until
// all is over.
func (v *virtual) run(probes int) {
	const tail = 12
	for i := range probes + tail {
		v.step(int64(i) * int64(v.net.interval))
		v.send(i, i < probes)
	}
	for len(v.queue) > 0 {
		v.step(v.queue[len(v.queue)-1].at)
	}
}

// step lets everything happen until a time since the beginning.
func (v *virtual) step(until int64) {
	for len(v.queue) > 0 && v.queue[0].at <= until {
		ev := v.queue[0]
		v.queue = v.queue[1:]
		switch ev.kind {
		case atTimer:
			v.engine.settleSession(v.session, v.base+ev.at)
			v.wakeAfter(ev.at)
		case atSender:
			d := timestamping.Datagram{Payload: ev.packet, From: v.session.Address}
			v.engine.arrived(v.socket, &d, v.base+ev.at)
			if j := &v.journeys[ev.probe]; j.answered == 0 {
				j.answered = ev.at
			}
		case atReflector:
			v.reflect(ev)
		}
	}
}

// wakeAfter has the settle timer fire when the engine wants it, but later than now.
func (v *virtual) wakeAfter(now int64) {
	if own := v.session.timers[settleQueue]; own.index >= 0 {
		v.add(event{at: max(own.at-v.base, now+1), kind: atTimer})
	}
}

// send sends a probe, with what the network does to it or unharmed.
func (v *virtual) send(i int, harmed bool) {
	at := int64(i) * int64(v.net.interval)
	packet := v.write(v.base + at)
	v.journeys = append(v.journeys, journey{harmed: harmed})
	if v.session.timers[settleQueue].index < 0 {
		v.engine.settle.set(v.session, onGrid(v.base+at+int64(v.net.deadline)+1))
		v.wakeAfter(at)
	}
	arrival := at + int64(v.net.latency)
	copies := 1
	switch {
	case v.net.introduced && i < undisturbed:
		v.journeys[i].harmed = false
		if i == 1 {
			copies = 2
		}
		if i == 3 {
			arrival += int64(v.net.interval) * 3 / 2
		}
	case !harmed:
	case v.lost(0, v.net.forwardLoss):
		return
	case v.net.overtakers > 0 && v.chance(v.net.overtaken):
		arrival += int64(v.rng.IntN(v.net.overtakers)+1)*int64(v.net.interval) + int64(v.net.interval)/2
	case v.chance(v.net.forwardLate):
		arrival += 2 * int64(v.net.deadline+maxGrace)
	case v.chance(v.net.forwardCopy):
		copies = 2
	}
	for c := range copies {
		v.add(event{at: arrival + int64(c)*v.rng.Int64N(int64(v.net.interval)), kind: atReflector, packet: packet, probe: i})
	}
}

// write makes a probe as the engine does.
func (v *virtual) write(now int64) []byte {
	l := launch{session: v.session}
	state := v.engine.beginProbe(&l, now)
	l.slot.Value = protocol.Probe{Sequence: l.slot.Sequence, Intended: now, SentAt: now, Sent: v.engine.clock.Realtime(now), State: state}
	v.session.Window.Handed(l.slot)
	return slices.Clone(v.socket.handler.Write(&v.session.Session, &l.slot.Value))
}

// lost decides whether a packet is lost on a way.
func (v *virtual) lost(way int, p float64) bool {
	if v.outage[way] == 0 && v.chance(v.net.outage) {
		v.outage[way] = 2 + v.rng.IntN(100)
	}
	if v.outage[way] > 0 {
		v.outage[way]--
		return true
	}
	return v.chance(p)
}

// reflect has the reflector answer a probe that has arrived there.
func (v *virtual) reflect(ev event) {
	v.t.Helper()
	j := &v.journeys[ev.probe]
	j.arrived = j.arrived || ev.at <= int64(ev.probe)*int64(v.net.interval)+int64(v.net.deadline)
	b := v.ask(ev.packet)
	if v.stateless {
		r, _ := stamp.ParseReply(b)
		r.Sequence = r.SenderSequence
		r.Put(b)
	}
	at := ev.at + int64(v.net.latency)
	copies := 1
	switch {
	case !j.harmed:
	case v.lost(1, v.net.reverseLoss):
		return
	case v.net.reverseSpan > 0 && v.chance(v.net.reverseDelay):
		at += v.rng.Int64N(int64(v.net.reverseSpan))
	case v.chance(v.net.reverseLate):
		at += 2 * int64(v.net.deadline+maxGrace)
	case v.chance(v.net.reverseCopy):
		copies = 2
	}
	for c := range copies {
		v.add(event{at: at + int64(c)*v.rng.Int64N(int64(v.net.deadline)), kind: atSender, packet: b, probe: ev.probe})
	}
}

// ask has the real reflector answer.
func (v *virtual) ask(request []byte) []byte {
	v.t.Helper()
	if _, err := v.reflector.Write(request); err != nil {
		v.t.Fatal(err)
	}
	if err := v.reflector.SetReadDeadline(time.Now().Add(patience)); err != nil {
		v.t.Fatal(err)
	}
	b := make([]byte, len(request))
	if n, err := v.reflector.Read(b); err != nil || n != len(request) {
		v.t.Fatalf("%d bytes, %v", n, err)
	}
	return b
}

// tally is how many losses had the right cause, none, or a wrong one.
type tally struct{ right, unknown, wrong, silent int }

// silent reports whether nothing could tell of a probe until it was given up: no answer
// came to one that was sent well after it.
func (v *virtual) silent(probe int) bool {
	end := int64(probe)*int64(v.net.interval) + int64(v.net.deadline) + v.session.grace
	later := probe + v.session.locator.AnswersNeeded() + 1
	for _, j := range v.journeys[min(later, len(v.journeys)):] {
		if j.answered > 0 && j.answered < end {
			return false
		}
	}
	return true
}

// judge compares the causes with what happened.
func (v *virtual) judge() (sum tally) {
	v.t.Helper()
	for _, p := range v.rec.settled {
		if p.State != protocol.Lost {
			continue
		}
		truth := accounting.Forward
		if v.journeys[p.Sequence].arrived {
			truth = accounting.Reverse
		}
		switch p.Cause {
		case truth:
			sum.right++
		case accounting.Unknown:
			if v.silent(int(p.Sequence)) {
				sum.silent++
			} else {
				sum.unknown++
			}
		default:
			sum.wrong++
			v.t.Errorf("probe %d was lost by %s, and is counted as %s", p.Sequence, truth, p.Cause)
		}
	}
	return sum
}

// dial opens a socket towards a reflector.
func dial(t *testing.T, at netip.AddrPort) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// seeds is how many networks are made up for each kind of packet.
const seeds = 60

// TestCauseIsRightOrUnknown loses, delays, swaps and copies packets at random, on both ways
// and many at a time, and demands of each loss that its cause is the true one or unknown.
// Where the true one can be known it must be, mostly.
func TestCauseIsRightOrUnknown(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		size      int
		stateless bool
		ordered   bool // the way there keeps probes in order and copies none
		slow      bool
		known     float64 // share of losses with a cause
	}{
		{name: "window in every answer", size: 84, known: 0.99},
		{name: "window and counters", size: 128, known: 0.99},
		{name: "window on demand", size: 64, known: 0.8},
		{name: "window on demand, slow", size: 64, slow: true, known: 0.95},
		{name: "window, slow", size: 84, slow: true, known: 0.99},
		{name: "numbers, in order", size: 44, ordered: true, known: 0.4},
		{name: "numbers", size: 44, known: 0.2},
		{name: "stateless", size: 44, stateless: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			reflector := dial(t, reflectOnLoopback(t))
			var sum tally
			for seed := range uint64(seeds) {
				n := randomNetwork(rand.New(rand.NewPCG(seed, uint64(tc.size))), tc.ordered, tc.slow)
				if tc.size >= 84 {
					n.introduced = false
				} else {
					n.forwardLate = 0
				}
				v := newVirtual(t, reflector, n, tc.size, tc.stateless, seed+1)
				v.run(300)
				v.engine.loop.Close()
				one := v.judge()
				if one.wrong > 0 {
					t.Fatalf("seed %d: %+v, %+v", seed, one, n)
				}
				sum.right, sum.unknown, sum.silent = sum.right+one.right, sum.unknown+one.unknown, sum.silent+one.silent
			}
			t.Logf("%+v", sum)
			if known := float64(sum.right) / float64(sum.right+sum.unknown); known < tc.known || tc.stateless && sum.right > 0 {
				t.Errorf("%.2f of the losses have a cause: %+v", known, sum)
			}
		})
	}
}

// randomNetwork makes up a network.
func randomNetwork(rng *rand.Rand, ordered, slow bool) network {
	interval := time.Duration(1+rng.IntN(20)) * time.Millisecond
	if slow {
		interval = time.Duration(100+rng.IntN(1000)) * time.Millisecond
	}
	n := network{interval: interval, deadline: interval * time.Duration(5+rng.IntN(60)), introduced: !ordered}
	if slow {
		n.deadline = 10*time.Millisecond + time.Duration(rng.Int64N(int64(2*interval)))
	}
	n.latency = time.Duration(rng.Int64N(int64(n.deadline) / 5))
	some := func(most float64) float64 { return float64(rng.IntN(2)) * rng.Float64() * most }
	n.forwardLoss, n.reverseLoss, n.outage = some(0.2), some(0.2), some(0.003)
	n.reverseCopy, n.reverseDelay = some(0.1), some(0.2)
	n.reverseSpan = n.deadline / 2
	n.forwardLate, n.reverseLate = some(0.03), some(0.03)
	if !ordered {
		n.forwardCopy = some(0.1)
	}
	if !ordered && !slow {
		n.overtaken, n.overtakers = some(0.3), 2
	}
	return n
}
