package stamp

import (
	"net/netip"
	"testing"
	"time"

	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
	wire "vigia/probes/stamp"
	"vigia/probes/timestamping"
)

var reflectorAt = netip.MustParseAddrPort("10.0.0.1:862")

// bench is sessions on a socket, without a network.
type bench struct {
	t       *testing.T
	env     protocol.LocalClock
	table   *protocol.Table
	handler protocol.Handler
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, table: protocol.NewTable(1)}
	b.handler = Protocol{}.NewHandler(&b.env, b.table, nil)
	return b
}

func (b *bench) session(at netip.AddrPort, size int, interval time.Duration, keys wire.Keys) *protocol.Session {
	b.t.Helper()
	s := &protocol.Session{Size: size, Port: at.Port(), Interval: interval, Deadline: time.Second, DSCP: 46, Address: at}
	s.Window = accounting.NewWindow[protocol.Probe](new(accounting.Counts), 256)
	s.State = Protocol{Keys: keys}.NewSession(s)
	b.table.Add(s)
	return s
}

// probe sends a probe and returns its packet.
func (b *bench) probe(s *protocol.Session) (packet []byte, slot *protocol.Slot) {
	slot = s.Window.Begin(1 << 60)
	slot.Value = protocol.Probe{Sequence: slot.Sequence, Sent: time.Now().UnixNano()}
	return append([]byte(nil), b.handler.Write(s, &slot.Value)...), slot
}

// take hands an answer to the handler, as the sender does.
func (b *bench) take(payload []byte, from netip.AddrPort, tos uint8) (s *protocol.Session, answer protocol.Answer, ok bool) {
	b.t.Helper()
	d := timestamping.Datagram{Payload: payload, From: from, TOS: tos}
	var h protocol.Header
	if b.handler.Header(&d, &h) != protocol.Readable {
		return nil, answer, false
	}
	s, _ = b.table.Match(from, &h)
	if s == nil {
		return nil, answer, false
	}
	a := protocol.Arrival{Datagram: &d, Realtime: time.Now().UnixNano()}
	if !b.handler.Read(s, &a, &answer) {
		return s, answer, false
	}
	sequence, _ := s.Window.Expand(h.Sequence)
	b.handler.Learn(s, sequence)
	return s, answer, true
}

// TestModesShareASocket: sessions with and without keys, at one reflector each, and both
// at one.
func TestModesShareASocket(t *testing.T) {
	b := newBench(t)
	other := netip.MustParseAddrPort("10.0.0.2:862")
	keys := testKeys(t, "5")
	open, secured, mixed := b.session(reflectorAt, 64, time.Second, ""), b.session(other, 152, time.Second, keys), b.session(reflectorAt, 152, time.Second, keys)
	for _, tc := range []struct {
		session *protocol.Session
		keys    wire.Keys
		good    bool
	}{{open, "", true}, {secured, keys, true}, {mixed, keys, false}} {
		packet, _ := b.probe(tc.session)
		got, _, ok := b.take(reflected(t, tc.keys, packet, 0, nil), tc.session.Address, 0)
		if ok != tc.good || ok && got != tc.session {
			t.Errorf("session %d: %p, %v", tc.session.ID, got, ok)
		}
	}
	// Without the session that came first, the address has the other's mode.
	b.table.Remove(open)
	packet, _ := b.probe(mixed)
	if got, _, ok := b.take(reflected(t, keys, packet, 1, nil), reflectorAt, 0); !ok || got != mixed {
		t.Error("the answer to the session that is left was not read")
	}
}

// TestStamps reads the reflector's stamps and error, and does without what it does not
// know.
func TestStamps(t *testing.T) {
	b := newBench(t)
	s := b.session(reflectorAt, 64, time.Second, "")
	b.env.Error, b.env.Synchronized = time.Microsecond, true
	packet, slot := b.probe(s)
	_, a, ok := b.take(reflected(t, "", packet, 0, nil), reflectorAt, 0)
	sent := slot.Value.Sent
	if !ok || a.T2 < sent || a.T3 < a.T2 || a.T3 > sent+int64(time.Millisecond) || a.OneClock || !a.Incomplete {
		t.Errorf("%+v, sent at %d", a, sent)
	}
	if a.ErrorBound < 2000 || a.ErrorBound > 2100 {
		t.Errorf("two clocks within 1 us each are %d ns apart", a.ErrorBound)
	}
	b.env.Synchronized = false
	packet, _ = b.probe(s)
	if _, a, _ = b.take(reflected(t, "", packet, 1, nil), reflectorAt, 0); a.ErrorBound != -1 {
		t.Errorf("a clock of unknown error is within %d ns", a.ErrorBound)
	}
	packet, _ = b.probe(s)
	reply := reflected(t, "", packet, 2, nil)
	tlvs := wire.Unauthenticated.TLVs(reply)
	v, _ := tlvs.Next()
	v.SetFlags(wire.Unrecognized)
	if _, a, ok := b.take(reply, reflectorAt, 0); !ok || a.Incomplete {
		t.Errorf("a reflector without follow-ups is waited for: %+v, %v", a, ok)
	}
}

// TestHardwareIsAskedFor in the next packet after the session has turned to it, and no
// longer after it has turned back.
func TestHardwareIsAskedFor(t *testing.T) {
	b := newBench(t)
	s := b.session(reflectorAt, 64, time.Second, "")
	for _, hardware := range []bool{false, true, true, false} {
		s.Hardware = hardware
		packet, _ := b.probe(s)
		tlvs := wire.Unauthenticated.TLVs(packet)
		v, _ := tlvs.Next()
		f, ok := wire.ParseFollowUp(v)
		if !ok || (f.Method == wire.HardwareAssist) != hardware {
			t.Errorf("hardware %v: %+v", hardware, f)
		}
	}
}

// TestFollowUps put the reflector's stamp where it belongs, by both methods, once.
func TestFollowUps(t *testing.T) {
	b := newBench(t)
	s := b.session(reflectorAt, 64, time.Second, "")
	ses := s.State.(*session)
	answer := func(number uint32) *protocol.Slot {
		_, slot := b.probe(s)
		slot.Value.State = protocol.Waiting
		ses.evidence.learn(slot.Sequence, number, &tlvAnswers{}, false)
		return slot
	}
	first, second, third := answer(5), answer(6), answer(7)
	at := wire.FromUnixNano(1_800_000_000e9)
	for _, tc := range []struct {
		f      wire.FollowUp
		want   *protocol.Slot
		far    delay.Source
		kernel delay.Points
	}{
		{wire.FollowUp{Sequence: 4, Timestamp: at, Method: wire.SoftwareLocal}, nil, 0, 0},
		{wire.FollowUp{Sequence: 5, Timestamp: at, Method: wire.SoftwareLocal}, first, delay.Kernel, delay.T2 | delay.T3},
		{wire.FollowUp{Sequence: 6, Timestamp: at, Method: wire.HardwareAssist}, second, delay.Hardware, delay.T2 | delay.T3},
		{wire.FollowUp{Sequence: 7, Timestamp: at, Method: wire.ControlPlane}, nil, 0, 0},
	} {
		got := ses.complete(&tc.f, wire.NTP)
		if got != tc.want {
			t.Errorf("%+v: %p, want %p", tc.f, got, tc.want)
		}
		if got != nil && (got.Value.Stamps.Kernel != tc.kernel || got.Value.Stamps.Far != tc.far || got.Value.Stamps.T3 == 0) {
			t.Errorf("%+v: %+v", tc.f, got.Value.Stamps)
		}
	}
	third.Value.State = protocol.Answered
	if ses.complete(&wire.FollowUp{Sequence: 7, Timestamp: at, Method: wire.SoftwareLocal}, wire.NTP) != nil {
		t.Error("a probe that has its stamps gets others")
	}
}

// TestAnswersFindTheirProbe by the reflector's number, also after it has begun to count
// anew.
func TestAnswersFindTheirProbe(t *testing.T) {
	b := newBench(t)
	s := b.session(reflectorAt, 64, time.Second, "")
	e := &s.State.(*session).evidence
	answer := func(number uint32) *protocol.Slot {
		_, slot := b.probe(s)
		e.note(slot.Sequence, number)
		return slot
	}
	ring := uint32(len(e.numbers))
	first, second := answer(7), answer(8)
	if e.answeredAs(7) != first || e.answeredAs(8) != second {
		t.Error("a probe is not found by the reflector's number")
	}
	for _, n := range []uint32{0, 9, 7 + ring, 8 + 5*ring} {
		if got := e.answeredAs(n); got != nil {
			t.Errorf("number %d finds probe %d, which was answered as %d", n, got.Sequence, got.Value.Number)
		}
	}
	if again := answer(7); e.answeredAs(7) != again {
		t.Error("after a restart of the reflector the old probe is found")
	}
}

// TestRewrittenDSCP is told apart by the way.
func TestRewrittenDSCP(t *testing.T) {
	for _, tc := range []struct {
		name     string
		received uint8 // by the reflector
		refused  bool
		got      uint8 // in the answer
		want     [2]bool
	}{
		{"kept", 46, false, 46, [2]bool{}},
		{"changed there", 0, false, 46, [2]bool{true, false}},
		{"changed back", 46, false, 0, [2]bool{false, true}},
		{"changed on both", 8, false, 0, [2]bool{true, true}},
		{"another on purpose", 46, true, 0, [2]bool{}},
	} {
		answers := tlvAnswers{hasService: true, service: wire.ClassOfService{Wanted: 46, Received: tc.received, Refused: tc.refused}}
		if got := answers.rewritten(46, tc.got); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	if got := (&tlvAnswers{}).rewritten(46, 0); got != [2]bool{} {
		t.Errorf("a reflector that does not know the TLV: %v", got)
	}
}

// TestDamagedAnswers are answers to no probe.
func TestDamagedAnswers(t *testing.T) {
	b := newBench(t)
	s := b.session(reflectorAt, 200, time.Second, "")
	secured := b.session(netip.MustParseAddrPort("10.0.0.2:862"), 200, time.Second, testKeys(t, "5"))
	for _, tc := range []struct {
		name    string
		session *protocol.Session
		keys    wire.Keys
		damage  func([]byte) []byte
	}{
		{"padding", s, "", func(r []byte) []byte { r[len(r)-1] ^= 1; return r }},
		{"longer", s, "", func(r []byte) []byte { return append(r, 0) }},
		{"shorter than a base packet", s, "", func(r []byte) []byte { return r[:30] }},
		{"not signed", secured, testKeys(t, "7"), func(r []byte) []byte { return r }},
		{"signed and changed", secured, testKeys(t, "5"), func(r []byte) []byte { r[40] ^= 1; return r }},
	} {
		packet, _ := b.probe(tc.session)
		if _, _, ok := b.take(tc.damage(reflected(t, tc.keys, packet, 0, nil)), tc.session.Address, 0); ok {
			t.Errorf("%s: the answer was taken", tc.name)
		}
	}
}

// TestQuotedProbes are found in ICMP messages by the session's identifier, which has
// another place in each mode.
func TestQuotedProbes(t *testing.T) {
	b := newBench(t)
	secured := netip.MustParseAddrPort("10.0.0.2:862")
	for _, s := range []*protocol.Session{b.session(reflectorAt, 64, time.Second, ""), b.session(secured, 152, time.Second, testKeys(t, "5"))} {
		packet, _ := b.probe(s)
		if id, ok := b.handler.QuotedID(s.Address, packet); !ok || id != s.ID {
			t.Errorf("%s: %d, %v; want %d", s.Address, id, ok, s.ID)
		}
		if _, ok := b.handler.QuotedID(s.Address, packet[:8]); ok {
			t.Errorf("%s: an identifier was read from 8 bytes", s.Address)
		}
	}
}
