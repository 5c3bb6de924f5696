package eventloop

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigia/internal/testutil"

	"golang.org/x/sys/unix"
)

const patience = time.Minute

// recorder keeps what a loop reported and asks for the wake-ups of a list.
type recorder struct {
	mu     sync.Mutex
	events []Event
	calls  int
	wakes  []int64
	onCall func()
}

func (r *recorder) Ready(events []Event) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.events = append(r.events, events...)
	if r.onCall != nil {
		r.onCall()
	}
	if len(r.wakes) == 0 {
		return 0
	}
	next := r.wakes[0]
	r.wakes = r.wakes[1:]
	return next
}

func (r *recorder) snapshot() (calls int, events []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls, append([]Event(nil), r.events...)
}

// run starts a loop that ends with the test.
func run(t *testing.T, h Handler) *Loop {
	t.Helper()
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Run(h) }()
	t.Cleanup(func() {
		l.Stop()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("the loop did not stop")
		}
		l.Close()
	})
	return l
}

func monotonic(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano()
}

func TestTimerFiresOnceAndNotEarly(t *testing.T) {
	first := monotonic(t) + int64(30*time.Millisecond)
	due := []int64{first, first + int64(50*time.Millisecond)}
	var at [3]atomic.Int64
	h := &recorder{wakes: slices.Clone(due)}
	h.onCall = func() {
		if h.calls <= len(at) {
			at[h.calls-1].Store(monotonic(t))
		}
	}
	run(t, h)
	// A timer that fired twice would take the place of the next.
	testutil.WaitFor(t, "both times", func() bool { return at[2].Load() != 0 })
	for i, want := range due {
		if got := at[i+1].Load(); got < want {
			t.Errorf("wake-up %d was %d ns early", i, want-got)
		}
	}
	if calls, _ := h.snapshot(); calls != 3 {
		t.Errorf("%d calls, want the first and one for each time", calls)
	}
}

func TestTimerInThePastFiresAtOnceAndCanBeArmedAgain(t *testing.T) {
	h := &recorder{wakes: []int64{1, 1, 1}}
	run(t, h)
	testutil.WaitFor(t, "three wake-ups", func() bool { calls, _ := h.snapshot(); return calls == 4 })
}

func TestSocketEvents(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	h := &recorder{}
	h.onCall = func() {
		if len(h.events) > 0 {
			var b [8]byte
			_, _ = unix.Read(fds[1], b[:])
		}
	}
	l := run(t, h)
	if err := l.Do(func() {
		if err := l.Add(fds[1], 7); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fds[0], []byte("x")); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, "the event", func() bool { _, events := h.snapshot(); return len(events) > 0 })
	if _, events := h.snapshot(); events[0] != (Event{Token: 7, Readable: true}) {
		t.Errorf("got %+v", events[0])
	}
	err = l.Do(func() {
		if err := l.Remove(fds[1]); err != nil {
			t.Error(err)
		}
		unix.Close(fds[1])
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fds[0], []byte("x")); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("the removed socket is still open: %v", err)
	}
}

func TestDoRunsInTheLoopsGoroutine(t *testing.T) {
	var n int // guarded by running in one goroutine; the race detector watches
	h := &recorder{}
	h.onCall = func() { n += 0 }
	l := run(t, h)
	var wg sync.WaitGroup
	for range 50 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := l.Do(func() { n++ }); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	if err := l.Do(func() {
		if n != 50 {
			t.Errorf("%d of 50 ran", n)
		}
	}); err != nil {
		t.Error(err)
	}
}

func TestDoBeforeAndAfter(t *testing.T) {
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	if err := l.Do(func() { ran++ }); err != nil || ran != 1 {
		t.Errorf("before Run: %v, ran %d times", err, ran)
	}
	done := make(chan error, 1)
	h := &recorder{}
	go func() { done <- l.Run(h) }()
	testutil.WaitFor(t, "the first call", func() bool { calls, _ := h.snapshot(); return calls > 0 })
	l.Stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := l.Do(func() { ran++ }); err != nil || ran != 2 {
		t.Errorf("after Run: %v, ran %d times", err, ran)
	}
	l.Close()
	if err := l.Do(func() { ran++ }); !errors.Is(err, ErrStopped) || ran != 2 {
		t.Errorf("after Close: %v, ran %d times", err, ran)
	}
	l.Close()
}

func TestNobodyWaitsForAStoppingLoop(t *testing.T) {
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() { done <- l.Run(&recorder{}) }()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := l.Do(func() {}); err != nil {
				t.Error(err)
			}
		}()
		if i == 50 {
			l.Stop()
		}
	}
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(patience):
		t.Fatal("a caller of Do waits for ever")
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestCloseLeaksNothing(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := count()
	for range 10 {
		l, err := New()
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	if after := count(); after > before {
		t.Errorf("%d file descriptors became %d", before, after)
	}
}

func TestStepDoesNotAllocate(t *testing.T) {
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := &always{}
	if err := l.arm(1); err != nil {
		t.Fatal(err)
	}
	allocs := testing.AllocsPerRun(500, func() {
		if _, err := l.Step(h); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations per wake-up, want 0", allocs)
	}
}

// always asks to be woken at once.
type always struct{ at int64 }

func (a *always) Ready([]Event) int64 { a.at++; return a.at }

// ticker asks for a wake-up every millisecond until it is told to be quiet.
type ticker struct {
	t     *testing.T
	quiet atomic.Bool
	calls atomic.Int64
	seen  atomic.Int64 // events
}

func (k *ticker) Ready(events []Event) int64 {
	k.calls.Add(1)
	k.seen.Add(int64(len(events)))
	if k.quiet.Load() {
		return 0
	}
	return monotonic(k.t) + int64(time.Millisecond)
}

// holds asks the loop whether it holds a processor.
func holds(t *testing.T, l *Loop) (held bool) {
	t.Helper()
	if err := l.Do(func() { held = l.holding }); err != nil {
		t.Fatal(err)
	}
	return held
}

// processors sets how many the runtime has, for one test.
func processors(t *testing.T, n int) {
	t.Helper()
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

func TestBusyLoopHoldsAndQuietOneParks(t *testing.T) {
	processors(t, maxHolding+2)
	k := &ticker{t: t}
	l := run(t, k)
	testutil.WaitFor(t, "the loop to hold", func() bool { return holds(t, l) })

	calls := k.calls.Load()
	testutil.WaitFor(t, "the timer while it holds", func() bool { return k.calls.Load() > calls+100 })
	for range 20 { // needs every processor, also the loop's
		runtime.GC()
	}

	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if err := l.Do(func() { err = l.AddChanges(fds[0], 1) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := k.seen.Load()
	send := func() {
		if _, err := unix.Write(fds[1], []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	send()
	testutil.WaitFor(t, "a socket's event while it holds", func() bool { return k.seen.Load() > seen })

	// Asking wakes the loop, so it is left alone for longer than it holds.
	k.quiet.Store(true)
	testutil.WaitFor(t, "the loop to park", func() bool { time.Sleep(5 * maxHold); return !holds(t, l) })
	seen = k.seen.Load()
	send()
	testutil.WaitFor(t, "a socket's event while it is parked", func() bool { return k.seen.Load() > seen })

	k.quiet.Store(false)
	send() // so that it asks for the timer again
	testutil.WaitFor(t, "the loop to hold again", func() bool { return holds(t, l) })
}

func TestLoopLeavesTheLastProcessorsToOthers(t *testing.T) {
	processors(t, maxHolding)
	k := &ticker{t: t}
	l := run(t, k)
	testutil.WaitFor(t, "many wake-ups", func() bool { return k.calls.Load() > 10*busyAfter })
	if holds(t, l) {
		t.Errorf("the loop holds one of %d processors", maxHolding)
	}
}

func TestStopWhileHolding(t *testing.T) {
	processors(t, maxHolding+1)
	k := &ticker{t: t}
	l := run(t, k)
	testutil.WaitFor(t, "the loop to hold", func() bool { return holds(t, l) })
	l.Stop() // run's clean-up waits for it
}

// pair returns two connected sockets.
func pair(t *testing.T) (fds [2]int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	return fds
}

// looker looks at the quiet sockets at each wake-up.
type looker struct {
	t    *testing.T
	loop *Loop
	seen []Event
	more bool
}

func (k *looker) Ready(events []Event) int64 {
	if len(events) != 0 {
		k.t.Errorf("a quiet socket is told of: %+v", events)
	}
	var found []Event
	var err error
	if found, k.more, err = k.loop.Look(); err != nil {
		k.t.Error(err)
	}
	k.seen = append(k.seen[:0], found...)
	return 0
}

// TestQuietSocketsWakeNobody, and are seen with the next wake-up, all of them.
func TestQuietSocketsWakeNobody(t *testing.T) {
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const sockets = maxEvents + 1
	k := &looker{t: t, loop: l}
	var all [sockets][2]int
	for i := range all {
		all[i] = pair(t)
		if err := l.AddQuiet(all[i][0], int32(i)); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(all[i][1], []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	if l.handler = k; l.step(0) {
		t.Error("a quiet socket wakes the loop")
	}
	if err := l.arm(1); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, "the timer", func() bool { return l.step(0) })
	if l.err != nil || len(k.seen) != maxEvents || !k.more {
		t.Fatalf("%v, %d events, more %v", l.err, len(k.seen), k.more)
	}
	tokens := make(map[int32]bool)
	for range 2 {
		for _, event := range k.seen {
			var b [8]byte
			if n, err := unix.Read(all[event.Token][0], b[:]); n != 1 || !event.Readable || event.Errors {
				t.Errorf("%+v: %d bytes, %v", event, n, err)
			}
			tokens[event.Token] = true
		}
		k.Ready(nil)
	}
	if len(tokens) != sockets || len(k.seen) != 0 || k.more {
		t.Errorf("%d sockets were told of, %d again, more %v", len(tokens), len(k.seen), k.more)
	}
	if err := l.Remove(all[0][0]); err != nil {
		t.Error(err)
	}
	if err := l.Remove(all[0][0]); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a socket that is not watched: %v", err)
	}
}

// TestNobodyIsWokenByTheHandlersOwnWork makes a socket readable in the handler and takes
// the datagram again: nobody who watches a parked loop may have seen it.
func TestNobodyIsWokenByTheHandlersOwnWork(t *testing.T) {
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fds := pair(t)
	if err := l.Add(fds[0], 1); err != nil {
		t.Fatal(err)
	}
	watcher, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watcher)
	edge := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET&0xffffffff} // as Go's poller
	if err := unix.EpollCtl(watcher, unix.EPOLL_CTL_ADD, l.outer, &edge); err != nil {
		t.Fatal(err)
	}
	noticed := func() bool {
		var events [1]unix.EpollEvent
		n, err := unix.EpollWait(watcher, events[:], 0)
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
	write := func() {
		if _, err := unix.Write(fds[1], []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	read := func() {
		var b [8]byte
		if n, _ := unix.Read(fds[0], b[:]); n != 1 {
			t.Errorf("%d bytes", n)
		}
	}
	write()
	if !noticed() {
		t.Fatal("the watcher sees nothing, so the test cannot fail")
	}
	h := &recorder{onCall: func() {
		read()
		write()
		if noticed() {
			t.Error("the handler's work wakes the poller")
		}
		read()
	}}
	if l.handler = h; !l.step(0) || l.err != nil || h.calls != 1 {
		t.Fatalf("%v, %d calls", l.err, h.calls)
	}
	if noticed() {
		t.Error("what is done already wakes the poller")
	}
	write()
	if !noticed() {
		t.Error("what comes afterwards does not wake the poller")
	}
	h.onCall = write // and stays
	if !l.step(0) || l.err != nil {
		t.Fatal(l.err)
	}
	h.onCall = read
	if !l.step(0) || l.err != nil { // Go's poller looks once more before it waits
		t.Errorf("what came meanwhile and is left is not seen: %v", l.err)
	}
}

// turns counts.
type turns struct{ taken, given atomic.Int64 }

func (c *turns) Take() error { c.taken.Add(1); return nil }
func (c *turns) Give() error { c.given.Add(1); return nil }

// TestTurns: a loop is urgent exactly while it holds.
func TestTurns(t *testing.T) {
	processors(t, maxHolding+2)
	k := &ticker{t: t}
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := &turns{}
	l.SetTurns(c)
	done := make(chan error, 1)
	go func() { done <- l.Run(k) }()
	testutil.WaitFor(t, "the loop to hold", func() bool { return holds(t, l) })
	check := func() {
		t.Helper()
		if err := l.Do(func() {
			if open := c.taken.Load() - c.given.Load(); l.holding && open != 1 || !l.holding && open != 0 {
				t.Errorf("holding %v, %d taken, %d given", l.holding, c.taken.Load(), c.given.Load())
			}
		}); err != nil {
			t.Error(err)
		}
	}
	check()
	k.quiet.Store(true)
	testutil.WaitFor(t, "the loop to park", func() bool { time.Sleep(5 * maxHold); return !holds(t, l) })
	check()
	k.quiet.Store(false)
	if err := l.Do(func() {}); err != nil { // so that it asks for the timer again
		t.Fatal(err)
	}
	testutil.WaitFor(t, "the loop to hold again", func() bool { return holds(t, l) })
	check()
	l.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if c.taken.Load() != c.given.Load() || c.taken.Load() < 2 {
		t.Errorf("%d taken, %d given", c.taken.Load(), c.given.Load())
	}
}
