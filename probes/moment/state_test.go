package moment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigia/probes/sender"
)

func all(sender.Labels) bool { return true }

// kept is a watch with a file, of which the log is read.
func kept(t *testing.T, path string, names ...string) (*Watch, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	w := New(Options{Sources: still(), State: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	set(w, names...)
	return w, &log
}

// record is one of a target, towards an address.
func record(dst, to string, why Why, at time.Time) *Moment {
	l := named(dst)
	return &Moment{
		Src: l.Src, Dst: l.Dst, Path: l.Path, Tenant: l.Tenant, Probe: l.Probe, Time: at, Why: why,
		Hops: &Hops{To: to, Hops: []Hop{{Number: 1, Outcome: Exceeded, Address: "10.0.0.1"}}},
	}
}

func (w *Watch) took(m *Moment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := m.Labels()
	w.keep(m, job{target: w.targets[l].target, why: m.Why})
}

// TestRecordsOutliveTheProgram: bad ones are shown again, and good ones stand beside new bad ones
// of the same far end until there are newer ones.
func TestRecordsOutliveTheProgram(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "moments.json"), time.Now().UTC()
	before, _ := kept(t, path, "a", "b")
	before.took(record("a", "10.0.0.2:862", Good, now.Add(-time.Minute)))
	before.took(record("b", "10.0.0.3:862", Good, now.Add(-time.Minute)))
	before.took(record("a", "10.0.0.2:862", Loss, now))
	before.save(time.Time{})

	after, log := kept(t, path, "a", "b")
	bad, good := after.Records(all, 10)
	if len(bad) != 1 || len(good) != 2 || !bad[0].Time.Equal(now) || bad[0].LastGood == nil || bad[0].Hops.Hops[0].Address != "10.0.0.1" {
		t.Fatalf("%d bad, %d good: %+v", len(bad), len(good), bad)
	}
	after.took(record("b", "10.0.0.3:862", Slow, now.Add(time.Second)))
	after.took(record("a", "10.9.9.9:862", Loss, now.Add(2*time.Second))) // another far end
	if bad, _ = after.Records(all, 10); bad[1].LastGood == nil || bad[0].LastGood != nil {
		t.Errorf("beside a bad record: of b %v, of a %v", bad[1].LastGood, bad[0].LastGood)
	}
	after.took(record("b", "10.0.0.3:862", Good, now.Add(time.Minute)))
	if _, good = after.Records(all, 10); len(good) != 2 || !good[1].Time.After(now) {
		t.Errorf("%+v", good)
	}
	if log.Len() != 0 {
		t.Errorf("said %q", log.String())
	}
	set(after) // all targets are gone, and then a is back: what it is now is not known to be the same
	set(after, "a")
	if _, good = after.Records(all, 10); len(good) != 1 {
		t.Errorf("%+v", good)
	}
}

// TestWhenRecordsAreWritten: soon after a bad one, later after a good one, never without need.
func TestWhenRecordsAreWritten(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "moments.json"), time.Now()
	w, _ := kept(t, path, "a")
	there := func() bool { _, err := os.Stat(path); return err == nil }
	w.save(now.Add(time.Hour))
	if there() {
		t.Error("a file of nothing")
	}
	w.took(record("a", "10.0.0.2:862", Good, now))
	w.save(now.Add(saveBad + time.Second))
	if there() {
		t.Error("a good record was written at once")
	}
	w.save(now.Add(saveGood + time.Second))
	if !there() {
		t.Error("a good record was not written")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.took(record("a", "10.0.0.2:862", Loss, time.Now()))
	w.save(time.Now())
	if there() {
		t.Error("each bad record is written by itself")
	}
	w.save(time.Now().Add(saveBad + time.Second))
	if !there() {
		t.Error("a bad record was not written")
	}
}

// TestTheFileIsBounded: the newest bad records are in it, and it is read back whole.
func TestTheFileIsBounded(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "moments.json"), time.Now().UTC()
	var bad []*Moment
	for i := range 1000 {
		m := record("a", "10.0.0.2:862", Loss, now.Add(time.Duration(i)*time.Millisecond))
		m.HostAfter.Error = strings.Repeat("x", 10_000)
		bad = append(bad, m)
	}
	if err := write(path, bad, []*Moment{record("a", "10.0.0.2:862", Good, now)}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > maxState || info.Size() < maxState/2 {
		t.Fatalf("%v, %v", info.Size(), err)
	}
	w, _ := kept(t, path, "a")
	w.Configure(Config{Keep: 1000, Interval: time.Minute, GoodInterval: time.Hour})
	got, _ := w.Records(all, 1000)
	if len(got) < 300 || len(got) >= 1000 || !got[0].Time.Equal(bad[999].Time) {
		t.Errorf("%d records, the newest of %v", len(got), got[0].Time)
	}
}

// TestFilesOfNoUse are said, and nothing of them is taken.
func TestFilesOfNoUse(t *testing.T) {
	old, err := json.Marshal(record("a", "10.0.0.2:862", Loss, time.Now().Add(-oldest-time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ text, want string }{
		"half":            {`{"version":1,"bad":[{"src":`, "unexpected end of JSON input"},
		"another version": {`{"version":2}`, "has version 2, and 1 is known here"},
		"another type":    {`{"version":1,"bad":[{"src":7}]}`, "a record is damaged"},
		"no reason":       {`{"version":1,"bad":[{"src":"n"}]}`, `it was made for \"\"`},
		"too large":       {strings.Repeat(" ", maxState+1), "has more than 4194304 bytes"},
		"too old":         {fmt.Sprintf(`{"version":1,"bad":[%s]}`, old), ""},
	} {
		path := filepath.Join(t.TempDir(), "moments.json")
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		w, log := kept(t, path, "a")
		if said := log.String(); (said == "") != (tc.want == "") || !strings.Contains(said, tc.want) || said != "" && !strings.Contains(said, "cannot read the records") {
			t.Errorf("%s: said %q", name, said)
		}
		if bad, good := w.Records(all, 10); len(bad)+len(good) != 0 {
			t.Errorf("%s: %d records", name, len(bad)+len(good))
		}
	}
	w, log := kept(t, filepath.Join(t.TempDir(), "nowhere", "moments.json"), "a")
	w.took(record("a", "10.0.0.2:862", Loss, time.Now()))
	w.save(time.Time{})
	if !strings.Contains(log.String(), "cannot keep the records") {
		t.Errorf("said %q", log.String())
	}
}

// TestGoodRecordsAreMadeAnewSlowly: the first of a target soon, others once a minute at most, and
// none of a target that had one before the restart.
func TestGoodRecordsAreMadeAnewSlowly(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "moments.json"), time.Now()
	if err := write(path, nil, []*Moment{record("a", "10.0.0.2:862", Good, now)}); err != nil {
		t.Fatal(err)
	}
	w, _ := kept(t, path, "a", "b", "c")
	next := func(after time.Duration) string {
		jobs := w.step(nil, now.Add(after))
		do(t, w, jobs)
		return fmt.Sprint(asked(jobs))
	}
	var got []string
	for _, after := range []time.Duration{
		settled + time.Second, settled + 5*time.Second, settled + 12*time.Second, settled + 30*time.Second,
		DefaultGoodInterval + settled, DefaultGoodInterval + settled + 30*time.Second, DefaultGoodInterval + settled + 61*time.Second,
	} {
		got = append(got, next(after))
	}
	if want := "[good b] [] [good c] [] [good a] [] [good b]"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
