package fastloop

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
)

// take lets a notice of n2's live process arrive.
func (m *member) take(t *testing.T, n notice.Notice) {
	t.Helper()
	m.received(time.Now(), raw(t, n, master(masterA)))
}

// buy swaps what red and its port p1 bought.
func (m *member) buy(t *testing.T, list ...contract.Contract) {
	t.Helper()
	bought, err := contract.NewSet(list)
	if err != nil {
		t.Fatal(err)
	}
	m.scheduler.Set(m.scheduler.Desired().Links, bought)
}

func bandwidth(guarantee, ceiling float64) contract.Bandwidth {
	return contract.Bandwidth{GuaranteeBytesPerSecond: uint64(guarantee * mbit), CeilingBytesPerSecond: uint64(ceiling * mbit)}
}

// TestTheFloorOfAPair: the smaller of both guarantees.
func TestTheFloorOfAPair(t *testing.T) {
	for _, tc := range []struct {
		name          string
		send, receive float64 // guarantees, Mbit/s
		sources       uint16
		want          float64
	}{
		{"one sender", 24, 24, 1, 24},
		{"nobody counted", 24, 24, 0, 24},
		{"it may send less", 10, 24, 1, 10},
		{"it may receive less", 24, 10, 1, 10},
		{"more senders than there are", 24, 24, 60000, 24}, // red has two ports
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMember(t)
			m.meet(t, 5)
			m.buy(t, contract.Contract{Owner: contract.Owner{Tenant: "red"}, Send: bandwidth(tc.send, 100), Receive: bandwidth(tc.receive, 100)})
			n := congest(3, 1)
			n.Sources = tc.sources
			m.take(t, n)
			if got := m.kernel.pairs[n.Destination]; got.Rate != uint64(tc.want*mbit) {
				t.Errorf("limited to %.2f Mbit/s, want %.2f", float64(got.Rate)/mbit, tc.want)
			}
			if answer := m.sent(t); answer.Flags&notice.AtFloor == 0 || answer.Rate != uint64(tc.want*mbit) {
				t.Errorf("answered %+v", answer)
			}
		})
	}
}

// TestTheFloorIsNotDividedByWhatTheAskerSays: with 51 ports of a tenant, and whatever number
// of senders a notice claims, the pair keeps what it bought.
func TestTheFloorIsNotDividedByWhatTheAskerSays(t *testing.T) {
	m := newMember(t)
	s := &Site{Version: 1, Nodes: []SiteNode{{Node: "n1", Address: "127.0.0.1:1"}, {Node: "n2", Address: m.mailbox.LocalAddr().String()}}}
	for i := range 51 {
		node, port := "n2", fmt.Sprint("q", i)
		if i == 0 {
			node, port = "n1", "p1"
		}
		s.Ports = append(s.Ports, SitePort{
			Node: node, Port: port, Tenant: "red", MAC: control.MAC{2, 0, 0, 0, 1, byte(i)}.String(), IP: control.Address{192, 168, 0, byte(10 + i)}.String(),
		})
	}
	if err := m.SetSite(s, issued(t, s, master(masterA))); err != nil {
		t.Fatal(err)
	}
	m.meet(t, 5)
	for i, sources := range []uint16{0, 1, 2, 50, 60000} {
		n := congest(uint64(3+i), 1)
		n.Source, n.Destination, n.Sources = control.MAC{2, 0, 0, 0, 1, 0}, control.Address{192, 168, 0, 18}, sources
		m.take(t, n)
		if got := m.kernel.pairs[n.Destination]; got.Rate != uint64(24*mbit) {
			t.Errorf("%d sources: limited to %.2f Mbit/s, want 24", sources, float64(got.Rate)/mbit)
		}
		m.ReleaseAll()
	}
}

// TestWhatIsNotListedHoldsTheWholePort: a second address, one of IPv6, one that nobody has.
func TestWhatIsNotListedHoldsTheWholePort(t *testing.T) {
	for name, to := range map[string]control.Address{
		"a second address": {192, 168, 0, 77}, "a link-local address of IPv6": addressOf("fe80::1"), "an address elsewhere": {192, 168, 0, 1}, "nobody's": {8, 8, 8, 8},
	} {
		m := newMember(t)
		m.meet(t, 5)
		n := congest(3, 1)
		n.Destination = to
		m.take(t, n)
		answer := m.sent(t)
		if answer.Kind != notice.Ack || answer.Destination != to || answer.Rate != uint64(24*mbit) || answer.Flags&notice.AtFloor == 0 {
			t.Errorf("%s: answered %+v", name, answer)
		}
		if len(m.kernel.pairs) != 1 || m.kernel.pairs[vport.Everything].Rate != uint64(24*mbit) {
			t.Errorf("%s: in the kernel %+v", name, m.kernel.pairs)
		}
		n.Kind, n.Seq = notice.Release, 4
		m.take(t, n)
		if len(m.kernel.pairs) != 0 {
			t.Errorf("%s: after the release %+v", name, m.kernel.pairs)
		}
	}
}

// TestWithoutASourceEveryPortOfTheTenantIsHeld, all of them together at what it bought, and nobody else's.
func TestWithoutASourceEveryPortOfTheTenantIsHeld(t *testing.T) {
	m := newMember(t)
	s := wideSite()
	s.Nodes[1].Address = m.mailbox.LocalAddr().String()
	s.Ports = append(s.Ports,
		SitePort{Node: "n1", Port: "p5", Tenant: "red", MAC: "02:00:00:00:00:05", IP: "192.168.0.5"},
		SitePort{Node: "n1", Port: "b5", Tenant: "blue", MAC: "02:00:00:00:00:05", IP: "192.168.0.5"})
	m.inventory = inventory{
		"p1": {ID: "p1", Tenant: "red", Index: 1}, "p5": {ID: "p5", Tenant: "red", Index: 5}, "b5": {ID: "b5", Tenant: "blue", Index: 6},
	}
	if err := m.SetSite(s, issued(t, s, master(masterA))); err != nil {
		t.Fatal(err)
	}
	m.meet(t, 5)
	n := congest(3, 1)
	n.Source = [6]byte{}
	m.take(t, n)
	if answer := m.sent(t); answer.Kind != notice.Ack || answer.Rate != uint64(24*mbit) || answer.Flags&notice.AtFloor == 0 {
		t.Errorf("answered %+v", answer)
	}
	held := map[string]bool{}
	for _, l := range m.Limits() {
		held[l.Port] = l.Destination == control.AllDestinations && l.Rate == 12*mbit
	}
	if len(held) != 2 || !held["p1"] || !held["p5"] {
		t.Errorf("limits %+v", m.Limits())
	}
}

func TestAPortsOwnContractIsItsFloorAndCeiling(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	m.buy(t, contract.Contract{Owner: contract.Owner{Tenant: "red"}, Send: bandwidth(24, 100), Receive: bandwidth(24, 100)},
		contract.Contract{Owner: contract.Owner{Tenant: "red", Port: "p1"}, Send: bandwidth(40, 50), Receive: bandwidth(40, 50)})
	m.take(t, congest(3, 1))
	if list := m.Limits(); len(list) != 1 || list[0].Floor != 40*mbit || list[0].Ceiling != 50*mbit {
		t.Errorf("limits %+v", list)
	}
	m.buy(t, contract.Contract{Owner: contract.Owner{Tenant: "blue"}, Send: bandwidth(24, 100), Receive: bandwidth(24, 100)})
	m.ReleaseAll()
	m.take(t, congest(4, 1))
	if len(m.Limits()) != 0 || m.notices["congest authz"] != 1 {
		t.Errorf("without a contract its floor is unknown, and it is limited: %+v %v", m.Limits(), m.notices)
	}
}

func TestTheCeilingIsTheLinksAtMost(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	m.buy(t, contract.Contract{Owner: contract.Owner{Tenant: "red"}, Send: bandwidth(24, 1000), Receive: bandwidth(24, 1000)})
	m.take(t, congest(3, 5000*mbit))
	if list := m.Limits(); len(list) != 1 || list[0].Rate != 100*mbit {
		t.Errorf("limits %+v", list)
	}
}

// TestALimitOfTheWholePortTakesThePlaceOfThoseToDestinations: what goes to one of them is held to that limit alone, which
// nobody asks for any more once the asker has widened it, and which would grow.
func TestALimitOfTheWholePortTakesThePlaceOfThoseToDestinations(t *testing.T) {
	m := newMember(t)
	start := time.Now()
	m.meetBy(t, 5, start)
	whole := congest(4, 30*mbit)
	whole.Destination = control.AllDestinations
	ask := func(after time.Duration, n notice.Notice, want int) {
		t.Helper()
		m.received(start.Add(after), raw(t, n, master(masterA)))
		m.sent(t)
		if len(m.kernel.pairs) != want || len(m.Limits()) != want || len(m.scheduler.classes) > want {
			t.Errorf("after %v: in the kernel %+v, limits %+v, classes %v", after, m.kernel.pairs, m.Limits(), m.scheduler.classes)
		}
	}
	ask(0, congest(3, 60*mbit), 1)
	ask(50*time.Millisecond, whole, 2) // both are asked for
	again := congest(5, 40*mbit)
	ask(100*time.Millisecond, again, 2)
	whole.Seq = 6
	ask(590*time.Millisecond, whole, 2)
	m.kernel.err = errors.New("no")
	whole.Seq = 7
	m.received(start.Add(640*time.Millisecond), raw(t, whole, master(masterA)))
	if answer := m.sent(t); answer.Kind != notice.Nack || m.kernel.pairs[again.Destination].Rate == 0 {
		t.Errorf("the kernel refused the limit of the port, answered %+v, left %+v", answer, m.kernel.pairs)
	}
	m.kernel.err = nil
	whole.Seq = 8
	ask(650*time.Millisecond, whole, 1)
	if m.kernel.pairs[vport.Everything].Rate != uint64(30*mbit) {
		t.Errorf("in the kernel %+v", m.kernel.pairs)
	}
}

func TestTheWholePortIsLimitedForANodeThatHostsItsTenant(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	whole := congest(3, 30*mbit)
	whole.Destination = control.AllDestinations
	m.take(t, whole)
	if got := m.kernel.pairs[vport.Everything]; got.Rate != uint64(30*mbit) {
		t.Errorf("limited to %+v", m.kernel.pairs)
	}
	plain := congest(4, 0)
	plain.Destination, plain.Flags = control.AllDestinations, notice.Plain
	m.take(t, plain) // half of what it has
	if got := m.kernel.pairs[vport.Everything]; got.Rate != uint64(24*mbit) {
		t.Errorf("halved to %+v", got)
	}
	// A node without a port of the tenant has nothing to ask for.
	s := wideSite()
	s.Nodes[1].Address = m.mailbox.LocalAddr().String()
	s.Ports = append(s.Ports[:1:1], s.Ports[2:]...)
	if err := m.SetSite(s, issued(t, s, master(masterA))); err != nil {
		t.Fatal(err)
	}
	m.ReleaseAll()
	whole.Seq = 5
	m.take(t, whole)
	if len(m.kernel.pairs) != 0 || m.notices["congest authz"] != 1 {
		t.Errorf("limited for a node without the tenant: %+v, %v", m.kernel.pairs, m.notices)
	}
}

func TestAPortThatIsNotHereIsRefusedWithTheReason(t *testing.T) {
	for name, tc := range map[string]struct {
		inventory inventory
		change    func(*notice.Notice)
		want      notice.Reason
	}{
		"its interface is gone":      {inventory{}, func(*notice.Notice) {}, notice.NotHere},
		"another tenant has it now":  {inventory{"p1": ports.Port{ID: "p1", Tenant: "blue", Index: 1}}, func(*notice.Notice) {}, notice.NotHere},
		"the source is elsewhere":    {nil, func(n *notice.Notice) { n.Source[5] = 2 }, notice.NotHere},
		"a port of its name is here": {inventory{"p2": ports.Port{ID: "p2", Tenant: "red", Index: 1}}, func(n *notice.Notice) { n.Source[5] = 2 }, notice.NotHere},
		"no port of the tenant":      {inventory{}, func(n *notice.Notice) { n.Source = [6]byte{} }, notice.NotHere},
		"nobody's":                   {nil, func(n *notice.Notice) { n.Tenant = 1 }, notice.NotYours},
	} {
		m := newMember(t)
		m.meet(t, 5)
		if tc.inventory != nil {
			m.inventory = tc.inventory
		}
		n := congest(3, 30*mbit)
		tc.change(&n)
		m.take(t, n)
		if answer := m.sent(t); answer.Kind != notice.Nack || answer.Reason != tc.want || answer.Nonce != 3 || answer.Source != n.Source || answer.Destination != n.Destination {
			t.Errorf("%s: answered %+v, want the reason %d", name, answer, tc.want)
		}
	}
}

func TestGreetingsAreAnsweredAndReturned(t *testing.T) {
	m := newMember(t)
	m.take(t, notice.Notice{Kind: notice.Hello, Boot: 5, Seq: 1, Nonce: 99})
	if got := m.sent(t); got.Kind != notice.HelloAck || got.Nonce != 99 || got.Boot != m.boot {
		t.Errorf("answered %+v", got)
	}
	challenge := m.sent(t)
	if challenge.Kind != notice.Hello || challenge.Nonce == 0 {
		t.Fatalf("and sent %+v, want a challenge", challenge)
	}
	m.take(t, notice.Notice{Kind: notice.HelloAck, Boot: 5, Seq: 2, Nonce: challenge.Nonce})
	m.take(t, notice.Notice{Kind: notice.Hello, Boot: 5, Seq: 3, Nonce: 100})
	if got := m.sent(t); got.Kind != notice.HelloAck || got.Nonce != 100 {
		t.Errorf("answered %+v", got)
	}
	m.take(t, congest(4, 30*mbit))
	if got := m.sent(t); got.Kind != notice.Ack {
		t.Errorf("a process that is known is challenged again: %+v", got)
	}
}

func TestStrangersAreChallengedOnlySoOften(t *testing.T) {
	m := newMember(t)
	now := time.Now()
	for i := range 100 { // within 10 ms
		m.received(now.Add(time.Duration(i)*100*time.Microsecond), raw(t, congest(uint64(i+1), 30*mbit), master(masterA)))
	}
	if m.notices["hello sent"] != 1 || m.notices["congest stale"] != 100 {
		t.Errorf("counted %v", m.notices)
	}
	m.received(now.Add(challengeInterval), raw(t, congest(200, 30*mbit), master(masterA)))
	if m.notices["hello sent"] != 2 {
		t.Errorf("counted %v", m.notices)
	}
}

func TestAnAnswerIsTakenInAndTimed(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	var rounds []time.Duration
	m.events.Round = func(d time.Duration) { rounds = append(rounds, d) }
	start := time.Now()
	class := control.ClassConfig{Tenant: "red", GuaranteeBytesPerSecond: 24 * mbit}
	share := control.Share{Source: control.Source{From: control.MAC{2, 0, 0, 0, 0, 2}, Destination: control.Address{192, 168, 0, 1}}, Rate: 80 * mbit, Share: 1}
	m.notifySource(start, &control.Congestion{Config: class, Rate: 24 * mbit, Dropped: mbit}, &share, 1)
	asked := m.sent(t)
	answer := notice.Notice{
		Kind: notice.Ack, Boot: 5, Seq: 3, Nonce: asked.Seq, Source: asked.Source, Destination: asked.Destination, Tenant: asked.Tenant,
		Rate: asked.Rate, Flags: notice.AtFloor,
	}
	m.received(start.Add(4*time.Millisecond), raw(t, answer, master(masterA)))
	if len(rounds) != 1 || rounds[0] != 4*time.Millisecond {
		t.Errorf("rounds %v", rounds)
	}
	// It is at its floor: for a while it gets no more notices.
	m.notifySource(start.Add(50*time.Millisecond), &control.Congestion{Config: class, Rate: 24 * mbit, Dropped: mbit}, &share, 1)
	if m.notices["congest sent"] != 1 {
		t.Errorf("counted %v", m.notices)
	}
	answer.Seq, answer.Nonce = 4, 12345 // to another notice
	m.received(start.Add(60*time.Millisecond), raw(t, answer, master(masterA)))
	answer.Seq, answer.Source = 5, [6]byte{9} // of a source that nobody was asked about
	m.received(start.Add(60*time.Millisecond), raw(t, answer, master(masterA)))
	if len(rounds) != 1 {
		t.Errorf("rounds %v", rounds)
	}
}

// TestALiarNeverTakesAnybodyBelowTheFloor: whatever an authenticated peer says, red's port, which
// sends to one guest and elsewhere, may send what it bought, and nothing but it is limited.
func TestALiarNeverTakesAnybodyBelowTheFloor(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	random := rand.New(rand.NewPCG(11, 12))
	now, start := time.Now(), time.Now()
	m.kernel.offered = func(_ int, d vport.Destination) uint64 { // twice as much to p2 as elsewhere
		rate := 40.0
		if d == vport.Everything {
			rate = 20
		}
		return uint64(rate * mbit * now.Sub(start).Seconds())
	}
	pick := func(values ...uint64) uint64 { return values[random.IntN(len(values))] }
	for i := range 20_000 {
		now = now.Add(time.Duration(random.IntN(20)) * time.Millisecond)
		n := congest(uint64(i+10), 0)
		n.Kind = notice.Kind(1 + random.IntN(6))
		n.Rate, n.Measured, n.Dropped = pick(0, 1, 24*mbit, 1<<40, 1<<64-1), pick(0, 1, 1<<40, 1<<64-1), random.Uint64()
		n.Severity, n.Flags, n.Sources = uint8(random.Uint32()), uint8(random.Uint32()), uint16(random.Uint32())
		n.Lease = time.Duration(random.Int64N(1 << 40))
		if random.IntN(4) == 0 {
			n.Source[5] = byte(random.IntN(4))
		}
		if random.IntN(4) == 0 {
			n.Destination = [4]byte{192, 168, 0, byte(random.IntN(4))}
		}
		if random.IntN(8) == 0 {
			n.Destination = control.AllDestinations
		}
		if random.IntN(8) == 0 {
			n.Tenant = notice.ID([]string{"blue", "green", ""}[random.IntN(3)])
		}
		if random.IntN(20) == 0 {
			n.Boot = random.Uint64N(8)
		}
		m.received(now, raw(t, n, master(masterA)))
		m.grow(now)
		sum := 0.0
		for _, l := range m.Limits() {
			sum += l.Rate
			if l.Port != "p1" || l.Severity > 16 {
				t.Fatalf("notice %d %+v: limit %+v", i, n, l)
			}
		}
		if sum > 0 && sum < 0.99*24*mbit {
			t.Fatalf("notice %d %+v: limits %+v", i, n, m.Limits())
		}
		sum = 0
		for d, pair := range m.kernel.pairs {
			sum += float64(pair.Rate)
			if pair.TTL > outlives || (d != vport.Everything && d != vport.Destination{192, 168, 0, 2}) {
				t.Fatalf("notice %d %+v: to %v %+v is in the kernel", i, n, d, pair)
			}
		}
		if sum > 0 && sum < 0.99*24*mbit {
			t.Fatalf("notice %d %+v: in the kernel %+v", i, n, m.kernel.pairs)
		}
	}
	if m.notices["congest received"] < 1000 || m.notices["congest floor"] < 100 || m.notices["congest authz"] < 100 {
		t.Errorf("counted %v", m.notices)
	}
}

func FuzzReceived(f *testing.F) {
	f.Add([]byte("nonsense"))
	f.Add([]byte{0x76, 0x69, 1, 3})
	f.Add(make([]byte, notice.Size))
	f.Add(make([]byte, notice.Size+1))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		m := newMember(t)
		m.received(time.Now(), datagram)
		if len(m.kernel.pairs) != 0 || len(m.Limits()) != 0 {
			t.Errorf("%x limits somebody", datagram)
		}
		if m.notices["any malformed"]+m.notices["any hmac"] != 1 {
			t.Errorf("%x counts as %v", datagram, m.notices)
		}
	})
}
