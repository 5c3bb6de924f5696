package leaderterm

import (
	"errors"
	"testing"

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
	f := open(t, dir)
	if got := f.Highest(); got != 0 {
		t.Errorf("term %d before any command", got)
	}
	for _, step := range []struct {
		term    uint64
		stale   bool
		highest uint64
	}{{3, false, 3}, {3, false, 3}, {2, true, 3}, {0, true, 3}, {7, false, 7}, {3, true, 7}} {
		if err := f.Admit(step.term); errors.Is(err, ErrStale) != step.stale || (err != nil) != step.stale {
			t.Errorf("term %d: %v", step.term, err)
		}
		if f.Highest() != step.highest {
			t.Errorf("after term %d the highest is %d, want %d", step.term, f.Highest(), step.highest)
		}
	}
	f.Close()
	if again := open(t, dir); again.Highest() != 7 || !errors.Is(again.Admit(6), ErrStale) {
		t.Errorf("a new process knows of term %d", again.Highest())
	}
}

func TestATermThatCannotBeKeptIsNotAdmitted(t *testing.T) {
	f := open(t, testutil.NewBPFFS(t))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Admit(1); err == nil || errors.Is(err, ErrStale) {
		t.Errorf("got %v", err)
	}
	if f.Highest() != 0 {
		t.Error("the term counts although it would not outlive the process")
	}
}

func TestThePinDirectoryMustBeABPFFS(t *testing.T) {
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("a folder of another file system was taken")
	}
}
