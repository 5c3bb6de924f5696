package sender

import (
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
)

// background is a protocol whose probes goroutines of its own carry out; the sender has no
// socket for it.
type background struct{ worker *worker }

// worker carries out background probes as a test wants it to.
type worker struct {
	mu       sync.Mutex
	begun    []uint64 // sequence numbers
	ended    int      // calls of End with something under way
	work     func(sequence uint64) (protocol.Result, bool)
	refusals error
	unheard  bool // that a probe has ended does not reach the loop
}

func (background) Traits() protocol.Traits {
	return protocol.Traits{Name: "background", Title: "background", Noun: "a background task", Socketless: true, Port: 7, Flows: protocol.NewFlows}
}
func (background) CheckSize(int) (problem, fix string) { return "", "" }
func (p background) NewSession(s *protocol.Session) any {
	return &backgroundSession{worker: p.worker, session: s}
}

// backgroundSession carries out one probe at a time.
type backgroundSession struct {
	worker  *worker
	session *protocol.Session

	mu       sync.Mutex
	sequence uint64
	busy     bool
	result   *protocol.Result
}

func (x *backgroundSession) Begin(p *protocol.Probe) error {
	o := x.worker
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun = append(o.begun, p.Sequence)
	if o.refusals != nil {
		return o.refusals
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sequence, x.busy, x.result = p.Sequence, true, nil
	work, sequence := o.work, p.Sequence
	go func() {
		r, done := work(sequence)
		x.mu.Lock()
		if done && x.busy && x.sequence == sequence {
			x.result = &r
		}
		x.mu.Unlock()
		if !o.unheard {
			x.session.Wake()
		}
	}()
	return nil
}

func (x *backgroundSession) Ready() (protocol.Result, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.result == nil {
		return protocol.Result{}, false
	}
	return *x.result, true
}

func (x *backgroundSession) End() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.busy {
		x.busy, x.result = false, nil
		x.worker.mu.Lock()
		x.worker.ended++
		x.worker.mu.Unlock()
	}
	return nil
}

func backgroundTarget(o *worker, count uint64) Target {
	tg := target("b", netip.MustParseAddrPort("127.0.0.1:7"))
	tg.Protocol, tg.Size, tg.Count = background{o}, 0, count
	tg.Interval, tg.Deadline = 20*time.Millisecond, 20*time.Millisecond
	return tg
}

// unhurried gives a goroutine time to be run on a busy machine: what it has to tell is looked at until the next probe.
func unhurried(o *worker, count uint64) Target {
	tg := backgroundTarget(o, count)
	tg.Interval, tg.Deadline = time.Second, time.Second
	return tg
}

// TestProbesOutsideTheLoop carries probes out in goroutines: those that succeed count with
// the times that were measured there, those that fail or take too long are lost, and why is
// told.
func TestProbesOutsideTheLoop(t *testing.T) {
	t.Parallel()
	const rtt, probes = 3 * time.Millisecond, 12
	failure := errors.New("the worker is not there")
	// Deadlines are a matter of the machine, too: what fails never answers, and the rest
	// says that it was done long before.
	o := &worker{work: func(sequence uint64) (protocol.Result, bool) {
		switch sequence % 3 {
		case 1:
			return protocol.Result{Err: failure}, true
		case 2:
			return protocol.Result{}, false
		}
		return protocol.Result{RTT: rtt, At: 1, Detail: sequence}, true
	}}
	f := newSender(t, Options{})
	tg := unhurried(o, probes)
	f.apply(tg)
	st, settled := f.finish(tg.Labels)
	if !st.Open || len(f.engine.sockets) != 0 {
		t.Errorf("open %v, %d sockets", st.Open, len(f.engine.sockets))
	}
	if c := st.Counts; c.Received != probes/3 || c.Lost[accounting.Unknown] != 2*probes/3 || c.Handed != probes || c.Late+c.Duplicate+c.Corrupt != 0 {
		t.Errorf("%+v", c)
	}
	for i := range settled {
		p := &settled[i]
		answered := p.Sequence%3 == 0
		if (p.State == protocol.Answered) != answered {
			t.Errorf("probe %d: state %d", p.Sequence, p.State)
		}
		if answered && (p.Verdict != delay.Good || p.Stamps.RTT() != int64(rtt) || p.Detail != p.Sequence || !p.Stamps.OneClock) {
			t.Errorf("probe %d: %+v", p.Sequence, p)
		}
		if answered && (p.Application != int64(rtt) || p.ReadAt != 1 || p.Own.Known || !p.ApplicationKnown()) {
			t.Errorf("probe %d: it took %d ns and ended at %d, not as was told: %+v", p.Sequence, p.Application, p.ReadAt, p.Own)
		}
	}
	if !errors.Is(st.LastError, failure) {
		t.Errorf("last error %v", st.LastError)
	}
	f.apply() // the last, which is late for ever, ends with the target
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.begun) != probes || o.ended != probes {
		t.Errorf("%d begun, %d ended", len(o.begun), o.ended)
	}
}

// TestResultsThatTheLoopHasNotHeardOf: a loop that was starved comes to the deadline, or to the next probe, before it
// hears that the one before has ended. That was in time, and is no loss.
func TestResultsThatTheLoopHasNotHeardOf(t *testing.T) {
	t.Parallel()
	o := &worker{unheard: true, work: func(uint64) (protocol.Result, bool) { return protocol.Result{At: 1}, true }}
	f := newSender(t, Options{})
	tg := unhurried(o, 4)
	f.apply(tg)
	st, _ := f.finish(tg.Labels)
	if st.Counts.Received != 4 || st.Counts.LostTotal() != 0 {
		t.Errorf("%+v", st.Counts)
	}
}

// TestExchangeWithoutRTT has no delay but that of the application.
func TestExchangeWithoutRTT(t *testing.T) {
	t.Parallel()
	o := &worker{work: func(uint64) (protocol.Result, bool) { return protocol.Result{At: 1}, true }}
	f := newSender(t, Options{})
	tg := unhurried(o, 5)
	f.apply(tg)
	st, _ := f.finish(tg.Labels)
	if st.Counts.Received != 5 || st.Quarantined[delay.NoKernelStamp] != 5 {
		t.Errorf("%+v, quarantined %v", st.Counts, st.Quarantined)
	}
}

// TestRefusedBackgroundProbes cannot even begin.
func TestRefusedBackgroundProbes(t *testing.T) {
	o := &worker{refusals: unix.EPERM}
	f := newSender(t, Options{})
	tg := backgroundTarget(o, 5)
	f.apply(tg)
	st, _ := f.finish(tg.Labels)
	if st.Counts.Lost[accounting.SendError] != 5 || st.Counts.Refused != 5 || !errors.Is(st.LastError, unix.EPERM) {
		t.Errorf("%+v, %v", st.Counts, st.LastError)
	}
}

// TestBackgroundProbesEndWithTheirTarget: what is under way is given up when the target goes, and
// news that come later disturb nobody.
func TestBackgroundProbesEndWithTheirTarget(t *testing.T) {
	release := make(chan struct{})
	o := &worker{work: func(uint64) (protocol.Result, bool) { <-release; return protocol.Result{At: 1}, true }}
	f := newSender(t, Options{})
	tg := backgroundTarget(o, 0)
	tg.Interval, tg.Deadline = time.Hour, time.Minute
	other := backgroundTarget(&worker{work: func(uint64) (protocol.Result, bool) { return protocol.Result{At: 1}, true }}, 0)
	other.Labels.Dst = "other"
	f.apply(tg, other)
	f.engine.do(func() {
		s := f.engine.series[tg.Labels].current[0]
		f.engine.exchange(s, f.engine.clock.Now())
	})
	f.apply(other)
	o.mu.Lock()
	ended := o.ended
	o.mu.Unlock()
	if ended != 1 {
		t.Errorf("%d background probes ended with their target", ended)
	}
	close(release)
	before := f.status(other.Labels).Counts.Received
	f.waitFor("the other to go on", func() bool { return f.status(other.Labels).Counts.Received > before+5 })
	if n := f.note(tg.Labels); n.afterward != 0 {
		t.Errorf("%d measurements after the target was removed", n.afterward)
	}
}

// TestTargetWithoutProtocol is refused as a whole.
func TestTargetWithoutProtocol(t *testing.T) {
	f := newSender(t, Options{})
	tg := target("b", netip.MustParseAddrPort("127.0.0.1:7"))
	tg.Protocol = nil
	if err := f.Apply([]Target{tg}); err == nil {
		t.Error("a target without a protocol was taken")
	}
	f.apply() // and nothing is blocked
}
