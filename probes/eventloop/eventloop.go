// Package eventloop waits for sockets, a timer and other goroutines at once, in
// one goroutine, without allocating.
//
// Go's timers are late by half a millisecond, and its poller wakes a goroutine for each
// socket without saying whether datagrams wait or send time stamps in the error queue (ADR
// 23 has figures). So timer and sockets are in an epoll instance of the loop. There are two
// ways to wait for it:
//
// A quiet loop parks: Go's poller watches the instance, through another between the
// two, and a goroutine that waits there costs the runtime nothing.
//
// A busy loop holds: it takes the instance away from Go's poller and waits in
// epoll_pwait(2) itself, for maxHold at most. The runtime takes that for a goroutine
// that computes, so a wake-up costs one system call and no work of Go's scheduler,
// which otherwise measured at a fifth of all processor time. The runtime's signals
// interrupt the wait where it needs the processor, for the garbage collector.
//
// System calls that cannot block are made raw as well: around others the runtime's
// monitor thread stays awake.
//
// Quiet sockets wake nobody: the handler looks at them when it is awake anyway. The kernel
// wakes who waits for a send stamp from within the driver, between that stamp and the
// packet's way on, so a loop that waits for stamps delays the packets that it measures.
// For the same reason nobody waits for the loop's sockets while its handler runs.
package eventloop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxEvents  = 64
	timerToken = -1
	wakeToken  = -2

	// maxHold is how long a busy loop waits for the next event before it parks; it
	// bounds what a runtime that cannot send signals has to wait for the loop.
	maxHold = 10 * time.Millisecond
	// busyAfter is how many wake-ups less than maxHold apart make a loop busy.
	busyAfter = 8
	// maxHolding is how many loops may hold a processor of the runtime at once; one
	// more is left to everybody else.
	maxHolding = 2
)

// ErrStopped says that the loop has ended and does no more work.
var ErrStopped = errors.New("the event loop has stopped")

// Event says what can be done with a socket.
type Event struct {
	Token    int32
	Readable bool // datagrams wait
	Errors   bool // the error queue holds something
}

// Handler does the work of a loop. Its methods run in the loop's goroutine only.
type Handler interface {
	// Ready handles the events of one wake-up; there may be none. It returns
	// the absolute CLOCK_MONOTONIC time in nanoseconds of the next wake-up, or
	// 0 to wait for sockets alone.
	Ready(events []Event) (wake int64)
}

// Loop is an event loop. Add and Remove are called in its goroutine, or before it
// runs; Do from anywhere else.
type Loop struct {
	epoll, timer, wake int
	quiet              int      // the epoll instance of sockets that wake nobody
	outer              int      // the epoll instance in between; empty while the loop holds
	file               *os.File // of gate, for Go's poller
	conn               syscall.RawConn
	holding            bool
	turns              Turns     // nil for a loop that is as urgent as any goroutine
	urgent             bool      // it has its turn
	quickWakes         int       // wake-ups in quick succession
	woken              time.Time // the last of them
	raw                [maxEvents]unix.EpollEvent
	events             [maxEvents]Event
	quietRaw           [maxEvents]unix.EpollEvent
	quietEvents        [maxEvents]Event
	armed              int64

	handler Handler
	tick    func(uintptr) bool // step without waiting, made once
	err     error              // of the last step

	mu      sync.Mutex
	tasks   []task
	running bool
	stopped bool
	closed  bool
}

// Turns make the loop's goroutine urgent while it is busy, and an ordinary one while it is
// quiet, when it waits in Go's scheduler.
type Turns interface {
	Take() error // begins a turn
	Give() error // ends it
}

type task struct {
	fn   func()
	done chan struct{}
}

// New returns a loop that does not run yet.
func New() (*Loop, error) {
	l := &Loop{epoll: -1, quiet: -1, outer: -1, timer: -1, wake: -1}
	l.tick = func(uintptr) bool { return l.step(0) }
	if err := l.open(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Loop) open() (err error) {
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("create epoll instance: %w", err)
	}
	if l.quiet, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("create epoll instance: %w", err)
	}
	if l.outer, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("create epoll instance: %w", err)
	}
	if l.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return fmt.Errorf("create timer: %w", err)
	}
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("create eventfd: %w", err)
	}
	if err := unix.SetNonblock(l.outer, true); err != nil {
		return fmt.Errorf("make epoll instance non-blocking: %w", err)
	}
	if err := l.park(); err != nil {
		return err
	}
	l.file = os.NewFile(uintptr(l.outer), "epoll")
	if l.conn, err = l.file.SyscallConn(); err != nil {
		return fmt.Errorf("hand epoll instance to the poller: %w", err)
	}
	if err := l.Add(l.timer, timerToken); err != nil {
		return err
	}
	return l.Add(l.wake, wakeToken)
}

// SetTurns makes the loop urgent while it is busy. It is called before Run.
func (l *Loop) SetTurns(t Turns) { l.turns = t }

// Close frees the loop, after Run has returned or when it never ran.
func (l *Loop) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	l.finish()
	if l.file != nil {
		l.file.Close()
	} else if l.outer >= 0 {
		unix.Close(l.outer)
	}
	for _, fd := range []int{l.epoll, l.quiet, l.timer, l.wake} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Add watches a file descriptor; its events carry the token, which must not be
// negative.
func (l *Loop) Add(fd int, token int32) error { return add(l.epoll, fd, token) }

// AddQuiet is Add for a socket whose events wake nobody: Look has them.
func (l *Loop) AddQuiet(fd int, token int32) error { return add(l.quiet, fd, token) }

func add(epoll, fd int, token int32) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: token}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("watch a file descriptor: %w", err)
	}
	return nil
}

// AddChanges is Add for a socket that is of interest when its state changes: it
// has an event whenever it becomes writable, readable or broken, and none while it
// stays so. An event may also mean nothing.
func (l *Loop) AddChanges(fd int, token int32) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&math.MaxUint32, Fd: token}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		return fmt.Errorf("watch a file descriptor for changes: %w", err)
	}
	return nil
}

// Remove stops watching. It is called before the file descriptor is closed.
func (l *Loop) Remove(fd int) error {
	err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, fd, nil)
	if errors.Is(err, unix.ENOENT) {
		err = unix.EpollCtl(l.quiet, unix.EPOLL_CTL_DEL, fd, nil)
	}
	if err != nil {
		return fmt.Errorf("stop watching a file descriptor: %w", err)
	}
	return nil
}

// Look returns what can be done with quiet sockets now, without waiting. more says that
// others may have something, too, which the next Look tells of. Handlers call it; the
// events are valid until it is called again.
func (l *Loop) Look() (events []Event, more bool, err error) {
	n, errno := poll(l.quiet, &l.quietRaw, 0)
	if errno != 0 && errno != unix.EINTR {
		return nil, false, fmt.Errorf("look at quiet sockets: %w", errno)
	}
	for i := range l.quietRaw[:n] {
		l.quietEvents[i] = eventOf(&l.quietRaw[i])
	}
	return l.quietEvents[:n], n == maxEvents, nil
}

// poll is epoll_pwait(2); it returns no events with an error.
func poll(epoll int, raw *[maxEvents]unix.EpollEvent, within time.Duration) (n int, errno syscall.Errno) {
	count, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(raw)), maxEvents,
		uintptr(within/time.Millisecond), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(count), 0
}

func eventOf(e *unix.EpollEvent) Event {
	return Event{
		Token:    e.Fd,
		Readable: e.Events&unix.EPOLLIN != 0,
		Errors:   e.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0,
	}
}

// Do runs fn in the loop's goroutine, between two wake-ups, and waits for it.
// Before the loop runs, and after it has stopped but not closed, it runs fn
// where it is.
func (l *Loop) Do(fn func()) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrStopped
	}
	if !l.running {
		defer l.mu.Unlock()
		fn()
		return nil
	}
	t := task{fn: fn, done: make(chan struct{})}
	l.tasks = append(l.tasks, t)
	l.signal()
	l.mu.Unlock()
	<-t.done
	return nil
}

// Stop makes Run return.
func (l *Loop) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	if !l.closed {
		l.signal()
	}
}

// signal wakes the loop. The counter of an eventfd cannot overflow here: each
// wake-up resets it.
func (l *Loop) signal() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	// EAGAIN would mean that a wake-up is due already.
	_, _ = unix.Write(l.wake, one[:])
}

// Run waits and calls the handler until Stop.
func (l *Loop) Run(h Handler) (err error) {
	l.mu.Lock()
	l.running = true
	l.mu.Unlock()
	defer func() {
		err = errors.Join(err, l.give())
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running = false
		l.finish()
	}()
	if err := l.arm(h.Ready(nil)); err != nil {
		return err
	}
	for {
		if more, err := l.Step(h); err != nil || !more {
			return err
		}
	}
}

// Step waits once and handles what came; more is false after Stop. Run calls it;
// others do only in place of Run.
func (l *Loop) Step(h Handler) (more bool, err error) {
	l.handler, l.err = h, nil
	if !l.holding || !l.step(maxHold) {
		if err := l.wait(); err != nil {
			return false, err
		}
	}
	if errors.Is(l.err, ErrStopped) {
		return false, nil
	}
	return l.err == nil, l.err
}

// wait handles what comes next without holding a processor, and makes the loop hold
// one from then on when there is always something soon.
func (l *Loop) wait() error {
	if l.holding {
		if err := l.park(); err != nil {
			return err
		}
	}
	if err := l.conn.Read(l.tick); err != nil {
		return fmt.Errorf("wait for events: %w", err)
	}
	now := time.Now()
	l.quickWakes++
	if now.Sub(l.woken) > maxHold {
		l.quickWakes = 0
	}
	l.woken = now
	if l.quickWakes >= busyAfter {
		return l.hold()
	}
	return nil
}

// park lets Go's poller watch the sockets.
func (l *Loop) park() error {
	event := unix.EpollEvent{Events: unix.EPOLLIN}
	if err := unix.EpollCtl(l.outer, unix.EPOLL_CTL_ADD, l.epoll, &event); err != nil {
		return fmt.Errorf("hand the sockets to the poller: %w", err)
	}
	l.holding = false
	return l.give()
}

// give ends the loop's turn, if it has one.
func (l *Loop) give() error {
	if !l.urgent {
		return nil
	}
	l.urgent = false
	return l.turns.Give()
}

// hold takes the sockets from Go's poller, unless the runtime has too few processors.
func (l *Loop) hold() error {
	l.quickWakes = 0
	if runtime.GOMAXPROCS(0) <= maxHolding {
		return nil
	}
	if err := unix.EpollCtl(l.outer, unix.EPOLL_CTL_DEL, l.epoll, nil); err != nil {
		return fmt.Errorf("take the sockets from the poller: %w", err)
	}
	l.holding = true
	if l.turns != nil {
		// A loop that may not be urgent any more is late at worst.
		l.urgent = l.turns.Take() == nil
	}
	return nil
}

// step handles what there is within a time; it returns false when there is nothing,
// which makes Go's poller wait. That one reports a change only once, so it must not
// wait before a look has found nothing.
func (l *Loop) step(within time.Duration) bool {
	events, any, woken := l.poll(within)
	if !any {
		return l.err != nil
	}
	if woken && !l.runTasks() {
		l.err = ErrStopped
		return true
	}
	l.err = l.handle(events)
	return true
}

// handle lets the handler work. Go's poller does not watch meanwhile: what the work itself
// causes, as send stamps, would wake a thread for nothing.
func (l *Loop) handle(events []Event) error {
	if l.holding {
		return l.arm(l.handler.Ready(events))
	}
	if err := l.watch(0); err != nil {
		return err
	}
	if err := l.arm(l.handler.Ready(events)); err != nil {
		return err
	}
	return l.watch(unix.EPOLLIN)
}

// watch says which events of the sockets Go's poller sees.
func (l *Loop) watch(events uint32) error {
	event := unix.EpollEvent{Events: events}
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(l.outer), unix.EPOLL_CTL_MOD, uintptr(l.epoll), uintptr(unsafe.Pointer(&event)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("tell the poller what to watch: %w", errno)
	}
	return nil
}

// poll looks for events and waits for them within a time. any is true for the timer
// and wake-ups from elsewhere, too; woken for the latter.
func (l *Loop) poll(within time.Duration) (events []Event, any, woken bool) {
	n, errno := poll(l.epoll, &l.raw, within)
	if errno != 0 {
		if errno != unix.EINTR {
			l.err = fmt.Errorf("look for events: %w", errno)
		}
		return nil, errno == unix.EINTR, false
	}
	used := 0
	for i := range l.raw[:n] {
		e := &l.raw[i]
		switch e.Fd {
		case timerToken:
			l.armed = 0 // it has fired; arming it again resets it
		case wakeToken:
			woken = true
		default:
			l.events[used] = eventOf(e)
			used++
		}
	}
	return l.events[:used], n > 0, woken
}

// arm sets the timer, unless it is set to the same time already.
func (l *Loop) arm(at int64) error {
	if at == l.armed && at != 0 {
		return nil
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(at)}
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(l.timer), unix.TFD_TIMER_ABSTIME, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("set timer: %w", errno)
	}
	l.armed = at
	return nil
}

// runTasks runs what Do has queued; it returns false after Stop.
func (l *Loop) runTasks() bool {
	var counter [8]byte
	_, _ = unix.Read(l.wake, counter[:])
	l.mu.Lock()
	tasks, stopped := l.tasks, l.stopped
	l.tasks = nil
	l.mu.Unlock()
	for _, t := range tasks {
		t.fn()
		close(t.done)
	}
	return !stopped
}

// finish runs what is still queued, so that nobody waits for ever.
func (l *Loop) finish() {
	for _, t := range l.tasks {
		t.fn()
		close(t.done)
	}
	l.tasks = nil
}
