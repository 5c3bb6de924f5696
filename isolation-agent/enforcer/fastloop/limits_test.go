package fastloop

import (
	"errors"
	"strings"
	"testing"
	"time"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
	"vigia/isolation-agent/enforcer/scheduling"
)

var toP2 = vport.Destination{192, 168, 0, 2}

// hold has p1's limit to p2 in force for so long, by notices every second.
func (m *member) hold(t *testing.T, start time.Time, seconds int, first uint64) time.Time {
	t.Helper()
	now := start
	for i := range seconds + 1 {
		now = start.Add(time.Duration(i) * time.Second)
		m.received(now, raw(t, congest(first+uint64(i), 30*mbit), master(masterA)))
	}
	return now
}

func TestALimitIsShapedAtOnce(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	now := m.hold(t, time.Now(), 0, 3)
	class := m.kernel.pairs[toP2].Class
	if class == 0 || m.scheduler.classes[class] != uint64(30*mbit) || len(m.scheduler.classes) != 1 {
		t.Fatalf("at first: %+v, classes %v", m.kernel.pairs[toP2], m.scheduler.classes)
	}
	if now = m.hold(t, now, 2, 10); m.kernel.pairs[toP2].Class != class || m.scheduler.next != 1 {
		t.Errorf("notices make it anew: %+v, %d classes were made", m.kernel.pairs[toP2], m.scheduler.next)
	}
	m.grow(now.Add(800 * time.Millisecond))
	if got := m.kernel.pairs[toP2]; got.Class != class || m.scheduler.classes[class] != got.Rate || got.Rate <= uint64(30*mbit) {
		t.Errorf("grown: %+v, classes %v", got, m.scheduler.classes)
	}
	if m.ReleaseAll() != 1 || len(m.scheduler.classes) != 0 || len(m.kernel.pairs) != 0 {
		t.Errorf("released: classes %v, kernel %v", m.scheduler.classes, m.kernel.pairs)
	}
}

func TestAClassIsGivenBackHoweverTheLimitEnds(t *testing.T) {
	for name, end := range map[string]func(*member, time.Time){
		"it grows out":       func(m *member, now time.Time) { m.grow(now.Add(time.Hour)) },
		"it is released":     func(m *member, _ time.Time) { m.ReleaseAll() },
		"its port goes":      func(m *member, now time.Time) { m.inventory = inventory{}; m.grow(now.Add(time.Second)) },
		"the kernel refuses": func(m *member, now time.Time) { m.kernel.err = errors.New("no room"); m.take(t, congest(100, 26*mbit)) },
	} {
		m := newMember(t)
		m.meet(t, 5)
		now := m.hold(t, time.Now().Add(-2*time.Second), 2, 3)
		if len(m.scheduler.classes) != 1 {
			t.Fatalf("%s: classes %v", name, m.scheduler.classes)
		}
		end(m, now)
		if len(m.scheduler.classes) != 0 || len(m.classes) != 0 || len(m.Limits()) != 0 {
			t.Errorf("%s: classes %v, known %v, limits %v", name, m.scheduler.classes, m.classes, m.Limits())
		}
	}
}

func TestWithoutAClassALimitIsPoliced(t *testing.T) {
	for name, change := range map[string]func(*member){
		"no scheduler": func(m *member) { m.scheduler.err = scheduling.ErrNoClass },
		"a program before the buffer": func(m *member) {
			m.inventory = inventory{"p1": ports.Port{ID: "p1", Tenant: "red", Index: 1, DataPlane: ports.OVSUserspace}}
		},
	} {
		m := newMember(t)
		m.meet(t, 5)
		change(m)
		m.hold(t, time.Now(), 3, 3)
		if got := m.kernel.pairs[toP2]; got.Class != 0 || got.Rate != uint64(30*mbit) || len(m.scheduler.classes) != 0 {
			t.Errorf("%s: %+v, classes %v", name, got, m.scheduler.classes)
		}
	}
}

func TestWhileASchedulerFailsALimitIsPoliced(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	start := time.Now()
	m.hold(t, start, 1, 3)
	m.scheduler.err = errors.New("no buffer space available")
	m.hold(t, start.Add(3*time.Second), 0, 10)
	if got := m.kernel.pairs[toP2]; len(m.Limits()) != 1 || got.Class != 0 || got.Rate != uint64(30*mbit) || !strings.Contains(m.log.String(), "cannot shape a limit") {
		t.Errorf("limits %+v, in the kernel %+v, log\n%s", m.Limits(), got, m.log)
	}
}

func TestAClassThatTheKernelDoesNotTakeIsGivenBack(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	m.kernel.err = errors.New("no room")
	m.hold(t, time.Now(), 0, 3) // the class is new, and the limit that leads to it is refused
	if m.scheduler.next != 1 || len(m.scheduler.classes) != 0 || len(m.classes) != 0 {
		t.Errorf("%d classes were made, %v are left, known are %v", m.scheduler.next, m.scheduler.classes, m.classes)
	}
}

func TestALimitWhoseClassGoesIsPolicedAgain(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	start := time.Now()
	m.hold(t, start, 2, 3)
	m.scheduler.err = scheduling.ErrNoClass // the contract has left the links
	m.hold(t, start.Add(3*time.Second), 0, 10)
	if got := m.kernel.pairs[toP2]; got.Class != 0 || len(m.scheduler.classes) != 0 || len(m.classes) != 0 {
		t.Errorf("%+v, classes %v, known %v", got, m.scheduler.classes, m.classes)
	}
}

// TestWhatIsPolicedMayPassInBurstsOfADatagram: a limit leaves room for one datagram of the
// largest size, and begins with next to nothing.
func TestWhatIsPolicedMayPassInBurstsOfADatagram(t *testing.T) {
	for rate, want := range map[float64]vport.Pair{
		24:   {Rate: 24 * mbit, Burst: 64 << 10, Start: 24 * mbit / 50, TTL: outlives},
		1000: {Rate: 1000 * mbit, Burst: 1000 * mbit / 50, Start: 1000 * mbit / 50, TTL: outlives},
		0.1:  {Rate: 12_500, Burst: 64 << 10, Start: minStart, TTL: outlives},
		0:    {Rate: 1, Burst: 64 << 10, Start: minStart, TTL: outlives},
	} {
		m := newMember(t)
		m.scheduler.err = scheduling.ErrNoClass
		limit := &control.Limit{LimitKey: control.LimitKey{Port: "p1", Destination: control.Address(toP2)}, Rate: rate * mbit, Since: time.Now()}
		if err := m.enforce(limit, 1); err != nil {
			t.Fatal(err)
		}
		if got := m.kernel.pairs[toP2]; got != want {
			t.Errorf("%v Mbit/s: %+v, want %+v", rate, got, want)
		}
	}
}

// TestAPortWithLimitsToTooManyDestinationsIsHeldAsAWhole: its tenant, who chooses the destinations, can have it so. The
// one that is refused leaves nothing behind and no error in the log, and the asker's next notice, of the port, is obeyed.
func TestAPortWithLimitsToTooManyDestinationsIsHeldAsAWhole(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	m.kernel.full = true
	narrow := congest(3, 30*mbit)
	m.take(t, narrow)
	if got := m.sent(t); got.Kind != notice.Nack || got.Reason != notice.Failed || len(m.Limits()) != 0 || len(m.scheduler.classes) != 0 {
		t.Errorf("answered %+v, limits %+v, classes %v", got, m.Limits(), m.scheduler.classes)
	}
	if strings.Contains(m.log.String(), "level=ERROR") || !strings.Contains(m.log.String(), "cannot limit a source") {
		t.Errorf("log\n%s", m.log)
	}
	whole := congest(4, 30*mbit)
	whole.Destination = notice.Notice{}.Destination
	m.take(t, whole)
	if got := m.sent(t); got.Kind != notice.Ack || m.kernel.pairs[vport.Everything].Rate != uint64(30*mbit) || len(m.kernel.pairs) != 1 {
		t.Errorf("answered %+v, in the kernel %+v", got, m.kernel.pairs)
	}
}
