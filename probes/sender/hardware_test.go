package sender

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"vigia/probes/delay"
	"vigia/probes/protocol"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
	"vigia/probes/tsinfo"
)

// everything offers hardware stamps on every device.
func everything(_ string, _ tsinfo.Mode, flows []tsinfo.Flow) ([]bool, error) {
	use := make([]bool, len(flows))
	for i := range use {
		use[i] = true
	}
	return use, nil
}

// TestHardwareThatIsNone asks for hardware stamps where the kernel has none to give: a
// veth link. Every sample must be there all the same, of the kernel's stamps.
func TestHardwareThatIsNone(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	reflect(t, right, right862)
	f := newSender(t, Options{Survey: everything})
	const n = 100
	tg := overVeth(left, n)
	tg.Interval = never // until the devices were looked at
	tg.Count = 0
	f.apply(tg)
	f.waitFor("hardware stamps to be asked for", func() (asked bool) {
		f.engine.do(func() {
			s := f.engine.series[tg.Labels].current[0]
			asked = s.Hardware && s.socket.Hardware()
		})
		return asked
	})
	tg.Interval, tg.Count = 5*time.Millisecond, n
	f.apply(tg)
	st, settled := f.finish(tg.Labels)
	mostlyGood(t, settled)
	for _, p := range settled {
		if p.Verdict == delay.Good && p.Stamps.Source != delay.Kernel {
			t.Errorf("probe %d: stamps of %v", p.Sequence, p.Stamps.Source)
		}
	}
	if st.Counts.Received != n || st.Source != delay.Kernel {
		t.Errorf("%+v, %v", st.Counts, st.Quarantined)
	}
}

// TestRealSurveyFindsSoftware looks at the devices as the program does.
func TestRealSurveyFindsSoftware(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	reflect(t, right, right862)
	f := newSender(t, Options{})
	f.SetHardware(tsinfo.Enable)
	tg := overVeth(left, 20)
	f.apply(tg)
	f.surveyOnce()
	f.engine.do(func() {
		if s := f.engine.series[tg.Labels].current[0]; s.Hardware || s.socket.Hardware() {
			t.Error("veth is taken to stamp in hardware")
		}
	})
	f.finish(tg.Labels)
}

// hardwareBench is an engine with one session whose probes a test stamps itself, as
// the kernel would with the messages of a device.
type hardwareBench struct {
	*engine
	t        *testing.T
	k        *socket
	s        *session
	rec      *notes
	received int64
}

func newHardwareBench(t *testing.T) *hardwareBench {
	t.Helper()
	e, err := newEngine(slog.New(slog.DiscardHandler), timestamping.ErrorBound)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.loop.Close)
	rec := &notes{}
	s := newSession(Target{Protocol: stampprobe.Protocol{}, Size: fuzzSize, Port: stamp.Port, Interval: time.Second, Deadline: time.Minute}, &series{recorder: rec})
	s.setAddress(netip.MustParseAddr("10.0.0.1"))
	s.Hardware = true
	k := newSocket(sockets.Key{}, nil, 0, fuzzSSID)
	k.adopt(&e.localClock, s)
	return &hardwareBench{engine: e, t: t, k: k, s: s, rec: rec}
}

const (
	cardTime = int64(100e9) // of our device's clock
	farTime  = int64(7e9)   // of the reflector's
)

// probe sends a probe, which takes 50 us there and back of which the reflector has 10,
// and answers it with stamps by the method given; sent and arrived say whether our
// device stamped it.
func (b *hardwareBench) probe(method stamp.Method, sent, arrived bool) {
	b.t.Helper()
	e := b.engine
	now := e.clock.Now()
	slot := b.s.Window.Begin(now + int64(time.Minute))
	slot.Value = protocol.Probe{Sequence: slot.Sequence, Intended: now, SentAt: now, Nonce: uint64(fuzzEcho), Stamps: delay.Stamps{SentSteps: e.clock.Steps()}}
	b.k.handed(b.s, slot.Sequence)
	b.s.Window.Handed(slot)
	system, card, far := e.clock.Realtime(now)+1000, cardTime+int64(slot.Sequence)*1e9, farTime+int64(slot.Sequence)*1e9
	e.stamped(b.k, &timestamping.Report{Stamp: system, Count: uint32(slot.Sequence)})
	d := timestamping.Datagram{From: b.s.Address, Stamp: system + 55_000}
	if arrived {
		d.Hardware = card + 50_000
	}
	if method == stamp.SoftwareLocal {
		far = system + 20_000
	}
	d.Payload = answerTo(uint32(slot.Sequence), far)
	if tlvs := stamp.Unauthenticated.TLVs(d.Payload); slot.Sequence > 0 {
		tlv, _ := tlvs.Next()
		stamp.FollowUp{Sequence: uint32(slot.Sequence - 1), Timestamp: stamp.FromUnixNano(b.received + 10_000), Method: method}.Put(tlv)
	}
	b.received = far
	e.arrived(b.k, &d, e.clock.Update()+int64(time.Millisecond))
	if sent { // the device's stamp comes last
		e.stamped(b.k, &timestamping.Report{Hardware: card, Count: uint32(slot.Sequence)})
	}
}

// TestHardwareStamps feeds the messages of a device and of a reflector that has one.
func TestHardwareStamps(t *testing.T) {
	b := newHardwareBench(t)
	for range 10 {
		b.probe(stamp.HardwareAssist, true, true)
	}
	if len(b.rec.settled) != 9 {
		t.Fatalf("%d records", len(b.rec.settled))
	}
	for _, p := range b.rec.settled {
		if p.Verdict != delay.Good || p.Stamps.Source != delay.Hardware || p.Stamps.RTT() != 40_000 {
			t.Errorf("probe %d: %s, %s, RTT %d", p.Sequence, p.Verdict, p.Stamps.Source, p.Stamps.RTT())
		}
	}
	for p := range Point(NumPoints) {
		if got := b.stamps[p]; got != [NumSources]uint64{Hardware: 9} {
			t.Errorf("%s: %v", p, got)
		}
	}
	if len(b.rec.varied) != 8 {
		t.Errorf("%d variations", len(b.rec.varied))
	}
}

// TestHardwareStampsAreNeverMixed loses stamps of either end, and lets the reflector
// change to the kernel's: no histogram, and no difference, may see both.
func TestHardwareStampsAreNeverMixed(t *testing.T) {
	b := newHardwareBench(t)
	verdicts := make(map[delay.Verdict]int)
	b.probe(stamp.HardwareAssist, true, true)
	b.probe(stamp.HardwareAssist, true, false) // tells of the first
	b.probe(stamp.HardwareAssist, false, true) // tells of one that the device did not stamp on arrival
	b.probe(stamp.HardwareAssist, true, true)  // and of one that it did not stamp on departure
	for range 150 {
		b.probe(stamp.SoftwareLocal, true, true)
	}
	b.settleStamps(b.s, b.clock.Now()+int64(time.Hour))
	for _, p := range b.rec.settled {
		verdicts[p.Verdict]++
		if p.Verdict == delay.Good && p.Stamps.RTT() != map[delay.Source]int64{delay.Hardware: 40_000, delay.Kernel: 45_000}[p.Stamps.Source] {
			t.Errorf("probe %d, %s: RTT %d", p.Sequence, p.Stamps.Source, p.Stamps.RTT())
		}
	}
	for _, v := range b.rec.varied {
		if max(v[delay.RoundTrip], -v[delay.RoundTrip]) > 1000 {
			t.Errorf("a variation of %v between stamps of two clocks", v)
		}
	}
	if verdicts[delay.Good] == 0 || verdicts[delay.MixedSource] == 0 || b.rec.changed != 1 || b.s.series.admission.Source() != delay.Kernel {
		t.Errorf("%v, %d changes", verdicts, b.rec.changed)
	}
}
