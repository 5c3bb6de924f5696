package fastloop

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"vigia/internal/bpf/classify"
	"vigia/internal/realtime"
	"vigia/internal/testutil/frame"
	"vigia/isolation-agent/enforcer/fastloop/control"
)

// hostile makes frames of a VXLAN network, each from another address to another one.
type hostile struct {
	random *rand.Rand
	frame  []byte
}

func newHostile() *hostile {
	inner := frame.Ethernet(frame.MAC{2, 0, 0, 0, 0, 1}, frame.MAC{}, frame.TypeIPv4, frame.IPv4(frame.V4{From: "192.168.0.2", To: "192.168.0.1", Protocol: frame.UDP}, frame.UDPHeader(1, 2, make([]byte, 20))))
	packet := frame.IPv4(frame.V4{From: "10.0.0.2", To: "10.0.0.1", Protocol: frame.UDP}, frame.UDPHeader(12345, 4789, frame.VXLAN(1, inner)))
	return &hostile{rand.New(rand.NewPCG(1, 2)), frame.Ethernet(frame.MAC{2}, frame.MAC{4}, frame.TypeIPv4, packet)}
}

// next makes the next frame of its frame.
func (h *hostile) next() {
	inner := h.frame[14+20+8+8:]
	binary.LittleEndian.PutUint32(inner[8:], h.random.Uint32())     // its source's MAC address
	binary.LittleEndian.PutUint32(inner[14+16:], h.random.Uint32()) // its destination
}

// TestAMillionHostilePairsCostWhatAFewDo drives as many through the programs and the
// readings of the loop: none of its tables has more than its room.
func TestAMillionHostilePairsCostWhatAFewDo(t *testing.T) {
	const pairs, readings = 1_000_000, 40
	l := newKernelLoop(t)
	h, now := newHostile(), time.Now()
	options := &ebpf.RunOptions{Data: h.frame}
	entries := 0
	take := func() {
		now = now.Add(50 * time.Millisecond)
		l.sources.Begin(now)
		if err := l.programs.TakeSources(func(s *classify.Source, a classify.Arrival) {
			entries++
			l.sources.Count(l.directory.attribute(l.directory.of("t0"), s), a.Bytes)
		}); err != nil {
			t.Fatal(err)
		}
		if entries > mostSources {
			t.Fatalf("a reading had %d entries, room is for %d", entries, mostSources)
		}
		entries = 0
	}
	take()
	program := l.programs.Receive()
	for range readings {
		for range pairs / readings {
			h.next()
			if _, err := program.Run(options); err != nil {
				t.Fatal(err)
			}
		}
		take()
		top, n := l.sources.Top(1, l.links[0].rows[0].id)
		if l.sources.Len() > 2 || n > 2 || len(top) > 2 { // the tunnel's end point, whatever is behind it
			t.Fatalf("%d sources are told apart, %d of the class: %+v", l.sources.Len(), n, top)
		}
	}
}

// latenessTicks is how many ticks a turn of BenchmarkLateness has.
const latenessTicks = 2000

// BenchmarkLateness prints how late ticks are that read the sources of a link, at the 99.9th
// percentile of 2 000, alone and while another process sends random pairs of addresses as
// fast as it can, and the ratio of both. Before them a bare thread of the same priority sleeps
// to as many ticks and does nothing: what it is late by is the machine's.
func BenchmarkLateness(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			b.ReportMetric(float64(bareLateness(b).Microseconds()), "p99.9-us")
		}
	})
	alone := 0.0
	for _, bc := range []struct {
		name    string
		attacks bool
	}{{"alone", false}, {"hostile", true}} {
		b.Run(bc.name, func(b *testing.B) {
			for b.Loop() {
				late, sent := lateness(b, bc.attacks)
				b.ReportMetric(float64(late.Microseconds()), "p99.9-us")
				b.ReportMetric(float64(sent), "pairs")
				if alone == 0 {
					alone = late.Seconds()
				}
				b.ReportMetric(late.Seconds()/alone, "of-alone")
			}
		})
	}
}

// bareLateness returns how late a thread is that sleeps to each tick.
func bareLateness(b *testing.B) time.Duration {
	b.Helper()
	all := make([]time.Duration, 0, latenessTicks)
	failed := make(chan error)
	go func() { // the thread ends with it
		err := realtime.Lock()
		for next := monotonic(); len(all) < latenessTicks; {
			next += control.Tick
			sleepUntil(next)
			all = append(all, monotonic()-next)
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		b.Fatal(err)
	}
	return worstOf(all)
}

// worstOf returns the 99.9th percentile.
func worstOf(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)*999/1000]
}

func lateness(b *testing.B, attacks bool) (late time.Duration, sent int) {
	b.Helper()
	l := newKernelLoop(b)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	all := make([]time.Duration, 0, latenessTicks)
	l.links[0].receiver.Wake(time.Now().Add(time.Hour)) // the link is never idle
	l.events.Lateness = func(d time.Duration) {
		if all = append(all, d); len(all) == latenessTicks {
			cancel()
		}
	}
	end := func() int { return 0 }
	if attacks {
		end = attack(b, l.programs.Receive())
	}
	_ = l.tick(ctx)
	return worstOf(all), end()
}

// attack has another process send random pairs of addresses to a program until it is ended,
// which returns how many there were. In this process they would share the threads of the loop.
func attack(b *testing.B, program *ebpf.Program) (end func() int) {
	b.Helper()
	c := exec.Command(os.Args[0], "-test.run", "^TestHostileSender$", "-test.v")
	c.Env = append(os.Environ(), hostileSender+"=1")
	own, err := unix.FcntlInt(uintptr(program.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	file := os.NewFile(uintptr(own), "program")
	defer file.Close()
	c.ExtraFiles = []*os.File{file}
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	return func() (sent int) {
		in.Close()
		err := c.Wait()
		if _, after, ok := strings.Cut(said.String(), "sent "); err != nil || !ok {
			b.Fatalf("the sender: %v, %s", err, said.String())
		} else if _, err = fmt.Sscan(after, &sent); err != nil {
			b.Fatal(err)
		}
		return sent
	}
}

const hostileSender = "VIGIA_HOSTILE_SENDER"

// TestHostileSender is the other process of attack.
func TestHostileSender(t *testing.T) {
	if os.Getenv(hostileSender) == "" {
		return // an ordinary run has nothing to send to
	}
	program, err := ebpf.NewProgramFromFD(3)
	if err != nil {
		t.Fatal(err)
	}
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	h, sent := newHostile(), 0
	options := &ebpf.RunOptions{Data: h.frame}
	for ; !ended.Load(); sent++ {
		h.next()
		if _, err := program.Run(options); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("sent %d", sent)
}
