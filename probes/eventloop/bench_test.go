package eventloop

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The benchmark puts the loop beside Go's own poller: a goroutine that reads from each
// socket, and one that waits until the next packet is due, either by time.Sleep or by a
// timer of the kernel that the poller watches. All do the same system calls for the packets,
// in turns within one run, and the ratios of processor time and of how late packets leave
// are printed: below 1 the loop is better. ADR 23 has the figures.

const (
	benchSockets = 20
	// turn is how long either works at a time.
	turn = 200 * time.Millisecond
)

// tally is what a turn has brought.
type tally struct {
	packets int
	cpu     time.Duration
	lag     time.Duration // of all packets together
}

func (t *tally) add(o tally) {
	t.packets, t.cpu, t.lag = t.packets+o.packets, t.cpu+o.cpu, t.lag+o.lag
}

// sockets returns sockets that are connected to themselves: what is sent arrives at once.
func sockets(b *testing.B) []*net.UDPConn {
	b.Helper()
	conns := make([]*net.UDPConn, benchSockets)
	for i := range conns {
		c, err := (&net.ListenConfig{}).ListenPacket(context.Background(), "udp4", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		conns[i] = c.(*net.UDPConn)
		to := conns[i].LocalAddr().(*net.UDPAddr).AddrPort()
		control(b, conns[i], func(fd int) {
			if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
				b.Fatal(err)
			}
		})
	}
	return conns
}

func control(b *testing.B, c *net.UDPConn, fn func(fd int)) {
	b.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { fn(int(fd)) }); err != nil {
		b.Fatal(err)
	}
}

// pace is the handler of our loop: it reads what is there and sends what is due.
type pace struct {
	b        *testing.B
	fds      []int
	between  int64
	buffer   [64]byte
	next     int64
	turn     int
	received int
	lag      int64
}

func (p *pace) Ready(events []Event) int64 {
	for _, e := range events {
		for {
			if n, _ := syscall.Read(p.fds[e.Token], p.buffer[:]); n <= 0 {
				break
			}
			p.received++
		}
	}
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	for now := ts.Nano(); p.next <= now; p.next += p.between {
		p.lag += now - p.next
		_, _ = syscall.Write(p.fds[p.turn%len(p.fds)], p.buffer[:])
		p.turn++
	}
	return p.next
}

// ours works with the loop for a while.
func ours(b *testing.B, conns []*net.UDPConn, between time.Duration) tally {
	b.Helper()
	p := &pace{b: b, between: int64(between)}
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	p.next = ts.Nano()
	l, err := New()
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for i, c := range conns {
		control(b, c, func(fd int) {
			p.fds = append(p.fds, fd)
			if err := l.Add(fd, int32(i)); err != nil {
				b.Fatal(err)
			}
		})
	}
	before := processorTime(b)
	done := make(chan error, 1)
	go func() { done <- l.Run(p) }()
	time.AfterFunc(turn, l.Stop)
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return tally{p.received, processorTime(b) - before, time.Duration(p.lag)}
}

// sleeper waits until a time since 1970.
type sleeper func(until time.Time)

// timerSleeper waits by a timer of the kernel, which Go's poller watches.
func timerSleeper(b *testing.B) sleeper {
	b.Helper()
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		b.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "timer")
	b.Cleanup(func() { f.Close() })
	var fired [8]byte
	return func(until time.Time) {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(time.Until(until), 1)))}
		if err := unix.TimerfdSettime(fd, 0, &spec, nil); err != nil {
			b.Fatal(err)
		}
		_, _ = f.Read(fired[:])
	}
}

// netpoller works with goroutines and Go's poller for a while.
func netpoller(b *testing.B, conns []*net.UDPConn, between time.Duration, sleep sleeper) tally {
	b.Helper()
	var count atomic.Int64
	var readers sync.WaitGroup
	deadline := time.Now().Add(turn)
	raws := make([]syscall.RawConn, len(conns))
	before := processorTime(b)
	for i, c := range conns {
		raw, err := c.SyscallConn()
		if err != nil {
			b.Fatal(err)
		}
		raws[i] = raw
		if err := c.SetReadDeadline(deadline); err != nil {
			b.Fatal(err)
		}
		readers.Go(func() {
			var buffer [64]byte
			for {
				if err := raw.Read(func(fd uintptr) bool {
					n, _ := syscall.Read(int(fd), buffer[:])
					return n > 0
				}); err != nil {
					return // the deadline
				}
				count.Add(1)
			}
		})
	}
	var buffer [64]byte
	next, lag := time.Now(), time.Duration(0)
	for i := 0; time.Now().Before(deadline); i++ {
		lag += time.Since(next)
		_ = raws[i%len(raws)].Control(func(fd uintptr) { _, _ = syscall.Write(int(fd), buffer[:]) })
		next = next.Add(between)
		if next.After(time.Now()) {
			sleep(next)
		}
	}
	readers.Wait()
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Time{})
	}
	return tally{int(count.Load()), processorTime(b) - before, lag}
}

// BenchmarkLoopBesideNetpoller has all move packets at the same pace, with as many
// processors for goroutines as the daemon sets.
func BenchmarkLoopBesideNetpoller(b *testing.B) {
	for _, between := range []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond} {
		b.Run(fmt.Sprintf("every=%v", between), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 2))
			conns, timer := sockets(b), timerSleeper(b)
			var own, timed, slept tally
			for range b.N {
				own.add(ours(b, conns, between))
				timed.add(netpoller(b, conns, between, timer))
				slept.add(netpoller(b, conns, between, func(until time.Time) { time.Sleep(time.Until(until)) }))
			}
			each := func(d time.Duration, t tally) float64 { return float64(d) / float64(t.packets) }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(each(own.cpu, own), "loop-cpu-ns")
			b.ReportMetric(each(own.lag, own), "loop-lag-ns")
			for name, other := range map[string]tally{"timer": timed, "sleep": slept} {
				if own.packets == 0 || other.packets == 0 {
					b.Fatalf("%+v, %+v", own, other)
				}
				b.ReportMetric(each(own.cpu, own)/each(other.cpu, other), "cpu-ratio-"+name)
				b.ReportMetric(each(own.lag, own)/each(other.lag, other), "lag-ratio-"+name)
			}
		})
	}
}

// processorTime returns the processor time of this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
