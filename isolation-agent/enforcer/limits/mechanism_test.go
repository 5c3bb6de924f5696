package limits_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/refusal"
)

// device is a mechanism that the test can make refuse, fail or forget. What it has in
// force outlives the process, as a switch's meters do.
type device struct {
	limits   map[string]limits.State
	expires  bool
	applyErr error
	readErr  error
	stays    error // Remove fails
	applied  int
}

func newDevice(expires bool) *device {
	return &device{limits: map[string]limits.State{}, expires: expires}
}

func (d *device) Apply(t limits.Target, l limits.Limit, ttl time.Duration) error {
	if d.applyErr != nil {
		return d.applyErr
	}
	d.applied++
	state := limits.State{Limit: l, Age: t.Age}
	if d.expires {
		state.ExpiresIn = ttl
	}
	d.limits[t.Port.ID] = state
	return nil
}

func (d *device) Read(port *ports.Port) (limits.State, error) {
	if d.readErr != nil {
		return limits.State{}, d.readErr
	}
	state, there := d.limits[port.ID]
	if !there {
		return limits.State{}, limits.ErrNone
	}
	return state, nil
}

func (d *device) Remove(port *ports.Port) error {
	if d.stays == nil {
		delete(d.limits, port.ID)
	}
	return d.stays
}

func (d *device) Expires() bool { return d.expires }

// newTable is a rig with these mechanisms, the best first.
func newTable(t *testing.T, devices ...*device) *rig {
	t.Helper()
	r := newRig(t)
	r.restartWith(t, devices...)
	return r
}

func (r *rig) restartWith(t *testing.T, devices ...*device) {
	t.Helper()
	var table []limits.Row
	for i, d := range devices {
		table = append(table, limits.Row{Name: fmt.Sprint("device", i), Mechanism: d})
	}
	r.start(t, table...)
}

// where tells which of the devices have a limit on p, as a string of 0 and 1.
func where(devices ...*device) string {
	var b strings.Builder
	for _, d := range devices {
		if _, there := d.limits["p"]; there {
			b.WriteByte('1')
		} else {
			b.WriteByte('0')
		}
	}
	return b.String()
}

func TestTheFirstMechanismThatSuitsTakesTheLimit(t *testing.T) {
	for _, tc := range []struct {
		errs []error // of each mechanism
		want string
	}{
		{[]error{nil, nil, nil}, "100"},
		{[]error{limits.ErrUnsuited, nil, nil}, "010"},
		{[]error{limits.ErrUnsuited, limits.ErrNotAttached, nil}, "001"},
		{[]error{errKernel, nil, nil}, "010"}, // one that fails is no reason to let the port go
		{[]error{fmt.Errorf("too early: %w", limits.ErrUnsuited), errKernel, nil}, "001"},
	} {
		devices := []*device{newDevice(true), newDevice(true), newDevice(true)}
		for i, err := range tc.errs {
			devices[i].applyErr = err
		}
		r := newTable(t, devices...)
		got := r.apply(t, ask(2000))
		if where(devices...) != tc.want || got.BytesPerSecond != 2000 {
			t.Errorf("%v: %s has it, want %s", tc.errs, where(devices...), tc.want)
		}
	}
}

func TestALimitThatNoMechanismTakesIsNoLimit(t *testing.T) {
	for _, tc := range []struct {
		errs []error
		code refusal.Code
		is   error
	}{
		{[]error{limits.ErrNotAttached, limits.ErrUnsuited}, refusal.NotAttached, nil},
		{[]error{limits.ErrUnsuited, limits.ErrUnsuited}, 0, limits.ErrUnsuited},
		{[]error{errKernel, limits.ErrUnsuited}, 0, errKernel},
		{[]error{errKernel, limits.ErrNotAttached}, 0, errKernel},
	} {
		devices := []*device{newDevice(true), newDevice(true)}
		for i, err := range tc.errs {
			devices[i].applyErr = err
		}
		r := newTable(t, devices...)
		_, err := r.Apply("p", ask(2000))
		if err == nil || refusal.CodeOf(err) != tc.code || (tc.is != nil && !errors.Is(err, tc.is)) || where(devices...) != "00" {
			t.Errorf("%v: %v, %s has it", tc.errs, err, where(devices...))
		}
		if r.counts[limits.Set] != 0 {
			t.Errorf("%v: counted as set", tc.errs)
		}
	}
}

func TestABetterMechanismTakesOverOnceItSuits(t *testing.T) {
	best, usual := newDevice(true), newDevice(true)
	best.applyErr = limits.ErrUnsuited
	r := newTable(t, best, usual)
	r.apply(t, ask(2000))
	if r.Observe(); where(best, usual) != "01" {
		t.Errorf("before: %s", where(best, usual))
	}
	best.applyErr = nil
	if r.Observe(); where(best, usual) != "10" {
		t.Errorf("after: %s", where(best, usual))
	}
	if r.Observe(); best.applied != 1 {
		t.Errorf("applied %d times", best.applied)
	}
	if !strings.Contains(r.log.String(), "limit handed over") {
		t.Errorf("the log does not say so:\n%s", r.log)
	}
}

func TestARenewalThatAnotherMechanismTakesEndsTheFirst(t *testing.T) {
	first, second := newDevice(true), newDevice(true)
	r := newTable(t, first, second)
	req := ask(2000)
	r.apply(t, req)
	first.applyErr = limits.ErrUnsuited
	if got := r.apply(t, req); where(first, second) != "01" || got.ID != req.ID || r.counts[limits.Extend] != 1 {
		t.Errorf("%s has it, %+v", where(first, second), got)
	}
}

// TestAMechanismThatDoesNotLetGoIsTriedAgain: two limits would be in force, and the one
// that is not meant might never end.
func TestAMechanismThatDoesNotLetGoIsTriedAgain(t *testing.T) {
	best, usual := newDevice(true), newDevice(false)
	best.applyErr = limits.ErrUnsuited
	r := newTable(t, best, usual)
	req := ask(2000)
	r.apply(t, req)
	best.applyErr, usual.stays = nil, errKernel
	if _, err := r.Apply("p", req); !errors.Is(err, errKernel) {
		t.Errorf("got %v", err)
	}
	for range 2 {
		if r.Observe(); where(best, usual) != "11" {
			t.Errorf("%s have it", where(best, usual))
		}
	}
	if !strings.Contains(r.log.String(), "cannot end a limit that another mechanism has taken over") {
		t.Errorf("the log does not say so:\n%s", r.log)
	}
	usual.stays = nil
	if r.Observe(); where(best, usual) != "10" {
		t.Errorf("%s have it", where(best, usual))
	}
	// What was given up is not removed once it is in force again.
	usual.stays = errKernel
	best.applyErr = limits.ErrUnsuited
	best.stays = errKernel
	if _, err := r.Apply("p", req); !errors.Is(err, errKernel) {
		t.Errorf("got %v", err)
	}
	best.applyErr, best.stays = nil, nil
	if _, err := r.Apply("p", req); !errors.Is(err, errKernel) || where(best, usual) != "11" {
		t.Errorf("%s have it, %v", where(best, usual), err)
	}
	usual.stays = nil
	if r.Observe(); where(best, usual) != "10" {
		t.Errorf("%s have it", where(best, usual))
	}
	if got := r.apply(t, req); got.ID != req.ID || where(best, usual) != "10" {
		t.Errorf("%s have it, %+v", where(best, usual), got)
	}
}

func TestALimitThatDoesNotEndByItselfIsEnded(t *testing.T) {
	d := newDevice(false)
	r := newTable(t, d)
	if got := r.apply(t, ask(2000)); got.ExpiresIn != time.Minute {
		t.Errorf("expires in %s", got.ExpiresIn)
	}
	r.now = r.now.Add(59 * time.Second)
	r.Observe()
	if list, err := r.State(); err != nil || list[0].Limit == nil || list[0].Limit.ExpiresIn != time.Second {
		t.Errorf("a second before its end: %+v, %v", list, err)
	}
	d.stays = errKernel
	r.now = r.now.Add(time.Second)
	if r.Observe(); r.counts[limits.Expire] != 0 || !strings.Contains(r.log.String(), "cannot remove what is left of a limit") {
		t.Errorf("counted %v, though it is in force:\n%s", r.counts, r.log)
	}
	d.stays = nil
	r.Observe()
	r.Observe()
	if where(d) != "0" || r.counts[limits.Expire] != 1 {
		t.Errorf("after its end: %s, counted %v", where(d), r.counts)
	}
}

func TestARenewalMovesTheEndThatLimitsKeeps(t *testing.T) {
	d := newDevice(false)
	r := newTable(t, d)
	req := ask(2000)
	r.apply(t, req)
	r.now = r.now.Add(50 * time.Second)
	r.apply(t, req)
	r.now = r.now.Add(50 * time.Second)
	if r.Observe(); where(d) != "1" {
		t.Error("the renewal did not count")
	}
	r.now = r.now.Add(11 * time.Second)
	if r.Observe(); where(d) != "0" {
		t.Error("it does not end")
	}
}

// TestAfterARestartOnlyLimitsThatEndByThemselvesAreKept: the end of the others was known
// to the process that died, and a punishment must not outlive it.
func TestAfterARestartOnlyLimitsThatEndByThemselvesAreKept(t *testing.T) {
	for _, expires := range []bool{true, false} {
		d := newDevice(expires)
		r := newTable(t, d)
		r.apply(t, ask(2000))
		r.restartWith(t, d)
		r.Observe()
		want := map[bool]string{true: "1", false: "0"}[expires]
		if where(d) != want {
			t.Errorf("it ends by itself: %v; %s have it", expires, where(d))
		}
	}
}

func TestALimitWhoseEndIsKnownIsKept(t *testing.T) {
	d := newDevice(false)
	r := newTable(t, d)
	r.apply(t, ask(2000))
	state := d.limits["p"]
	state.ExpiresIn = 20 * time.Second
	d.limits["p"] = state
	r.restartWith(t, d)
	if r.Observe(); where(d) != "1" {
		t.Error("it was ended though its end is known")
	}
	r.now = r.now.Add(21 * time.Second)
	if r.Observe(); where(d) != "0" {
		t.Error("it does not end")
	}
}

// TestAPortWithoutADeviceIsHeldByWhoeverCan: no program can be at it, which is no reason to let it go.
func TestAPortWithoutADeviceIsHeldByWhoeverCan(t *testing.T) {
	program, other := newDevice(true), newDevice(false)
	program.readErr, program.applyErr = limits.ErrNotAttached, limits.ErrNotAttached
	r := newTable(t, program, other)
	(*r.inventory)[0].Index = 0
	attached := func() bool {
		list, err := r.State()
		if err != nil {
			t.Fatal(err)
		}
		return list[0].Attached
	}
	if !attached() || len(r.PortsByIndex()) != 1 {
		t.Errorf("attached: %v, ports by index: %v", attached(), r.PortsByIndex())
	}
	r.apply(t, ask(2000))
	if r.Observe(); where(program, other) != "01" || r.kernel.bounds[0] != (vport.Bounds{}) || len(r.kernel.bounds) != 1 {
		t.Errorf("%s have it, bounds are %v", where(program, other), r.kernel.bounds)
	}
	delete(other.limits, "p") // somebody has taken it off the switch
	if r.Observe(); r.counts[limits.Expire] != 1 {
		t.Errorf("counted %v", r.counts)
	}
	for _, err := range []error{limits.ErrUnsuited, limits.ErrNotAttached} {
		other.applyErr = err
		if _, got := r.Apply("p", ask(2000)); refusal.CodeOf(got) != refusal.NotAttached || !strings.Contains(got.Error(), "no device in the kernel") {
			t.Errorf("%v: %v", err, got)
		}
	}
	other.readErr = limits.ErrNotAttached
	if attached() {
		t.Error("attached, though nothing would hold a limit")
	}
	program.readErr, other.readErr = nil, nil
	other.limits["p"] = limits.State{Limit: limits.Limit{BytesPerSecond: 1}, ExpiresIn: time.Minute}
	r.restartWith(t, program, other)
	if list, err := r.InForce(); err != nil || len(list) != 1 {
		t.Errorf("of a process that is gone: %v, %v", list, err)
	}
}

func TestALimitOutOfPlaceIsAppliedAnew(t *testing.T) {
	best, usual := newDevice(true), newDevice(true)
	best.applyErr = limits.ErrUnsuited
	r := newTable(t, best, usual)
	r.apply(t, ask(2000))
	state := usual.limits["p"]
	state.Stale = true
	usual.limits["p"] = state
	r.Observe()
	if got := usual.limits["p"]; got.Stale || usual.applied != 2 || got.ExpiresIn <= 0 || got.ExpiresIn > time.Minute {
		t.Errorf("%+v after %d times", got, usual.applied)
	}
	usual.limits["p"], usual.applyErr = state, errKernel
	r.Observe()
	if !strings.Contains(r.log.String(), "cannot apply a limit anew; it stays as it is") || where(best, usual) != "01" {
		t.Errorf("%s has it:\n%s", where(best, usual), r.log)
	}
}

func TestWithoutMechanismsNothingIsLimited(t *testing.T) {
	r := newRig(t)
	r.start(t)
	if _, err := r.Apply("p", ask(2000)); !errors.Is(err, limits.ErrUnsuited) {
		t.Errorf("got %v", err)
	}
	r.Observe()
	if n, err := r.RemoveAll(nil); n != 0 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
}

func TestAMechanismThatCannotBeReadStopsNobodyElse(t *testing.T) {
	good, broken := newDevice(true), newDevice(true)
	r := newTable(t, good, broken)
	req := ask(2000)
	r.apply(t, req)
	broken.readErr = errKernel
	if r.Observe(); r.counts[limits.Expire] != 0 { // the first has it: nobody needs to ask the second
		t.Errorf("counted %v", r.counts)
	}
	good.readErr = errKernel
	if _, err := r.Apply("p", req); !errors.Is(err, errKernel) {
		t.Errorf("applied on top of what nobody knows: %v", err)
	}
	if _, err := r.State(); !errors.Is(err, errKernel) {
		t.Errorf("state: %v", err)
	}
}
