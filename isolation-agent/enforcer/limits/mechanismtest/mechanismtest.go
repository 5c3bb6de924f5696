// Package mechanismtest has what every mechanism of limits must do, as tests. A
// mechanism's own tests run it against the kernel, or the device, that it drives.
package mechanismtest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/limits"
)

// Subject is a mechanism and ports to try it on.
type Subject struct {
	Mechanism limits.Mechanism
	Target    limits.Target // a port, without limits, that the mechanism suits
	Other     limits.Target // another such port
	Gone      limits.Target // a port whose interface is gone
	// Unsuited tells which limits the mechanism leaves to others on all ports; nil for
	// none. It may not tell so of limits of bytes alone.
	Unsuited func(limits.Limit) bool
}

// suits reports whether the mechanism has to take a limit.
func (s *Subject) suits(l limits.Limit) bool {
	return s.Unsuited == nil || l.PacketsPerSecond == 0 && l.NewFlowsPerSecond == 0 || !s.Unsuited(l)
}

// Run tests a mechanism; setup makes a fresh one with fresh ports.
func Run(t *testing.T, setup func(*testing.T) Subject) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Subject){
		"without a limit there is none":      without,
		"a limit reads back as it was put":   readsBack,
		"a renewal keeps age and identity":   renewal,
		"a limit is one port's":              onePort,
		"removal ends a limit and frees all": removal,
		"a limit ends by itself":             expiry,
		"a port that is gone":                gone,
	} {
		t.Run(name, func(t *testing.T) { test(t, setup(t)) })
	}
}

// Limit returns a limit of a new action.
func Limit(bytesPerSecond uint64) limits.Limit {
	return limits.Limit{ID: uuid.New(), Protocol: limits.UDP, BytesPerSecond: bytesPerSecond, BurstBytes: 64 << 10}
}

func without(t *testing.T, s Subject) {
	if state, err := s.Mechanism.Read(&s.Target.Port); !errors.Is(err, limits.ErrNone) {
		t.Errorf("there is %+v, %v", state, err)
	}
	if err := s.Mechanism.Remove(&s.Target.Port); err != nil {
		t.Errorf("removing none: %v", err)
	}
}

func readsBack(t *testing.T, s Subject) {
	for _, l := range []limits.Limit{
		Limit(1_000_000),
		{ID: uuid.New(), Protocol: limits.Everything, BytesPerSecond: 2_000_000, BurstBytes: 100_000},
		{ID: uuid.New(), Protocol: limits.UDP, BytesPerSecond: 3_000_000, BurstBytes: 1 << 20, PacketsPerSecond: 700},
		{ID: uuid.New(), Protocol: limits.Everything, BytesPerSecond: 4_000_000, BurstBytes: 1 << 20, PacketsPerSecond: 800, NewFlowsPerSecond: 90},
	} {
		err := s.Mechanism.Apply(s.Target, l, time.Minute)
		if !s.suits(l) {
			if state, none := s.Mechanism.Read(&s.Target.Port); !errors.Is(err, limits.ErrUnsuited) || !errors.Is(none, limits.ErrNone) {
				t.Errorf("%+v is for others: %v; in force is %+v, %v", l, err, state, none)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%+v: %v", l, err)
		}
		got, err := s.Mechanism.Read(&s.Target.Port)
		if err != nil || got.Limit != l {
			t.Errorf("put %+v, read %+v, %v", l, got.Limit, err)
		}
		if got.Stale || (s.Mechanism.Expires() && (got.ExpiresIn <= 0 || got.ExpiresIn > time.Minute)) {
			t.Errorf("%+v: stale %v, expires in %s", l, got.Stale, got.ExpiresIn)
		}
		if err := s.Mechanism.Remove(&s.Target.Port); err != nil {
			t.Fatal(err)
		}
	}
}

// noticeable is an age by which a limit that was renewed can be told from one that is new.
const noticeable = 200 * time.Millisecond

func renewal(t *testing.T, s Subject) {
	l := Limit(1_000_000)
	if err := s.Mechanism.Apply(s.Target, l, limits.MaxTTL/4); err != nil {
		t.Fatal(err)
	}
	first, err := s.Mechanism.Read(&s.Target.Port)
	if err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, "the limit to get older", func() bool {
		now, err := s.Mechanism.Read(&s.Target.Port)
		return err == nil && now.Age > first.Age+noticeable
	})
	before, err := s.Mechanism.Read(&s.Target.Port)
	if err != nil {
		t.Fatal(err)
	}
	l.BytesPerSecond, l.Protocol = 5_000_000, limits.Everything
	s.Target.Age += before.Age
	if err := s.Mechanism.Apply(s.Target, l, limits.MaxTTL); err != nil {
		t.Fatal(err)
	}
	after, err := s.Mechanism.Read(&s.Target.Port)
	if err != nil || after.Limit != l || after.Age < before.Age {
		t.Errorf("after a renewal %+v, %v; it was %s old and is %s", after.Limit, err, before.Age, after.Age)
	}
	if s.Mechanism.Expires() && after.ExpiresIn <= limits.MaxTTL/4 {
		t.Errorf("it was renewed for a minute, and expires in %s", after.ExpiresIn)
	}
}

func onePort(t *testing.T, s Subject) {
	first, second := Limit(1_000_000), Limit(2_000_000)
	if err := s.Mechanism.Apply(s.Target, first, time.Minute); err != nil {
		t.Fatal(err)
	}
	if state, err := s.Mechanism.Read(&s.Other.Port); !errors.Is(err, limits.ErrNone) {
		t.Errorf("the other port has %+v, %v", state.Limit, err)
	}
	if err := s.Mechanism.Apply(s.Other, second, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := s.Mechanism.Remove(&s.Target.Port); err != nil {
		t.Fatal(err)
	}
	if state, err := s.Mechanism.Read(&s.Other.Port); err != nil || state.Limit != second {
		t.Errorf("after the removal of the first the other port has %+v, %v", state.Limit, err)
	}
}

func removal(t *testing.T, s Subject) {
	for range 3 {
		l := Limit(1_000_000)
		if err := s.Mechanism.Apply(s.Target, l, time.Minute); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.Mechanism.Remove(&s.Target.Port); err != nil {
				t.Fatal(err)
			}
			if state, err := s.Mechanism.Read(&s.Target.Port); !errors.Is(err, limits.ErrNone) {
				t.Errorf("after its removal: %+v, %v", state, err)
			}
		}
	}
}

func expiry(t *testing.T, s Subject) {
	if err := s.Mechanism.Apply(s.Target, Limit(1_000_000), time.Second); err != nil {
		t.Fatal(err)
	}
	if !s.Mechanism.Expires() {
		if _, err := s.Mechanism.Read(&s.Target.Port); err != nil {
			t.Errorf("a limit that does not end by itself: %v", err)
		}
		return
	}
	testutil.WaitFor(t, "the limit to end by itself", func() bool {
		_, err := s.Mechanism.Read(&s.Target.Port)
		return errors.Is(err, limits.ErrNone)
	})
	if err := s.Mechanism.Remove(&s.Target.Port); err != nil { // it gives back what the limit took
		t.Error(err)
	}
	l := Limit(2_000_000)
	if err := s.Mechanism.Apply(s.Target, l, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Mechanism.Read(&s.Target.Port); err != nil || got.Limit != l {
		t.Errorf("the next limit: %+v, %v", got.Limit, err)
	}
}

func gone(t *testing.T, s Subject) {
	if err := s.Mechanism.Apply(s.Gone, Limit(1_000_000), time.Minute); err == nil {
		t.Error("a limit was put")
	}
	if state, err := s.Mechanism.Read(&s.Gone.Port); err == nil {
		t.Errorf("there is %+v", state)
	}
	if err := s.Mechanism.Remove(&s.Gone.Port); err != nil {
		t.Errorf("removing: %v", err)
	}
}
