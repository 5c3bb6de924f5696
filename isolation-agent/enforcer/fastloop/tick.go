package fastloop

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/bpf/classify"
	"vigia/internal/realtime"
	"vigia/isolation-agent/enforcer/fastloop/control"
)

const (
	// idlePoll is how often queues are read while the links have room.
	idlePoll = 5 * control.Tick
	// timerSlack is by how much others than the loop may wake late.
	timerSlack = 20 * time.Millisecond
	// housekeeping is how often peers are greeted and expired limits swept.
	housekeeping = time.Second
)

// tick runs the loop on a thread of its own: every 10 ms while a link is at least
// half full or a limit is in force, and every 50 ms to see whether one is. The wake-ups
// of Go's scheduler cost more than what a tick does.
func (l *Loop) tick(ctx context.Context) error {
	if err := realtime.RelaxTimers(timerSlack); err != nil {
		l.logger.Debug("cannot relax the timers of other threads; they take more processor time than they need", "err", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := realtime.Lock(); err != nil {
			l.logger.Warn("cannot run the fast loop before ordinary processes; it runs late on a busy machine", "err", err)
		}
		if err := realtime.LockMemory(); err != nil {
			l.logger.Warn("cannot lock memory; the fast loop may wait for it", "err", err)
		}
		// Go's clock is CLOCK_MONOTONIC, and costs no system call.
		origin, started := monotonic(), time.Now()
		next := origin + control.Tick
		var swept time.Time
		late := make([]time.Duration, 0, housekeeping/control.Tick+1) // of ticks that are not told of yet: all at once costs less
		for ctx.Err() == nil {
			sleepUntil(next)
			now := time.Now()
			late = append(late, origin+now.Sub(started)-next)
			quiet := l.round(now)
			if now.Sub(swept) >= housekeeping || len(late) == cap(late) {
				swept = now
				l.housekeep(now)
				for _, d := range late {
					l.events.Lateness(d)
				}
				late = late[:0]
			}
			next += control.Tick
			if quiet { // nothing moves that would have to be looked at sooner
				next += idlePoll - control.Tick
			}
			if behind := origin + time.Since(started) - next; behind > control.Tick { // never catch up in a burst
				next += behind / control.Tick * control.Tick
			}
		}
	}()
	<-done
	return ctx.Err()
}

func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // cannot fail with a valid clock and pointer
	}
	return time.Duration(ts.Nano())
}

func sleepUntil(t time.Duration) {
	ts := unix.NsecToTimespec(int64(t))
	// A signal that cuts the sleep short makes one early tick.
	_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil)
}

// round does what a tick must do, and reports whether the next one may wait.
func (l *Loop) round(now time.Time) (quiet bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	quiet = true
	for _, s := range l.links {
		if !s.receiver.Busy(now) && !l.wakes(now, s) {
			continue
		}
		quiet = false
		if err := l.read(s); err != nil {
			s.forgetDevice()
			l.logger.Debug("cannot read queues", "device", s.Device, "err", err)
			continue
		}
		congested := s.receiver.Sample(now, s.moved)
		if s.receiver.Busy(now) && l.sources.Due(now) {
			if err := l.readSources(now); err != nil {
				l.logger.Warn("cannot read sources", "err", err)
			}
		}
		for i := range congested {
			l.notify(now, s, &congested[i])
		}
	}
	l.grow(now)
	return quiet && l.sender.Len() == 0
}

// readSources takes the readings of who sends into the classes.
func (l *Loop) readSources(now time.Time) error {
	l.sources.Begin(now)
	return l.programs.TakeSources(func(s *classify.Source, a classify.Arrival) {
		t := l.owners[s.Class]
		if t == nil {
			t = nobody
		}
		l.sources.Count(l.directory.attribute(t, s), a.Bytes)
	})
}

func (l *Loop) housekeep(now time.Time) {
	if err := l.kernel.SweepPairs(); err != nil {
		l.logger.Warn("cannot sweep expired limits", "err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	for name, n := range l.directory.nodes {
		if name == l.directory.self {
			continue
		}
		if p := l.peer(name); !p.Known() {
			l.challenge(now, n, p)
		}
	}
	l.advices.Forget(now)
}
