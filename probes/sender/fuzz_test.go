package sender

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
)

const (
	fuzzSSID  = 7
	fuzzEcho  = stamp.Timestamp(0xe8f0f5c1_80000000)
	fuzzSize  = 128
	fuzzCount = 4
)

// answerTo is a proper answer to probe number sequence of the fuzzed session, with
// a follow-up on the one before it.
func answerTo(sequence uint32, received int64) []byte {
	l, _ := stamp.NewLayout(stamp.Unauthenticated, fuzzSize)
	b := l.New(uint64(fuzzSize)<<32 | stamp.Port)
	stamp.Reply{
		Sequence: sequence, Timestamp: stamp.FromUnixNano(received + 5000), SSID: fuzzSSID,
		ReceiveTimestamp: stamp.FromUnixNano(received), SenderSequence: sequence, SenderTimestamp: fuzzEcho,
	}.Put(b)
	tlvs := stamp.Unauthenticated.TLVs(b)
	for tlv, whole := tlvs.Next(); tlv != nil && whole; tlv, whole = tlvs.Next() {
		tlv.SetFlags(0)
		if tlv.Type() == stamp.TypeFollowUp && sequence > 0 {
			stamp.FollowUp{Sequence: sequence - 1, Timestamp: stamp.FromUnixNano(received + 6000), Method: stamp.SoftwareLocal}.Put(tlv)
		}
	}
	return b
}

// FuzzArrived feeds arbitrary datagrams to a session with probes in flight. None
// may upset the accounts, answer more than was asked, or become a sample that
// contradicts itself.
func FuzzArrived(f *testing.F) {
	e, err := newEngine(slog.New(slog.DiscardHandler), timestamping.ErrorBound)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(e.loop.Close)
	from := netip.MustParseAddrPort("10.0.0.1:862")
	sent := e.clock.Realtime(e.clock.Now())
	for i := range uint32(fuzzCount) {
		f.Add(answerTo(i, sent+1000), answerTo(i+1, sent+2000), true)
	}
	f.Add(answerTo(0, 0), answerTo(1, 0), true)
	f.Add([]byte{}, make([]byte, 44), false)
	f.Add(make([]byte, 44), answerTo(9, sent), true)
	f.Fuzz(func(t *testing.T, first, second []byte, fromTarget bool) {
		rec := &notes{}
		ser := &series{recorder: rec}
		s := newSession(Target{Protocol: stampprobe.Protocol{}, Size: fuzzSize, Port: stamp.Port, Interval: time.Second, Deadline: time.Second}, ser)
		s.setAddress(from.Addr())
		k := newSocket(sockets.Key{}, nil, 0, fuzzSSID)
		k.adopt(&e.localClock, s)
		now := e.clock.Now()
		for range fuzzCount {
			slot := s.Window.Begin(now + int64(time.Second))
			slot.Value = protocol.Probe{
				Sequence: slot.Sequence, Intended: now, SentAt: now, Nonce: uint64(fuzzEcho),
				Stamps: delay.Stamps{T1: sent, Kernel: delay.T1, SentSteps: e.clock.Steps()},
			}
			s.Window.Handed(slot)
		}
		for _, payload := range [][]byte{first, second, first, second} {
			d := &timestamping.Datagram{Payload: payload, From: from, Stamp: sent + int64(20*time.Millisecond)}
			if !fromTarget {
				d.From = netip.MustParseAddrPort("10.0.0.2:862")
			}
			e.arrived(k, d, e.clock.Update())
			if m := ser.counts.Mismatch(s.Window.InFlight()); m != 0 {
				t.Fatalf("mismatch %d: %+v", m, ser.counts)
			}
		}
		for at, ok := s.nextSettle(0); ok && at < now+int64(10*time.Second); at, ok = s.nextSettle(0) {
			for slot := s.Window.Overdue(at + 1); slot != nil; slot = s.Window.Overdue(at + 1) {
				s.Window.Lose(slot, accounting.Unknown)
				e.lost(s, slot, accounting.Unknown)
			}
			e.settleStamps(s, at+1)
		}
		checkFuzzed(t, ser, rec, fromTarget)
		e.settle.remove(s)
	})
}

func checkFuzzed(t *testing.T, ser *series, rec *notes, fromTarget bool) {
	t.Helper()
	c := ser.counts
	if c.Sent != fuzzCount || c.Received+c.LostTotal() != fuzzCount || len(rec.settled) != fuzzCount {
		t.Fatalf("%d records, %+v", len(rec.settled), c)
	}
	if !fromTarget && (c.Received != 0 || c.Corrupt != 0 || c.Duplicate != 0) {
		t.Fatalf("a stranger's datagrams were counted: %+v", c)
	}
	for _, p := range rec.settled {
		s := p.Stamps
		if p.State == protocol.Answered && p.Verdict == delay.Good && (s.RTT() < 0 || s.Residence() < 0 || s.T4 < s.T1) {
			t.Fatalf("a sample that cannot be: %+v", s)
		}
	}
}
