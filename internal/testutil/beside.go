package testutil

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Beside runs ours and a peer in turns, and reports of each the time of its quickest turn
// and what it allocates in a turn, and how many times as long as ours the peer takes. Others on
// the machine only ever add to a turn, so that the quickest tells what the code takes.
func Beside(b *testing.B, peer string, ours, theirs func()) {
	b.Helper()
	beside(b, peer, ours, theirs, func() time.Duration { return time.Since(began) })
}

// BesideCPU is Beside by the processor time of the calling thread: for turns so long that
// others on the machine leave none alone.
func BesideCPU(b *testing.B, peer string, ours, theirs func()) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	beside(b, peer, ours, theirs, func() time.Duration {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
			b.Fatal(err)
		}
		return time.Duration(now.Nano())
	})
}

// began is what times of the wall are counted from.
var began = time.Now()

func beside(b *testing.B, peer string, ours, theirs func(), clock func() time.Duration) {
	b.Helper()
	var own, other turns
	ours() // what is made once is made before
	theirs()
	b.ResetTimer()
	for range max(b.N, 5) {
		own.add(ours, clock)
		other.add(theirs, clock)
	}
	b.StopTimer()
	own.report(b, "ours")
	other.report(b, peer)
	b.ReportMetric(float64(other.quickest())/float64(own.quickest()), "times")
	b.ReportMetric(0, "ns/op") // of both together: says nothing
}

// turns are what the turns of one side took.
type turns struct {
	times           []time.Duration
	mallocs, memory uint64
}

func (t *turns) add(run func(), clock func() time.Duration) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := clock()
	run()
	t.times = append(t.times, clock()-start)
	runtime.ReadMemStats(&after)
	t.mallocs += after.Mallocs - before.Mallocs
	t.memory += after.TotalAlloc - before.TotalAlloc
}

func (t *turns) quickest() time.Duration { return slices.Min(t.times) }

func (t *turns) report(b *testing.B, who string) {
	n := float64(len(t.times))
	b.ReportMetric(float64(t.quickest().Nanoseconds())/1e3, who+"-us")
	b.ReportMetric(float64(t.mallocs)/n, who+"-allocs")
	b.ReportMetric(float64(t.memory)/n/1024, who+"-KiB")
}
