package fastloop

import (
	"encoding/binary"
	"flag"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/fastloop/control"
)

var tenantsOfFloor = flag.String("tenants", "10,100,1000,5000", "tenants of each link of BenchmarkFloor, with commas")

// turnsOfFloor is how many ticks a turn of BenchmarkFloor has.
const turnsOfFloor = 20

// BenchmarkFloor puts ticks that find every class moved beside the system calls that they
// cannot do without: one of BPF that reads the arrivals of all classes, and the kernel's
// list of the classes' queues. What is left is decoding and deciding. Its lines say how a
// tick's time grows with the tenants, too.
func BenchmarkFloor(b *testing.B) {
	for _, word := range strings.Split(*tenantsOfFloor, ",") {
		tenants, err := strconv.Atoi(word)
		if err != nil || tenants < 1 {
			b.Fatalf("-tenants: %q is no number of tenants; write for example 10,100", word)
		}
		b.Run(word, func(b *testing.B) {
			l, ns, pins := newSizedLoop(b, tenants)
			arrive(b, l, pins)
			bare := newBareTick(b, l, ns, pins)
			now := time.Now()
			testutil.BesideCPU(b, "bare", func() {
				for range turnsOfFloor {
					now = now.Add(control.Tick)
					ticks[2].prepare(l, now)
					l.round(now)
				}
			}, func() {
				for range turnsOfFloor {
					if classes, arrivals := bare.tick(b); classes < tenants || arrivals < tenants {
						b.Fatalf("%d classes and %d arrivals were read of %d tenants", classes, arrivals, tenants)
					}
				}
			})
		})
	}
}

// TestTheBareTickReadsWhatATickDoes sees to it that the floor is one.
func TestTheBareTickReadsWhatATickDoes(t *testing.T) {
	l, ns, pins := newSizedLoop(t, benchTenants)
	arrive(t, l, pins)
	now := time.Now()
	ticks[2].prepare(l, now)
	l.round(now)
	s := l.links[0]
	if len(s.classes) < benchTenants || len(l.arrivals) < benchTenants {
		t.Fatalf("a tick read %d classes and %d arrivals", len(s.classes), len(l.arrivals))
	}
	classes, arrivals := newBareTick(t, l, ns, pins).tick(t)
	if classes != len(s.classes) || arrivals != len(l.arrivals) {
		t.Errorf("the bare tick read %d classes and %d arrivals, a tick %d and %d", classes, arrivals, len(s.classes), len(l.arrivals))
	}
}

// arrive counts something for every class, as traffic would.
func arrive(tb testing.TB, l *Loop, pins string) {
	tb.Helper()
	m := arrivalsMap(tb, pins)
	s := l.links[0]
	if err := l.find(s); err != nil {
		tb.Fatal(err)
	}
	values := make([]byte, int(m.ValueSize())*ebpf.MustPossibleCPU())
	for i := range values {
		values[i] = 1
	}
	for i := range s.rows {
		key := binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, uint32(s.ifb)), s.rows[i].counted)
		if err := m.Put(key, perCPU(values, int(m.ValueSize()))); err != nil {
			tb.Fatal(err)
		}
	}
}

func perCPU(values []byte, size int) (out [][]byte) {
	for ; len(values) > 0; values = values[size:] {
		out = append(out, values[:size])
	}
	return out
}

func arrivalsMap(tb testing.TB, pins string) *ebpf.Map {
	tb.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(pins, "class_arrival"), nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { m.Close() })
	return m
}

// bareTick are the buffers and descriptors of the system calls alone.
type bareTick struct {
	m            *ebpf.Map
	keys, values []byte
	socket       int
	request      []byte
	answer       []byte
}

func newBareTick(tb testing.TB, l *Loop, ns, pins string) *bareTick {
	tb.Helper()
	m := arrivalsMap(tb, pins)
	size := int(m.MaxEntries())
	b := &bareTick{m: m, keys: make([]byte, size*int(m.KeySize())), values: make([]byte, size*int(m.ValueSize())*ebpf.MustPossibleCPU()), answer: make([]byte, 1<<17)}
	err := netns.Do(ns, func() (err error) {
		b.socket, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { unix.Close(b.socket) })
	order := binary.NativeEndian
	b.request = order.AppendUint32(nil, unix.SizeofNlMsghdr+20) // nlmsghdr, tcmsg
	b.request = order.AppendUint16(order.AppendUint16(b.request, unix.RTM_GETTCLASS), unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b.request = append(b.request, make([]byte, 8+4)...)
	b.request = append(order.AppendUint32(b.request, uint32(l.links[0].ifb)), make([]byte, 12)...)
	return b
}

// tick makes the calls and returns how many classes and arrivals there were.
func (b *bareTick) tick(tb testing.TB) (classes, arrivals int) {
	tb.Helper()
	return b.list(tb), b.lookup(tb)
}

func (b *bareTick) lookup(tb testing.TB) int {
	tb.Helper()
	var cursor uint32
	attr := struct {
		in, out, keys, values unsafe.Pointer
		count, fd             uint32
		elemFlags, flags      uint64
	}{nil, unsafe.Pointer(&cursor), unsafe.Pointer(&b.keys[0]), unsafe.Pointer(&b.values[0]), b.m.MaxEntries(), uint32(b.m.FD()), 0, 0}
	if _, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_LOOKUP_BATCH, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)); errno != 0 && errno != unix.ENOENT {
		tb.Fatal(errno)
	}
	return int(attr.count)
}

// list asks for the classes and counts the messages of the answer by their lengths alone.
func (b *bareTick) list(tb testing.TB) (classes int) {
	tb.Helper()
	if err := unix.Sendto(b.socket, b.request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		tb.Fatal(err)
	}
	for {
		n, err := unix.Read(b.socket, b.answer)
		if err != nil {
			tb.Fatal(err)
		}
		for at := 0; at+unix.SizeofNlMsghdr <= n; {
			length := int(binary.NativeEndian.Uint32(b.answer[at:]))
			if kind := binary.NativeEndian.Uint16(b.answer[at+4:]); kind == unix.NLMSG_DONE || length < unix.SizeofNlMsghdr {
				return classes
			}
			classes++
			at += (length + 3) &^ 3
		}
	}
}
