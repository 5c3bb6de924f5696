package sender

import (
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"vigia/internal/testutil"
	"vigia/probes/eventloop"
	"vigia/probes/protocol"
	"vigia/probes/sockets"
)

// counted counts the wake-ups of an engine.
type counted struct {
	*engine
	wakeups atomic.Int64
}

func (c *counted) Ready(events []eventloop.Event) int64 {
	c.wakeups.Add(1)
	return c.engine.Ready(events)
}

// TestOneWakeUpForAProbe: send stamps and answers wait for the next probe, deadlines that
// were met wake nobody.
func TestOneWakeUpForAProbe(t *testing.T) {
	at := reflectOnLoopback(t)
	rec := &idle{}
	s, err := New(Options{Logger: slog.New(slog.DiscardHandler), NewRecorder: func(Target) Recorder { return rec }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tg := target("b", at)
	tg.Interval = 20 * time.Millisecond
	if err := s.Apply([]Target{tg}); err != nil {
		t.Fatal(err)
	}
	c := &counted{engine: s.engine}
	done := make(chan error, 1)
	go func() { done <- s.engine.loop.Run(c) }()
	const probes = 200 // longer than the deadline and the wait for stamps
	testutil.WaitFor(t, "answers", func() bool { return rec.received.Load() >= probes })
	s.engine.loop.Stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	counts := s.engine.series[tg.Labels].counts
	// The first, the last, and one for a stray signal or two.
	if wakeups := c.wakeups.Load(); wakeups > int64(counts.Handed)+5 || counts.LostTotal() != 0 {
		t.Errorf("%d wake-ups for %d probes, %d lost", wakeups, counts.Handed, counts.LostTotal())
	}
}

// TestAnswersAreReadWithoutAnotherProbe: when the next is far away they wait for a
// moment only.
func TestAnswersAreReadWithoutAnotherProbe(t *testing.T) {
	f := newSender(t, Options{})
	tg := target("b", reflectOnLoopback(t))
	f.apply(tg)
	f.waitFor("answers", func() bool { return f.status(tg.Labels).Counts.Received > 3 })
	later := tg
	later.Interval, later.Deadline = time.Hour, time.Minute
	f.apply(later)
	var before uint64
	if err := f.engine.loop.Do(func() {
		e, s := f.engine, f.engine.series[tg.Labels].current[0]
		before = s.series.counts.Received
		s.next = e.clock.Now()
		e.due.set(s, s.next)
	}); err != nil {
		t.Fatal(err)
	}
	f.waitFor("the answer, long before the deadline", func() bool {
		st := f.status(tg.Labels)
		return st.InFlight == 0 && st.Counts.Received > before
	})
	n := f.note(tg.Labels)
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.settled {
		if n.settled[i].State != protocol.Answered {
			t.Errorf("%+v", n.settled[i])
		}
	}
}

// TestSendStampsAreReadInTime: few wait in the receive buffer.
func TestSendStampsAreReadInTime(t *testing.T) {
	k := newSocket(sockets.Key{Local: netip.MustParseAddrPort("127.0.0.1:1")}, nil, 0, 1)
	for i := range maxUnread {
		if k.stampsDue() {
			t.Fatalf("stamps are due after %d probes", i)
		}
		k.handed(&session{}, uint64(i))
	}
	if !k.stampsDue() {
		t.Error("stamps are not due, and take the room of answers")
	}
	k.stampsRead = k.count
	if k.stampsDue() {
		t.Error("stamps are due that have just been read")
	}
}
