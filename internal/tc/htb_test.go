package tc

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"vigia/internal/netlink"
)

func TestHandlesAreWrittenAsTheToolWritesThem(t *testing.T) {
	for h, want := range map[Handle]string{
		Root: "root", MakeHandle(0x1150, 0): "1150:0", MakeHandle(1, 0x72dc): "1:72dc", Clsact: "ffff:fff1", 0: "0:0",
	} {
		if got := h.String(); got != want {
			t.Errorf("%#x is written %s, want %s", uint32(h), got, want)
		}
	}
	for range 1000 {
		major, minor := uint16(rand.Uint32()), uint16(rand.Uint32())
		if h := MakeHandle(major, minor); h.Major() != major || h.Minor() != minor {
			t.Fatalf("%x:%x comes back as %x:%x", major, minor, h.Major(), h.Minor())
		}
	}
}

// TestBurstsComeBackFromTicks holds how much of a burst is lost when it is kept as time.
func TestBurstsComeBackFromTicks(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		burst, rate := r.Uint32N(1<<24), 1+r.Uint64N(1<<(1+r.Uint64N(40)))
		ticks := burstTicks(burst, rate)
		if ticks == math.MaxUint32 { // it takes longer than the field can say
			if float64(burst)/float64(rate) < 274 { // 2^32 ticks of 64 ns
				t.Fatalf("%d bytes at %d bytes/s are cut", burst, rate)
			}
			continue
		}
		back := ticksBurst(ticks, rate)
		tick := float64(rate) * 64e-9 // bytes of a tick
		if back > burst+1 || float64(burst)-float64(back) > tick+1 {
			t.Fatalf("%d bytes at %d bytes/s come back as %d; a tick is %.1f bytes", burst, rate, back, tick)
		}
	}
	if burstTicks(1000, 0) != 0 || ticksBurst(1000, 0) != 0 {
		t.Error("without a rate there is no time")
	}
	if ticksBurst(math.MaxUint32, math.MaxUint64) != math.MaxUint32 {
		t.Error("what does not fit is not cut")
	}
}

// message is an RTM_NEWTCLASS or RTM_NEWQDISC as the kernel writes it.
func message(t testing.TB, fill func(e *netlink.Encoder)) []byte {
	t.Helper()
	e := netlink.NewEncoder(tcmsg(7, MakeHandle(ours, 3), Root, uint32(MakeHandle(9, 0))))
	fill(e)
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func htbClass(t testing.TB) []byte {
	return message(t, func(e *netlink.Encoder) {
		e.String(1, "htb") // TCA_KIND
		e.Nested(2, func() {
			e.Bytes(tcaHTBParms, htbOpt(&Class{Rate: 1000, Ceil: 2000, Burst: 500, Quantum: 77, Prio: 3}))
			e.Uint64(tcaHTBRate64, 1<<40)
			e.Uint64(tcaHTBCeil64, 1<<41)
		})
		e.Nested(7, func() { // TCA_STATS2
			basic := binary.NativeEndian.AppendUint64(nil, 1<<33)
			e.Bytes(tcaStatsBasic, binary.NativeEndian.AppendUint32(basic, 9))
			e.Uint64(tcaStatsPkt64, 1<<34)
			queue := binary.NativeEndian.AppendUint32(nil, 1)
			e.Bytes(tcaStatsQueue, binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(queue, 2), 3))
		})
	})
}

func TestAClassIsReadWhole(t *testing.T) {
	k, err := parseClass(htbClass(t))
	if err != nil {
		t.Fatal(err)
	}
	k.Burst = 0 // of a rate of 64 bits
	want := Class{
		Link: 7, Handle: MakeHandle(ours, 3), Parent: Root, Kind: "htb", Leaf: MakeHandle(9, 0), Rate: 1 << 40, Ceil: 1 << 41, Quantum: 77, Prio: 3,
		Stats: Stats{Bytes: 1 << 33, Packets: 1 << 34, Queued: 1, Backlog: 2, Drops: 3},
	}
	if k != want {
		t.Errorf("%+v, want %+v", k, want)
	}
}

// TestMessagesThatAreCutAreNoOthers cuts real ones anywhere: it is an error, or less is
// said, never something else.
func TestMessagesThatAreCutAreNoOthers(t *testing.T) {
	class := htbClass(t)
	whole, err := parseClass(class)
	if err != nil {
		t.Fatal(err)
	}
	qdisc := message(t, func(e *netlink.Encoder) {
		e.String(1, "htb")
		e.Nested(2, func() { e.Bytes(tcaHTBInit, htbGlob(0x22)) })
	})
	filter := message(t, func(e *netlink.Encoder) {
		e.String(1, "bpf")
		e.Nested(2, func() {
			e.String(tcaBPFName, "vigia")
			e.Uint32(tcaBPFID, 5)
			e.Nested(tcaBPFAct, func() { e.Nested(1, func() { redirectAction(e, 42) }) })
		})
	})
	if f, err := parseFilter(filter); err != nil || f.Redirect != 42 || f.Program != 5 || f.Name != "vigia" {
		t.Fatalf("%+v, %v", f, err)
	}
	for n := range class {
		k, err := parseClass(class[:n])
		if n < sizeofTcmsg && err == nil {
			t.Errorf("%d bytes are a class", n)
		}
		if err == nil && (k.Rate != 0 && k.Rate != whole.Rate && k.Rate != 1000 || k.Stats.Bytes != 0 && k.Stats.Bytes != whole.Stats.Bytes) {
			t.Errorf("%d bytes are another class: %+v", n, k)
		}
	}
	for n := range qdisc {
		if q, err := parseQdisc(qdisc[:n]); err == nil && q.Default != 0 && q.Default != 0x22 {
			t.Errorf("%d bytes are another qdisc: %+v", n, q)
		}
	}
	for n := range filter {
		if f, err := parseFilter(filter[:n]); err == nil && f.Redirect != 0 && f.Redirect != 42 {
			t.Errorf("%d bytes are another filter: %+v", n, f)
		}
	}
}
