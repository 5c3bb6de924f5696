package classify

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"

	"github.com/cilium/ebpf"

	"vigia/internal/testutil"
	"vigia/internal/testutil/frame"
)

// openFor opens programs with room for so many classes.
func openFor(t testing.TB, dir string, classes int) *Programs {
	t.Helper()
	p, err := Open(dir, classes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// overVNI is a frame of a VXLAN network.
func overVNI(vni uint32) []byte { return outer(4789, frame.VXLAN(vni, inner())) }

// TestArrivalsOfMoreClassesThanABatch reads them all, each once.
// arrivals puts what came for every class into into.
func arrivals(p *Programs, into map[Class]Arrival) error {
	list, err := p.Arrivals(nil)
	for _, a := range list {
		into[a.Class] = a.Arrival
	}
	return err
}

func TestArrivalsOfMoreClassesThanABatch(t *testing.T) {
	const classes = 2*classBatch + 7
	p := openFor(t, testutil.NewBPFFS(t), classes)
	matches := make(map[Match]uint32)
	for i := range uint32(classes) {
		matches[Match{Network: VXLAN, ID: i + 1}] = classA + i
	}
	if _, err := p.SetMatches(matches); err != nil {
		t.Fatal(err)
	}
	size := uint64(len(overVNI(1)))
	want := make(map[Class]Arrival)
	for i := range uint32(classes) {
		n := 1 + i%3
		for range n {
			run(t, p.Receive(), overVNI(i+1))
		}
		want[Class{loopback, classA + i}] = Arrival{Bytes: uint64(n) * size, Packets: uint64(n)}
	}
	got := make(map[Class]Arrival)
	for range 2 {
		clear(got)
		if err := arrivals(p, got); err != nil {
			t.Fatal(err)
		}
		if len(got) != classes {
			t.Fatalf("%d classes of %d", len(got), classes)
		}
		for class, arrival := range want {
			if got[class] != arrival {
				t.Errorf("class %x: %+v, want %+v", class.ID, got[class], arrival)
			}
		}
	}
	// Behind devices that are gone nothing is kept.
	if err := p.Prune(func(c Class) bool { return c.ID%2 == 0 }); err != nil {
		t.Fatal(err)
	}
	clear(got)
	if err := arrivals(p, got); err != nil {
		t.Fatal(err)
	}
	for class := range want {
		if _, kept := got[class]; kept != (class.ID%2 == 0) {
			t.Errorf("class %x kept: %v", class.ID, kept)
		}
	}
}

// TestASuperFrameArrivesAsTheQueueReckonsIt takes the kernel's estimate of the wire.
func TestASuperFrameArrivesAsTheQueueReckonsIt(t *testing.T) {
	const wireLen, gsoSegs, gsoSize, size = 160, 164, 176, 192 // offsets in struct __sk_buff
	p := open(t, map[Match]uint32{{VXLAN, 110, vmNone}: classA})
	data := overVNI(110)
	context := make([]byte, size)
	binary.NativeEndian.PutUint32(context[wireLen:], 1234)
	binary.NativeEndian.PutUint32(context[gsoSegs:], 5)
	binary.NativeEndian.PutUint32(context[gsoSize:], 100)
	if _, err := p.Receive().Run(&ebpf.RunOptions{Data: data, Context: context}); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Arrived(loopback, classA); err != nil || got != (Arrival{Bytes: 1234, Packets: 5}) {
		t.Errorf("arrived %+v, %v", got, err)
	}
	run(t, p.Receive(), data)
	if got, err := p.Arrived(loopback, classA); err != nil || got != (Arrival{Bytes: 1234 + uint64(len(data)), Packets: 6}) {
		t.Errorf("with a frame by itself: %+v, %v", got, err)
	}
}

// TestSourcesAreBoundedAndClassesStayExact has many more senders than there is room for:
// those that came first are told apart, and the rest is one.
func TestSourcesAreBoundedAndClassesStayExact(t *testing.T) {
	p := open(t, map[Match]uint32{{Plain, 0, vmB}: classB})
	most := int(p.objects.ClassSource.MaxEntries())
	total := 3 * most
	to := AddressOf(net.ParseIP("192.168.0.2"))
	for round := range 2 { // what was taken is forgotten: there is room again
		for i := range total {
			from := MACAddress{2, 9, byte(round), byte(i >> 16), byte(i >> 8), byte(i)}
			run(t, p.Receive(), ethernet(vmB, from, frame.TypeIPv4, guests()))
		}
		sources, rest := map[Source]uint64{}, uint64(0)
		err := p.TakeSources(func(s *Source, a Arrival) {
			switch {
			case *s == Source{Link: loopback, Class: classB}:
				rest += a.Packets
			case a.Packets != 1 || s.Class != classB || s.To != vmB || s.Host != ([4]byte{}) || s.Destination != to || s.From[2] != byte(round):
				t.Errorf("source %+v with %+v", s, a)
			default:
				sources[*s] += a.Packets
			}
		})
		if err != nil || len(sources) > most || len(sources) < most-128 { // each processor may keep some places for itself
			t.Errorf("%d sources, room for %d, %v", len(sources), most, err)
		}
		if got := uint64(len(sources)) + rest; got != uint64(total) {
			t.Errorf("%d packets of sources and %d of the rest, sent %d", len(sources), rest, total)
		}
	}
	if got, err := p.Arrived(loopback, classB); err != nil || got.Packets != uint64(2*total) {
		t.Errorf("the class has %+v, sent %d; %v", got, 2*total, err)
	}
	if err := p.TakeSources(func(s *Source, a Arrival) { t.Errorf("%+v with %+v after all were taken", s, a) }); err != nil {
		t.Fatal(err)
	}
}

func TestThereIsRoomForTheClasses(t *testing.T) {
	for classes, want := range map[int]int{0: 256, 1: 256, 128: 256, 129: 512, 1000: 2048} {
		if got := openFor(t, testutil.NewBPFFS(t), classes).Capacity(); got != want {
			t.Errorf("%d classes have room for %d, want %d", classes, got, want)
		}
	}
}

// TestAnotherSizeStartsOver has the enforcer come back with many more contracts.
func TestAnotherSizeStartsOver(t *testing.T) {
	dir := testutil.NewBPFFS(t)
	first := openFor(t, dir, 4)
	want := map[Match]uint32{{VLAN, 9, vmNone}: classA}
	if _, err := first.SetMatches(want); err != nil {
		t.Fatal(err)
	}
	first.Close()
	second := openFor(t, dir, 4000)
	if changed, err := second.SetMatches(want); err != nil || changed != 1 {
		t.Errorf("%d changes, %v: the matches have to be written again", changed, err)
	}
	if got := run(t, second.Send(), tagged(9)); got != classA {
		t.Errorf("class %x", got)
	}
}

// TestMoreMatchesThanFitAreRefused keeps what fits.
func TestMoreMatchesThanFitAreRefused(t *testing.T) {
	p := open(t, nil)
	most := int(p.objects.ClassMatch.MaxEntries())
	matches := make(map[Match]uint32, most+1)
	for i := range uint32(most + 1) {
		matches[Match{Network: VXLAN, ID: i + 1}] = classA
	}
	changed, err := p.SetMatches(matches)
	if err == nil || changed != most {
		t.Errorf("%d written, %v; room for %d", changed, err, most)
	}
	if changed, err = p.SetMatches(nil); err != nil || changed != most {
		t.Errorf("%d removed, %v", changed, err)
	}
}

func TestOpenErrors(t *testing.T) {
	testutil.RequireRoot(t)
	if _, err := Open("/proc/vigia", 4); err == nil {
		t.Error("opened in /proc")
	}
	if _, err := Open(t.TempDir(), 4); err == nil || errors.Is(err, ebpf.ErrMapIncompatible) {
		t.Errorf("not on a bpffs: %v", err)
	}
}
