package attribution

import (
	"context"
	"sync"
	"time"
)

// fullRatio is the use of one processor from which ovs-vswitchd counts as full: what it
// forwards for all ports of a bridge is one thread's work.
const fullRatio = 0.9

// saturation counts the time for which a process used a processor whole, second by second:
// to who reads counters every 15 s, a flood of five seconds looks like a busy switch.
type saturation struct {
	mu   sync.Mutex
	full float64 // seconds so far
	last reading
}

// reading is a process's processor time at a moment.
type reading struct {
	at      time.Time
	pid     int // 0 for none
	seconds float64
}

// saw takes the next reading. A process that is another one than before starts anew.
func (s *saturation) saw(now reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.last
	s.last = now
	if now.pid == 0 || now.pid != before.pid {
		return
	}
	passed := now.at.Sub(before.at).Seconds()
	if passed > 0 && now.seconds-before.seconds >= fullRatio*passed {
		s.full += passed
	}
}

func (s *saturation) seconds() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}

// Run watches ovs-vswitchd each second until ctx ends. What cannot be read is what Collect
// reports, and starts the count anew.
func (s *Source) Run(ctx context.Context) {
	if s.runDir == "" {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		s.saturation.saw(s.reading())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Source) reading() reading {
	pid, seconds, err := s.vswitchd()
	if err != nil {
		pid = 0
	}
	return reading{at: time.Now(), pid: pid, seconds: seconds}
}
