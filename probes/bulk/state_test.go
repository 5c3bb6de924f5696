package bulk

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"vigia/internal/testutil"
)

// TestBudgetSurvives takes bytes, restarts, and takes what is left.
func TestBudgetSurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bulk.json")
	now := time.Unix(1_800_000_000, 0)
	before := budget{}
	before.setLimit(1000)
	refund, _ := before.take(now, 700)
	refund(100)
	before.take(now.Add(10*time.Minute), 50)
	if err := before.state(now.Add(10 * time.Minute)).save(path); err != nil {
		t.Fatal(err)
	}
	load := func(at time.Time) *budget {
		t.Helper()
		s, err := loadState(path)
		if err != nil {
			t.Fatal(err)
		}
		b := &budget{}
		b.setLimit(1000)
		b.restore(s, at)
		return b
	}
	for after, want := range map[time.Duration]uint64{
		10 * time.Minute: 350, 59 * time.Minute: 350, 62 * time.Minute: 950, 3 * time.Hour: 1000,
		-time.Hour: 350, // the clock was ahead: what it noted counts as spent now
	} {
		if got := load(now.Add(after)).left(now.Add(after)); got != want {
			t.Errorf("restarted after %v: %d left, want %d", after, got, want)
		}
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("%v stay behind, %v", files, err)
	}
}

func TestStateFiles(t *testing.T) {
	dir := t.TempDir()
	if s, err := loadState(filepath.Join(dir, "none")); err != nil || len(s.Spent) != 0 {
		t.Errorf("no file: %+v, %v", s, err)
	}
	for name, content := range map[string]string{"empty": "", "cut": `{"version":1,"spe`, "of the future": `{"version":2}`, "other": "[1]"} {
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadState(path); err == nil || !strings.Contains(err.Error(), "bulk tests have spent") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (&state{}).save(filepath.Join(dir, "nowhere", "f")); err == nil {
		t.Error("a directory that is not there")
	}
	// Numbers that a program never wrote neither wrap nor give bytes away.
	b := budget{}
	b.setLimit(10)
	now := time.Unix(60, 0)
	b.restore(&state{Spent: []spent{{Minute: 1, Bytes: 1<<64 - 1}, {Minute: 1, Bytes: 1<<64 - 1}, {Minute: -1 << 63, Bytes: 5}, {Minute: 1<<63 - 1, Bytes: 9}}}, now)
	if got := b.left(now); got != 0 {
		t.Errorf("%d left", got)
	}
}

// TestRunnerRemembers runs a real test, and another runner, as after a restart and
// after a reload, has that much less to spend.
func TestRunnerRemembers(t *testing.T) {
	near, _, _ := site(t)
	path := filepath.Join(t.TempDir(), "bulk.json")
	tg := test(near, TCP)
	tg.MaxBytes, tg.Duration = 400_000, 3*time.Second // the bytes end it
	plan := Plan{Node: "a", Groups: [][]Target{{tg}}, Budget: 500_000, Slots: Slots{Length: 6 * time.Second}}
	run := func() (results []Result, left uint64) {
		var mu sync.Mutex
		r := NewRunner(Options{
			Links: &LinkLocks{}, State: path, Logger: slog.New(slog.DiscardHandler), Burning: func() string { return "" },
			Done: func(_ *Target, o *Outcome) { mu.Lock(); defer mu.Unlock(); results = append(results, o.Result) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		r.Set(plan)
		go func() { r.Run(ctx); close(ended) }()
		testutil.WaitFor(t, "a test", func() bool { mu.Lock(); defer mu.Unlock(); return len(results) > 0 })
		r.Set(plan) // a reload forgets nothing and counts nothing twice
		cancel()
		<-ended
		return results, r.Left()
	}
	first, left := run()
	if first[0] != Completed || left != 100_000 {
		t.Fatalf("%v, %d left", first, left)
	}
	if second, left := run(); second[0] != OverBudget || left != 100_000 {
		t.Errorf("after a restart: %v, %d left", second, left)
	}
}

// TestIPv6 runs both protocols over IPv6.
func TestIPv6(t *testing.T) {
	near, far := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, near, "v0", far, "v0")
	testutil.IP(t, "-n", near, "-6", "addr", "add", "fd00:9::1/64", "dev", "v0", "nodad")
	testutil.IP(t, "-n", far, "-6", "addr", "add", "fd00:9::2/64", "dev", "v0", "nodad")
	s := NewServer(slog.New(slog.DiscardHandler), &LinkLocks{})
	to, allow := netip.MustParseAddrPort("[fd00:9::2]:9876"), []netip.Prefix{netip.MustParsePrefix("fd00:9::/64")}
	s.Set(Config{Listeners: []Listener{{Netns: far, Address: to, Link: "l"}}, Allow: allow})
	t.Cleanup(s.Close)
	testutil.WaitFor(t, "the listener", func() bool { return s.Err() == nil })
	for _, p := range []Protocol{TCP, UDP} {
		for _, source := range []string{"", "fd00:9::1"} {
			tg := test(near, p)
			tg.Address, tg.MaxBytes, tg.Duration = to, 1<<20, 300*time.Millisecond
			if p == TCP {
				tg.Duration = 30 * time.Second
			}
			if source != "" {
				tg.Source = netip.MustParseAddr(source)
			}
			o := runWhenFree(t, tg)
			switch {
			case o.Result != Completed || o.Err != nil:
				t.Errorf("%s from %q: %+v", p, source, o)
			case p == TCP && (o.Bytes != tg.MaxBytes || o.RTT <= 0):
				t.Errorf("%+v", o)
			case p == UDP && (o.Received == 0 || o.Received+o.Dropped != o.Packets || o.Packets+o.Refused != 300 || o.Lost() != 0):
				t.Errorf("%+v", o)
			}
		}
	}
}
