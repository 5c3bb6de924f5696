package leaderterm

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"vigia/internal/testutil"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestOlderTermsAreRefusedAlsoByALaterProcess(t *testing.T) {
	dir := testutil.NewBPFFS(t)
	s := open(t, dir)
	if got := s.Highest(); got != 0 {
		t.Errorf("term %d before any command", got)
	}
	for _, step := range []struct {
		term    uint64
		stale   bool
		highest uint64
	}{{3, false, 3}, {3, false, 3}, {2, true, 3}, {0, true, 3}, {7, false, 7}, {3, true, 7}} {
		if err := s.Admit(step.term); errors.Is(err, ErrStale) != step.stale || (err != nil) != step.stale {
			t.Errorf("term %d: %v", step.term, err)
		}
		if s.Highest() != step.highest {
			t.Errorf("after term %d the highest is %d, want %d", step.term, s.Highest(), step.highest)
		}
	}
	s.Close()
	if again := open(t, dir); again.Highest() != 7 || !errors.Is(again.Admit(6), ErrStale) {
		t.Errorf("a new process knows of term %d", again.Highest())
	}
}

func TestATermThatCannotBeKeptIsNotAdmitted(t *testing.T) {
	s := open(t, testutil.NewBPFFS(t))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Admit(1); err == nil || errors.Is(err, ErrStale) {
		t.Errorf("got %v", err)
	}
	if s.Highest() != 0 {
		t.Error("the term counts although it would not outlive the process")
	}
}

func TestThePinDirectoryMustBeABPFFS(t *testing.T) {
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("a folder of another file system was taken")
	}
}

// TestOfManyCommandsTheHighestTermWins lets commands of many terms come at once: whatever
// the order, none is admitted after a higher one.
func TestOfManyCommandsTheHighestTermWins(t *testing.T) {
	s := open(t, testutil.NewBPFFS(t))
	var wg sync.WaitGroup
	for worker := range uint64(8) {
		wg.Go(func() {
			for i := range uint64(200) {
				before := s.Highest()
				term := i*8 + worker
				err := s.Admit(term)
				switch {
				case err == nil && s.Highest() < term:
					t.Errorf("term %d was admitted, and the highest is %d", term, s.Highest())
				case err == nil && term < before:
					t.Errorf("term %d was admitted after %d", term, before)
				case err != nil && !errors.Is(err, ErrStale):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if s.Highest() != 199*8+7 {
		t.Errorf("the highest is %d", s.Highest())
	}
}

func TestTwoProcessesShareTheTermByItsPin(t *testing.T) {
	dir := testutil.NewBPFFS(t)
	first := open(t, dir)
	if err := first.Admit(MaxStep); err != nil {
		t.Fatal(err)
	}
	if got := open(t, dir).Highest(); got != MaxStep {
		t.Errorf("another process reads %d", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "enforcer", mapName)); err != nil {
		t.Errorf("the pin: %v", err)
	}
}

// TestOneWildTermLocksNobodyOut sends the highest number there is, and numbers around it: the leaders that
// follow each other by one are heard as before.
func TestOneWildTermLocksNobodyOut(t *testing.T) {
	s := open(t, testutil.NewBPFFS(t))
	if err := s.Admit(7); err != nil {
		t.Fatal(err)
	}
	for _, wild := range []uint64{7 + MaxStep + 1, last - 1, last, math.MaxInt64, math.MaxUint64 - 1, math.MaxUint64} {
		if err := s.Admit(wild); !errors.Is(err, ErrTooFar) {
			t.Errorf("term %d: %v", wild, err)
		}
		if got := s.Highest(); got != 7 {
			t.Fatalf("after term %d the highest is %d", wild, got)
		}
	}
	for _, next := range []uint64{7, 8, 8 + MaxStep} {
		if err := s.Admit(next); err != nil {
			t.Errorf("term %d of a later leader: %v", next, err)
		}
	}
}

// TestATermThatNobodyFollowsIsForgotten finds a term that an earlier version took, which took any.
func TestATermThatNobodyFollowsIsForgotten(t *testing.T) {
	for _, kept := range []struct{ term, want uint64 }{{last - 1, last - 1}, {last, 0}, {math.MaxUint64, 0}} {
		dir := testutil.NewBPFFS(t)
		s := open(t, dir)
		if err := s.term.Put(uint32(0), kept.term); err != nil {
			t.Fatal(err)
		}
		if again := open(t, dir); again.Highest() != kept.want {
			t.Errorf("term %d is %d after a restart, want %d", kept.term, again.Highest(), kept.want)
		}
		if third := open(t, dir); third.Highest() != kept.want {
			t.Errorf("term %d is %d after a second restart, want %d", kept.term, third.Highest(), kept.want)
		}
	}
}

func TestAnotherMapInTheTermsPlaceIsRefused(t *testing.T) {
	dir := testutil.NewBPFFS(t)
	if err := os.MkdirAll(filepath.Join(dir, "enforcer"), 0o700); err != nil {
		t.Fatal(err)
	}
	other, err := ebpf.NewMap(&ebpf.MapSpec{Name: "other", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Pin(filepath.Join(dir, "enforcer", mapName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a map of another kind was taken for the term's")
	}
}
