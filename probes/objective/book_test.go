package objective

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigia/probes/sender"
)

// second is a target that comes later than the first.
var second = sender.Labels{Src: "a", Dst: "d", Path: "p", Tenant: "t", Probe: "c"}

// TestLearnedObjectivesSurviveARestart, of targets that are the same alone.
func TestLearnedObjectivesSurviveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "objectives.json")
	c := newClock()
	before := bookAt(c, path)
	before.Set([]Target{{Labels: first, Identity: "x"}, {Labels: second, Identity: "y"}})
	learn(c, before.Of(first), Delay, 5*time.Millisecond)
	learn(c, before.Of(first), Jitter, 2*time.Millisecond)
	learn(c, before.Of(second), Delay, 7*time.Millisecond)
	before.save()
	want := before.Of(first).learnedBounds()

	after := bookAt(c, path)
	after.Set([]Target{{Labels: first, Identity: "x"}})
	if got := after.Of(first).learnedBounds(); got != want || got[Delay] == 0 || got[Jitter] == 0 {
		t.Errorf("%v after the restart, was %v", got, want)
	}
	after.Of(first).Sample(Delay, int64(time.Second))
	counts(t, after.Of(first), Delay, 1, 1)
	// The other is discovered late, and after one more restart.
	after.save()
	third := bookAt(c, path)
	third.Set([]Target{{Labels: first, Identity: "x"}})
	third.Set([]Target{{Labels: first, Identity: "x"}, {Labels: second, Identity: "y"}})
	if got := third.Of(second).Objective(Delay); got < 14*time.Millisecond {
		t.Errorf("%v of the one that came late", got)
	}
	// One that is another now is learned anew, for good.
	other := bookAt(c, path)
	other.Set([]Target{{Labels: first, Identity: "z"}})
	if got := other.Of(first).learnedBounds(); got != (Bounds{}) {
		t.Errorf("%v of another target", got)
	}
	other.save()
	again := bookAt(c, path)
	again.Set([]Target{{Labels: first, Identity: "x"}})
	if got := again.Of(first).learnedBounds(); got != (Bounds{}) {
		t.Errorf("%v was not forgotten", got)
	}
}

// TestTargetsThatNeverComeAreForgotten, so that the file does not grow.
func TestTargetsThatNeverComeAreForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "objectives.json")
	c := newClock()
	before := bookAt(c, path)
	before.Set([]Target{{Labels: first}})
	learn(c, before.Of(first), Delay, 5*time.Millisecond)
	before.save()
	after := bookAt(c, path)
	after.Set(nil)
	if n := len(after.contents().Targets); n != 1 {
		t.Errorf("%d remembered at once, want 1", n)
	}
	c.pass(patience + 1)
	if n := len(after.contents().Targets); n != 0 {
		t.Errorf("%d remembered after %v", n, patience)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "objectives.json")
	for content, want := range map[string]string{
		`{"version":1,"targets":[{"delay`: "unexpected end",
		`{"version":2}`:                   "version 2, and 1 is known",
		`[]`:                              "cannot unmarshal",
		`{"version":1,"targets":[{"delay_ns":-1}]}`:                         "targets[0].delay_ns: -1 is not between",
		`{"version":1,"targets":[{},{"jitter_ns":9000000000000000000}]}`:    "targets[1].jitter_ns",
		`{"version":1,"targets":[` + strings.Repeat("{},", 50_000) + `{}]}`: "50001 targets, and 50000",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		book := newBook(path, slog.New(slog.NewTextHandler(&log, nil)), newClock().now)
		if !strings.Contains(log.String(), "cannot read the learned objectives") || !strings.Contains(log.String(), want) || !strings.Contains(log.String(), path) {
			t.Errorf("%.40s: %s, want %q", content, log.String(), want)
		}
		book.Set([]Target{{}})
		if got := book.Of(sender.Labels{}).learnedBounds(); got != (Bounds{}) {
			t.Errorf("%.40s: %v", content, got)
		}
	}
}

// TestWhatCannotBeWrittenIsTriedAgain once there is room.
func TestWhatCannotBeWrittenIsTriedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	path := filepath.Join(dir, "objectives.json")
	var log bytes.Buffer
	c := newClock()
	book := newBook(path, slog.New(slog.NewTextHandler(&log, nil)), c.now)
	book.Set([]Target{{Labels: first}})
	learn(c, book.Of(first), Delay, 5*time.Millisecond)
	book.save()
	if !strings.Contains(log.String(), "cannot remember the learned objectives") {
		t.Errorf("the log has %q", log.String())
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	book.Run(ctx) // writes once more at the end
	raw, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(raw), fmt.Sprintf(`"delay_ns":%d`, book.Of(first).Objective(Delay))) {
		t.Errorf("%s %v", raw, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	book.save()
	if _, err := os.Stat(path); err == nil {
		t.Error("written though nothing has changed")
	}
}

// TestUnknownTargetsAreJudgedByNobodyElse: what is not in the book leaves nothing in it.
func TestUnknownTargetsAreJudgedByNobodyElse(t *testing.T) {
	book := bookAt(newClock(), "")
	j := book.Of(first)
	j.Sample(Delay, 1)
	counts(t, j, Delay, 0, 0)
	if book.Of(first) == j || len(book.contents().Targets) != 0 {
		t.Error("the book has it")
	}
	book.Run(t.Context()) // has nothing to do without a file, and returns
}
