package fastloop

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/bpf/classify"
	"vigia/internal/realtime"
	"vigia/internal/tc"
	"vigia/isolation-agent/enforcer/contracts"
)

const (
	// idlePoll is how often queues are read while the links have room.
	idlePoll = 5 * Tick
	// timerSlack is by how much others than the loop may wake late.
	timerSlack = 20 * time.Millisecond
	// housekeeping: peers are greeted, expired limits swept.
	housekeeping = time.Second
)

// tick runs the loop on a thread of its own: every 10 ms while a link is at least
// half full or a limit is held, and every 50 ms to see whether one is. The wake-ups
// of Go's scheduler cost more than what a tick does.
func (l *Loop) tick(ctx context.Context) error {
	if err := realtime.RelaxTimers(timerSlack); err != nil {
		l.logger.Debug("fast loop takes more processor time than it need", "err", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := realtime.Lock(); err != nil {
			l.logger.Warn("fast loop runs late on a busy machine", "err", err)
		}
		if err := realtime.LockMemory(); err != nil {
			l.logger.Warn("fast loop may wait for memory", "err", err)
		}
		// Go's clock is CLOCK_MONOTONIC, and costs no system call.
		origin, started := monotonic(), time.Now()
		next := origin + Tick
		var swept time.Time
		for ctx.Err() == nil {
			sleepUntil(next)
			now := time.Now()
			l.events.Lateness(origin + now.Sub(started) - next)
			quiet := l.round(now)
			if now.Sub(swept) >= housekeeping {
				swept = now
				l.housekeep(now)
			}
			next += Tick
			if quiet { // nothing moves that would have to be looked at sooner
				next += idlePoll - Tick
			}
			if behind := origin + time.Since(started) - next; behind > Tick { // never catch up in a burst
				next += behind / Tick * Tick
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

// round does what a tick must do, and tells whether the next one may wait.
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
			s.ifb = 0
			clear(s.readings)
			l.logger.Debug("read queues", "device", s.Device, "err", err)
			continue
		}
		congested := s.receiver.Sample(now, s.readings)
		if s.receiver.Busy(now) && l.sources.Due(now) {
			if err := l.sources.Update(now, l.programs.Sources); err != nil {
				l.logger.Warn("read sources", "err", err)
			}
		}
		for i := range congested {
			l.tell(now, s, &congested[i])
		}
	}
	l.grow(now)
	return quiet && len(l.sender.held) == 0
}

// wakes looks at an idle link, now and then, and at what comes alone, which is one
// system call without Go's poller: only when it is half full are queues worth reading.
func (l *Loop) wakes(now time.Time, s *linkState) bool {
	elapsed := now.Sub(s.polled)
	if elapsed < idlePoll-Tick/2 || l.find(s) != nil {
		return false
	}
	s.polled = now
	clear(l.arrivals)
	if err := l.programs.Arrivals(l.arrivals); err != nil {
		l.logger.Debug("read arrivals", "device", s.Device, "err", err)
		return false
	}
	var came uint64
	for class, a := range l.arrivals {
		if class.Link == s.ifb {
			came += a.Bytes
		}
	}
	more := came - s.came
	s.came = came
	if float64(more) <= elapsed.Seconds()*float64(s.Limit())/2 {
		return false
	}
	clear(s.readings)
	s.receiver.Wake(now)
	return true
}

// find looks the link's IFB device up.
func (l *Loop) find(s *linkState) error {
	if s.ifb != 0 {
		return nil
	}
	uplink, err := l.conn.LinkIndex(s.Device)
	if err != nil {
		return err
	}
	s.ifb, err = l.conn.LinkIndex(contracts.IFBName(uplink))
	return err
}

// read takes the readings of a link's ingress classes.
func (l *Loop) read(s *linkState) error {
	if err := l.find(s); err != nil {
		return err
	}
	// Arrivals first: what comes between the two readings must not look lost.
	clear(l.arrivals)
	if err := l.programs.Arrivals(l.arrivals); err != nil {
		return err
	}
	active := s.active[:0]
	for id := range s.receiver.classes {
		r, known := s.readings[id]
		came := l.arrivals[classify.Class{Link: s.ifb, ID: counted(id)}].Bytes
		if !known || came != r.Arrived || r.Waiting > 0 { // nothing else can have moved
			active = append(active, id)
		}
		r.Arrived = came
		s.readings[id] = r
	}
	s.active = active
	if len(active) <= singleReads {
		return l.readEach(s)
	}
	return l.readAll(s)
}

// counted returns what the classifier calls a class: 0 for what it does not know.
func counted(class uint32) uint32 {
	if class == contracts.DefaultClass {
		return 0
	}
	return class
}

// singleReads is up to how many classes are cheaper to read one by one than all at once.
const singleReads = 8

func (s *linkState) put(k *tc.Class) {
	r := s.readings[uint32(k.Handle)]
	r.Left, r.Waiting = k.Stats.Bytes, uint64(k.Stats.Backlog)
	s.readings[uint32(k.Handle)] = r
}

// readEach reads the queues of the classes that are in use.
func (l *Loop) readEach(s *linkState) error {
	for _, id := range s.active {
		k, err := l.conn.Class(s.ifb, tc.Handle(id))
		if err != nil {
			return err
		}
		s.put(&k)
	}
	return nil
}

// readAll reads the queues of all classes.
func (l *Loop) readAll(s *linkState) (err error) {
	if s.classes, err = l.conn.Classes(s.ifb, s.classes[:0]); err != nil {
		return err
	}
	found := 0
	for i := range s.classes {
		if _, ours := s.readings[uint32(s.classes[i].Handle)]; ours {
			s.put(&s.classes[i])
			found++
		}
	}
	if found < len(s.readings) {
		return fmt.Errorf("%d of %d classes are there", found, len(s.readings))
	}
	return nil
}

// prune forgets arrivals of classes and devices that are gone, once there are any.
func (l *Loop) prune() {
	classes := 0
	for _, s := range l.links {
		if s.ifb == 0 {
			return
		}
		classes += len(s.receiver.classes)
	}
	if len(l.arrivals) <= classes {
		return
	}
	known := make(map[classify.Class]bool, classes)
	for _, s := range l.links {
		for id := range s.receiver.classes {
			known[classify.Class{Link: s.ifb, ID: counted(id)}] = true
		}
	}
	if err := l.programs.Prune(func(c classify.Class) bool { return known[c] }); err != nil {
		l.logger.Warn("forget what came for devices that are gone", "err", err)
	}
}

func (l *Loop) housekeep(now time.Time) {
	if err := l.kernel.SweepPairs(); err != nil {
		l.logger.Warn("sweep expired limits", "err", err)
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
	for key, o := range l.out {
		if now.Sub(o.sent) > forgetSource {
			delete(l.out, key)
		}
	}
}
