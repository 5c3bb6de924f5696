package echo

import (
	"net/netip"
	"testing"

	"vigia/internal/testutil"
	"vigia/probes/accounting"
	"vigia/probes/icmp"
	"vigia/probes/protocol"
	"vigia/probes/timestamping"
)

// open opens a raw ICMP socket on loopback.
func open(t *testing.T, address string) *timestamping.Socket {
	t.Helper()
	testutil.RequireRoot(t)
	s, err := timestamping.Open(timestamping.Options{Transport: timestamping.ICMP, Local: netip.AddrPortFrom(netip.MustParseAddr(address), 0)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// bench is a session on a socket, without a network.
type bench struct {
	socket  *timestamping.Socket
	handler protocol.Handler
	session *protocol.Session
}

func newBench(t *testing.T, address string, size int) *bench {
	t.Helper()
	b := &bench{socket: open(t, address), session: &protocol.Session{Size: size, Address: netip.AddrPortFrom(netip.MustParseAddr(address), 0)}}
	b.session.Window = accounting.NewWindow[protocol.Probe](new(accounting.Counts), 1)
	table := protocol.NewTable(7)
	b.session.State = Protocol{}.NewSession(b.session)
	table.Add(b.session)
	b.handler = Protocol{}.NewHandler(&protocol.LocalClock{}, table, b.socket)
	return b
}

// answer makes an echo reply of a request, as it arrives.
func (b *bench) answer(request []byte) []byte {
	v6 := b.socket.Local().Addr().Is6()
	reply := append([]byte(nil), request...)
	reply[0] = 0
	if v6 {
		reply[0] = 129
	}
	if b.socket.Raw() && !v6 {
		reply = append(append([]byte{0x45}, make([]byte, 19)...), reply...)
	}
	return reply
}

// TestAnswersAreRead writes probes of either family and reads their answers, whole and
// damaged.
func TestAnswersAreRead(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1"} {
		b := newBench(t, address, 100)
		p := protocol.Probe{Sequence: 70_000, Sent: 1234}
		reply := b.answer(b.handler.Write(b.session, &p))
		if p.Nonce == 0 {
			t.Error("the probe has no nonce")
		}
		d := timestamping.Datagram{Payload: reply, From: b.session.Address}
		var h protocol.Header
		if got := b.handler.Header(&d, &h); got != protocol.Readable {
			t.Fatalf("%s: reading %d", address, got)
		}
		if want := (protocol.Header{ID: b.session.ID, Sequence: 70_000, Nonce: p.Nonce}); h != want {
			t.Errorf("%s: %+v, want %+v", address, h, want)
		}
		var a protocol.Answer
		if !b.handler.Read(b.session, &protocol.Arrival{Datagram: &d}, &a) || !a.OneClock || !a.Incomplete {
			t.Errorf("%s: %+v", address, a)
		}
		if b.handler.Learn(b.session, 70_000) != nil {
			t.Error("an echo tells of another probe")
		}
		reply[len(reply)-1] ^= 1
		if b.handler.Header(&d, &h) != protocol.Readable || b.handler.Read(b.session, &protocol.Arrival{Datagram: &d}, &a) {
			t.Errorf("%s: damaged padding was taken", address)
		}
		for _, short := range []int{0, 3, len(reply) - 95} {
			d.Payload = reply[:short]
			if got := b.handler.Header(&d, &h); got != protocol.Damaged {
				t.Errorf("%s: %d bytes: reading %d", address, short, got)
			}
		}
	}
}

// TestAnswersToOthers come to raw sockets, too.
func TestAnswersToOthers(t *testing.T) {
	b := newBench(t, "127.0.0.1", 64)
	p := protocol.Probe{}
	request := b.handler.Write(b.session, &p)
	icmp.Probe{ID: b.socket.Local().Port() + 1, SSID: 7}.Put(request)
	var h protocol.Header
	if got := b.handler.Header(&timestamping.Datagram{Payload: b.answer(request)}, &h); got != protocol.Foreign {
		t.Errorf("reading %d", got)
	}
}

// TestQuotedProbes are found in ICMP messages by the session's identifier.
func TestQuotedProbes(t *testing.T) {
	b := newBench(t, "127.0.0.1", 64)
	p := protocol.Probe{}
	packet := b.handler.Write(b.session, &p)
	if id, ok := b.handler.QuotedID(b.session.Address, packet[:icmp.HeaderSize+2]); !ok || id != b.session.ID {
		t.Errorf("%d, %v", id, ok)
	}
	if _, ok := b.handler.QuotedID(b.session.Address, packet[:icmp.HeaderSize+1]); ok {
		t.Error("half an identifier was read")
	}
}

func TestSizes(t *testing.T) {
	for size, good := range map[int]bool{-1: false, 0: false, 15: false, 16: true, 65507: true, 65508: false} {
		if problem, fix := (Protocol{}).CheckSize(size); (problem == "") != good || (fix == "") != good {
			t.Errorf("%d: %q %q", size, problem, fix)
		}
	}
}

// TestSearchKnowsItsOwn makes probes of a search and reads answers to them and others.
func TestSearchKnowsItsOwn(t *testing.T) {
	b := newBench(t, "127.0.0.1", 64)
	mine, other := Protocol{}.NewSearch(b.socket, 0), Protocol{}.NewSearch(b.socket, 0)
	for i, size := range []int{16, 1472, 9000} {
		request := mine.Request(uint32(i), size)
		if len(request) != size+icmp.HeaderSize {
			t.Errorf("%d bytes, want %d", len(request), size+icmp.HeaderSize)
		}
		reply := b.answer(request)
		if a, ok := mine.Parse(reply); !ok || a.Sequence != uint32(i) || a.Mask != 0 {
			t.Errorf("%+v, %v", a, ok)
		}
		if _, ok := other.Parse(reply); ok {
			t.Error("an answer to another search was taken")
		}
		reply[len(reply)-size+8] ^= 1 // the nonce
		if _, ok := mine.Parse(reply); ok {
			t.Error("an answer with another nonce was taken")
		}
	}
	if _, ok := mine.Parse(nil); ok {
		t.Error("nothing was taken for an answer")
	}
}
