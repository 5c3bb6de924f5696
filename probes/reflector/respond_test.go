package reflector

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vigia/probes/stamp"
)

var (
	alice = netip.MustParseAddrPort("10.0.0.7:40000")
	rx    = int64(1_700_000_000_123_456_789)
)

func newResponder(allow ...string) *responder {
	r := &responder{sessions: newSessionTable(64), limiter: newLimiter(16), estimate: 0x9980, ports: []uint16{8620}}
	for _, a := range allow {
		r.allow = append(r.allow, netip.MustParsePrefix(a))
	}
	r.limiter.setRate(1000)
	return r
}

func request(size int, sequence uint32, ssid uint16) []byte {
	l, ok := stamp.NewLayout(stamp.Unauthenticated, size)
	if !ok {
		panic("size")
	}
	b := l.New(5)
	stamp.Request{Sequence: sequence, Timestamp: 0x1122334455667788, ErrorEstimate: 0x0203, SSID: ssid}.Put(b)
	return b
}

func at(now int64) *arrival {
	return &arrival{from: alice, listener: 1, ttl: 61, received: rx, now: now}
}

func TestReplyFollowsTheRFC(t *testing.T) {
	r := newResponder("10.0.0.0/24")
	for sequence := range uint32(3) {
		b := request(44, 100+sequence, 0xabcd)
		res := r.respond(b, at(1))
		if res.reason != answered || res.followUp {
			t.Fatalf("%+v", res)
		}
		got, _ := stamp.ParseReply(b)
		want := stamp.Reply{
			Sequence: sequence, Timestamp: 0x1122334455667788, // written when it is sent
			ErrorEstimate: 0x9980, SSID: 0xabcd, ReceiveTimestamp: stamp.FromUnixNano(rx),
			SenderSequence: 100 + sequence, SenderTimestamp: 0x1122334455667788, SenderErrorEstimate: 0x0203, SenderTTL: 61,
		}
		got.Timestamp = want.Timestamp
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if len(b) != 44 || binary.BigEndian.Uint16(b[38:]) != 0 || b[41]|b[42]|b[43] != 0 {
			t.Errorf("reply %x: bytes that must be zero are not", b)
		}
	}
}

func TestSequenceNumbersAreOfTheSession(t *testing.T) {
	r := newResponder("10.0.0.0/24")
	ask := func(a *arrival, ssid uint16) uint32 {
		b := request(44, 0, ssid)
		r.respond(b, a)
		reply, _ := stamp.ParseReply(b)
		return reply.Sequence
	}
	ask(at(1), 1)
	if got := ask(at(1), 1); got != 1 {
		t.Errorf("second packet of a session: %d", got)
	}
	for name, f := range map[string]func() uint32{
		"another SSID":     func() uint32 { return ask(at(1), 2) },
		"another port":     func() uint32 { a := at(1); a.from = netip.MustParseAddrPort("10.0.0.7:40001"); return ask(a, 1) },
		"another address":  func() uint32 { a := at(1); a.from = netip.MustParseAddrPort("10.0.0.8:40000"); return ask(a, 1) },
		"another listener": func() uint32 { a := at(1); a.listener = 2; return ask(a, 1) },
		"after a long rest": func() uint32 {
			ask(at(1), 9)
			return ask(at(1+sessionIdle), 9)
		},
	} {
		if got := f(); got != 0 {
			t.Errorf("%s: %d, want a session of its own", name, got)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		name string
		from string
		size int
		want Reason
	}{
		{"allowed", "10.0.0.7:40000", 44, answered},
		{"allowed IPv6", "[fd00::1]:40000", 44, answered},
		{"empty", "10.0.0.7:40000", 0, Malformed},
		{"TWAMP Light", "10.0.0.7:40000", 41, answered},
		{"a byte short", "10.0.0.7:40000", 40, Malformed},
		{"from port 0", "10.0.0.7:0", 44, Malformed},
		{"not allowed", "10.0.1.7:40000", 44, NotAllowed},
		{"not allowed IPv6", "[fd01::1]:40000", 44, NotAllowed},
		{"from another reflector", "10.0.0.7:862", 44, NotAllowed},
		{"from our own port", "10.0.0.7:8620", 44, NotAllowed},
	} {
		r := newResponder("10.0.0.0/24", "fd00::/64")
		b := bytes.Repeat([]byte{0x5a}, tc.size)
		a := at(1)
		a.from = netip.MustParseAddrPort(tc.from)
		if res := r.respond(b, a); res.reason != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, res.reason, tc.want)
		}
		if tc.want != answered && !bytes.Equal(b, bytes.Repeat([]byte{0x5a}, tc.size)) {
			t.Errorf("%s: the datagram was changed", tc.name)
		}
	}
}

func TestTLVFlags(t *testing.T) {
	const header = 44
	for _, tc := range []struct{ name, in, out string }{
		{"padding", "\x80\x01\x00\x03abc", "\x00\x01\x00\x03abc"},
		{"padding with stray flags", "\xff\x01\x00\x01a", "\x00\x01\x00\x01a"},
		{"unknown type", "\x80\x63\x00\x01a", "\x80\x63\x00\x01a"},
		{"unknown type without the flag", "\x00\x63\x00\x01a", "\x80\x63\x00\x01a"},
		{"HMAC is not known here", "\x80\x08\x00\x02ab", "\x80\x08\x00\x02ab"},
		{"follow-up of the wrong length", "\x80\x07\x00\x02ab", "\x40\x07\x00\x02ab"},
		{"padding beyond the packet", "\x80\x01\x00\x09ab", "\x40\x01\x00\x09ab"},
		{"unknown beyond the packet", "\x80\x63\xff\xffab", "\xc0\x63\xff\xffab"},
		{"less than a header", "\x80\x01\x00", "\x80\x01\x00"},
		{"two and a rest", "\x80\x01\x00\x00\x80\x63\x00\x00\x80", "\x00\x01\x00\x00\x80\x63\x00\x00\x80"},
		{"follow-up, nothing known", "\x80\x07\x00\x10" + strings.Repeat("\xee", 16), "\x00\x07\x00\x10" + strings.Repeat("\x00", 16)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := append(request(44, 1, 1), tc.in...)
			if res := newResponder("10.0.0.0/24").respond(b, at(1)); res.reason != answered {
				t.Fatalf("%v", res.reason)
			}
			if got := string(b[header:]); got != tc.out {
				t.Errorf("got  %x\nwant %x", got, tc.out)
			}
		})
	}
}

func TestFollowUpsComeInOrder(t *testing.T) {
	r := newResponder("10.0.0.0/24")
	ask := func() (stamp.Reply, stamp.FollowUp, *session) {
		b := request(64, 0, 1)
		res := r.respond(b, at(1))
		if !res.followUp {
			t.Fatal("the request for a follow-up was overlooked")
		}
		reply, _ := stamp.ParseReply(b)
		tlvs := stamp.Unauthenticated.TLVs(b)
		tlv, _ := tlvs.Next()
		f, ok := stamp.ParseFollowUp(tlv)
		if !ok || tlv.Flags() != 0 {
			t.Fatalf("TLV %x", []byte(tlv))
		}
		return reply, f, res.session
	}
	_, f, s := ask()
	if f != (stamp.FollowUp{}) {
		t.Errorf("the first answer follows up on %+v", f)
	}
	pending := func(n uint32) stamp.FollowUp {
		return stamp.FollowUp{Sequence: n, Timestamp: stamp.Timestamp(1000 + n), Method: stamp.SoftwareLocal}
	}
	s.push(pending(0))
	s.push(pending(1))
	for n := range uint32(2) {
		if _, f, _ := ask(); f != pending(n) {
			t.Errorf("got %+v, want %+v", f, pending(n))
		}
	}
	if _, f, _ := ask(); f != (stamp.FollowUp{}) {
		t.Errorf("%+v was sent twice", f)
	}
	for n := range uint32(followUps + 3) { // the oldest are dropped
		s.push(pending(n))
	}
	if _, f, _ := ask(); f != pending(3) {
		t.Errorf("after an overflow got %+v, want number 3", f)
	}
}

func TestTwoFollowUpsInOnePacket(t *testing.T) {
	r := newResponder("10.0.0.0/24")
	b := request(64, 0, 1)
	b = append(b, b[44:]...)
	r.respond(b, at(1)).session.push(stamp.FollowUp{Sequence: 5, Timestamp: 7, Method: stamp.SoftwareLocal})
	again := request(64, 1, 1)
	again = append(again, again[44:]...)
	r.respond(again, at(1))
	tlvs := stamp.Unauthenticated.TLVs(again)
	var got []uint32
	for tlv, _ := tlvs.Next(); tlv != nil; tlv, _ = tlvs.Next() {
		f, _ := stamp.ParseFollowUp(tlv)
		got = append(got, uint32(f.Timestamp))
	}
	if diff := cmp.Diff([]uint32{7, 0}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRateLimitIsPerSource(t *testing.T) {
	r := newResponder("10.0.0.0/8")
	r.limiter.setRate(200) // a burst of 20
	count := func(from string, now int64, n int) (ok int) {
		for range n {
			a := at(now)
			a.from = netip.MustParseAddrPort(from)
			if r.respond(request(44, 0, 0), a).reason == answered {
				ok++
			}
		}
		return ok
	}
	if got := count("10.0.0.1:1000", 1, 100); got != 20 {
		t.Errorf("a burst of %d was answered, want 20", got)
	}
	if got := count("10.0.0.1:2000", 1, 100); got != 0 {
		t.Errorf("from another port %d were answered", got)
	}
	if got := count("10.0.0.2:1000", 1, 100); got != 20 {
		t.Errorf("another source had %d answered, want 20", got)
	}
	if got := count("10.0.0.1:1000", 1+second/20, 100); got != 10 {
		t.Errorf("50 ms later %d were answered, want 10", got)
	}
	if got := count("10.0.0.1:1000", 1+100*second, 100); got != 20 {
		t.Errorf("after a rest %d were answered, want 20", got)
	}
}

// TestTablesAreBounded lets a million sources come by and checks that a session
// that is used all the time is not displaced by those that are not.
func TestTablesAreBounded(t *testing.T) {
	table := newSessionTable(64)
	var regular *session
	key := newSessionKey(alice, 1, 1)
	for i := range uint32(100_000) {
		now := int64(i + 1)
		source := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 40000)
		table.get(newSessionKey(source, 1, 1), now)
		s := table.get(key, now)
		if regular != nil && s != regular {
			t.Fatalf("the session in use was displaced by source %d", i)
		}
		regular = s
	}
	if n := len(table.sets) * associativity; n != 256 {
		t.Errorf("the table has %d entries", n)
	}
	if l := newLimiter(sourceSets); len(l.sets)*associativity != 4096 {
		t.Errorf("the limiter has %d entries", len(l.sets)*associativity)
	}
}

func TestDisplacedSessionGetsNoForeignStamp(t *testing.T) {
	table := newSessionTable(1)
	first := table.get(newSessionKey(alice, 1, 1), 1)
	generation := first.generation
	for i := range uint16(associativity) {
		table.get(newSessionKey(alice, 10+i, 1), int64(10+i))
	}
	if first.generation == generation {
		t.Error("the entry was taken over and has the same generation")
	}
}

func TestRespondDoesNotAllocate(t *testing.T) {
	r := newResponder("10.0.0.0/24")
	b, a := request(128, 1, 1), at(1)
	allocs := testing.AllocsPerRun(1000, func() {
		a.now += second
		stamp.Request{Sequence: 1, SSID: 1}.Put(b)
		r.respond(b, a).session.push(stamp.FollowUp{Sequence: 1})
	})
	if allocs != 0 {
		t.Errorf("%v allocations per packet, want 0", allocs)
	}
}

func BenchmarkRespond(b *testing.B) {
	r := newResponder("10.0.0.0/24")
	packet, a := request(128, 1, 1), at(1)
	b.ReportAllocs()
	for b.Loop() {
		a.now += second
		r.respond(packet, a)
	}
}

// FuzzRespond throws arbitrary datagrams from arbitrary sources at one reflector
// and demands of each that the answer has the size of the question, echoes what it
// must, and leaves alone what is not its business.
func FuzzRespond(f *testing.F) {
	r := newResponder("10.0.0.0/24", "fd00::/64")
	f.Add(request(44, 1, 1), []byte{10, 0, 0, 7}, uint16(40000))
	f.Add(request(64, 1<<31, 0), []byte{10, 0, 0, 8}, uint16(1))
	f.Add(request(200, 0, 0xffff), netip.MustParseAddr("fd00::5").AsSlice(), uint16(65535))
	f.Add(append(request(44, 9, 9), "\x80\x01\xff\xff"...), []byte{10, 0, 0, 7}, uint16(2))
	f.Add(append(request(44, 9, 9), "\x80\x07\x00\x10short"...), []byte{10, 0, 0, 7}, uint16(2))
	f.Add(append(request(44, 9, 9), make([]byte, 400)...), []byte{10, 0, 0, 7}, uint16(862))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), []byte{192, 168, 0, 1}, uint16(0))
	now := int64(1)
	f.Fuzz(func(t *testing.T, b, address []byte, port uint16) {
		ip, ok := netip.AddrFromSlice(address)
		if !ok {
			ip = alice.Addr()
		}
		now += second / 100
		before := bytes.Clone(b)
		a := arrival{from: netip.AddrPortFrom(ip, port), listener: 1, ttl: 64, received: rx, now: now}
		res := r.respond(b, &a)
		if len(b) != len(before) {
			t.Fatalf("%d bytes became %d", len(before), len(b))
		}
		if res.reason != answered {
			if !bytes.Equal(b, before) {
				t.Fatalf("refused as %v, but changed", res.reason)
			}
			return
		}
		if !r.allowed(a.from) {
			t.Fatalf("answered %s", a.from)
		}
		checkEcho(t, before, b)
		res.session.push(stamp.FollowUp{Sequence: res.sequence, Timestamp: 1, Method: stamp.SoftwareLocal})
	})
}

func checkEcho(t *testing.T, question, answer []byte) {
	t.Helper()
	req, _ := stamp.ParseRequest(question)
	reply, _ := stamp.ParseReply(answer)
	if reply.SenderSequence != req.Sequence || reply.SenderTimestamp != req.Timestamp ||
		reply.SenderErrorEstimate != req.ErrorEstimate || reply.SSID != req.SSID {
		t.Fatalf("question %+v, answer %+v", req, reply)
	}
	// Beyond the base packet only flags and what is filled in may differ.
	tlvs := stamp.Unauthenticated.TLVs(question)
	mask := make([]bool, len(question))
	at := stamp.BaseSize
	for tlv, _ := tlvs.Next(); tlv != nil; tlv, _ = tlvs.Next() {
		mask[at] = true
		switch tlv.Type() {
		case stamp.TypeFollowUp, stamp.TypeReceivedWindow, stamp.TypeClassOfService, stamp.TypeDirectMeasurement:
			for i := range tlv[stamp.TLVHeaderSize:] {
				mask[at+stamp.TLVHeaderSize+i] = true
			}
		}
		at += len(tlv)
	}
	for i := stamp.BaseSize; i < len(question); i++ {
		if !mask[i] && question[i] != answer[i] {
			t.Fatalf("byte %d changed from %02x to %02x", i, question[i], answer[i])
		}
	}
}
