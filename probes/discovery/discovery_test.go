package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vigia/internal/testutil"
)

func names(peers []Peer) string {
	out := make([]string, 0, len(peers))
	for _, p := range peers {
		out = append(out, p.Name+"@"+p.Host+"/"+p.Rack)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// write puts a file in its place at once: who reads it meanwhile finds the one before.
func write(t *testing.T, path, content string) {
	t.Helper()
	next := filepath.Join(t.TempDir(), "next")
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// manage runs a manager; updates counts its calls.
func manage(t *testing.T, s Source) (m *Manager, updates *atomic.Int64) {
	t.Helper()
	updates = &atomic.Int64{}
	m = New(slog.New(slog.DiscardHandler), func() { updates.Add(1) })
	m.Set([]Source{s})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return m, updates
}

// TestOtherAddresses: labels at_NAME are further addresses of a node, by NAME.
func TestOtherAddresses(t *testing.T) {
	peers, err := Read(strings.NewReader(`[{"targets": ["10.0.0.1"], "labels": {"node": "a", "at_pods": "10.244.1.5:8620", "at_nodeport": "10.0.0.1:30001", "at_": "x", "at_bad=": "x", "at_two": "x\ny=z"}},
		{"targets": ["10.0.0.2"], "labels": {"node": "b", "rack": "at_r"}}]`))
	if err != nil || len(peers) != 2 {
		t.Fatal(peers, err)
	}
	for name, want := range map[string]string{"pods": "10.244.1.5:8620", "nodeport": "10.0.0.1:30001", "": "", "pod": "", "bad": "", "two": "", "y": ""} {
		if got := peers[0].Other(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
		if got := peers[1].Other(name); got != "" {
			t.Errorf("%q of another: %q", name, got)
		}
	}
	again, err := Read(strings.NewReader(`[{"targets": ["10.0.0.1"], "labels": {"at_nodeport": "10.0.0.1:30001", "at_pods": "10.244.1.5:8620", "node": "a"}}]`))
	if err != nil || again[0] != peers[0] {
		t.Errorf("the same in another order is not the same: %+v %v", again, err)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.json"), `[{"targets": ["10.0.0.1:862"], "labels": {"node": "n1", "rack": "r1", "__meta_x": "y"}}]`)
	write(t, filepath.Join(dir, "b.yml"), "- targets: ['10.0.0.2', '[fd00::3]:862']\n")
	s := Source{Files: []string{filepath.Join(dir, "*")}, Refresh: 20 * time.Millisecond, Grace: time.Hour}
	m, updates := manage(t, s)
	want := "10.0.0.2@10.0.0.2/ fd00::3@fd00::3/ n1@10.0.0.1/r1"
	// What is known can be seen before that is said.
	testutil.WaitFor(t, "three nodes", func() bool { return names(m.State(&s).Peers) == want && updates.Load() > 0 })
	before := updates.Load()
	write(t, filepath.Join(dir, "b.yml"), "{")
	testutil.WaitFor(t, "the broken file to be told", func() bool { return m.State(&s).Err != nil })
	if got := names(m.State(&s).Peers); got != want || updates.Load() != before {
		t.Errorf("a broken file changed something: %s", got)
	}
	write(t, filepath.Join(dir, "b.yml"), "[]")
	testutil.WaitFor(t, "two to vanish", func() bool {
		return len(m.State(&s).Vanished) == 2 && len(m.State(&s).Peers) == 1 && updates.Load() > before
	})
	if m.State(&s).Err != nil || updates.Load() != before+1 {
		t.Errorf("%v after %d updates", m.State(&s).Err, updates.Load())
	}
	write(t, filepath.Join(dir, "b.yml"), "- targets: ['10.0.0.2']\n")
	testutil.WaitFor(t, "one to return", func() bool { return len(m.State(&s).Vanished) == 1 && len(m.State(&s).Peers) == 2 })
}

func TestGrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	write(t, path, `[{"targets": ["10.0.0.1", "10.0.0.2"]}]`)
	s := Source{Files: []string{path}, Refresh: 10 * time.Millisecond, Grace: 300 * time.Millisecond}
	m, updates := manage(t, s)
	testutil.WaitFor(t, "two nodes", func() bool { return len(m.State(&s).Peers) == 2 })
	write(t, path, `[{"targets": ["10.0.0.1"]}]`)
	testutil.WaitFor(t, "one to vanish", func() bool { return len(m.State(&s).Vanished) == 1 || updates.Load() >= 3 })
	testutil.WaitFor(t, "it to be forgotten", func() bool { return len(m.State(&s).Vanished) == 0 && updates.Load() >= 3 })
	m.Set([]Source{s}) // a reload keeps what is known
	if len(m.State(&s).Peers) != 1 {
		t.Error("a reload forgot the nodes")
	}
	m.Set(nil)
	if len(m.State(&s).Peers) != 0 {
		t.Error("a source that is gone is remembered")
	}
}

func TestHTTP(t *testing.T) {
	var answer atomic.Value
	answer.Store(`[{"targets": ["10.0.0.1:862"], "labels": {"node": "n1"}}]`)
	var status atomic.Int64
	status.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Prometheus-Refresh-Interval-Seconds") != "0.02" || r.Header.Get("Accept") != "application/json" {
			t.Errorf("headers %v", r.Header)
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(int(status.Load()))
		fmt.Fprint(w, answer.Load())
	}))
	defer server.Close()
	s := Source{URL: server.URL, Refresh: 20 * time.Millisecond, Grace: time.Hour}
	m, _ := manage(t, s)
	testutil.WaitFor(t, "the node", func() bool { return names(m.State(&s).Peers) == "n1@10.0.0.1/" })
	status.Store(http.StatusInternalServerError)
	testutil.WaitFor(t, "the failure", func() bool { return m.State(&s).Err != nil && strings.Contains(m.State(&s).Err.Error(), "500") })
	if len(m.State(&s).Peers) != 1 {
		t.Error("a failing server removed nodes")
	}
	status.Store(http.StatusOK)
	testutil.WaitFor(t, "recovery", func() bool { return m.State(&s).Err == nil })
}

func TestMistakes(t *testing.T) {
	for _, tc := range []struct{ content, want string }{
		{"42", "is not a list of groups"},
		{`[{"targets": [":862"]}]`, `target ":862" has no host`},
		{`[{"targets": ["a", "b"], "labels": {"node": "n"}}]`, `node "n" is there twice, as a and b`},
		{`[]`, "there is no node in it"},
		{"- targets: [" + strings.Repeat("'10.0.0.1', ", 1<<21) + "]", "is larger than"},
	} {
		path := filepath.Join(t.TempDir(), "x.json")
		write(t, path, tc.content)
		s := Source{Files: []string{path}}
		if _, err := s.fetch(context.Background()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%.40s: %v, want %q", tc.content, err, tc.want)
		}
	}
	s := Source{Files: []string{"/does/not/exist.json"}}
	if _, err := s.fetch(context.Background()); err == nil || err.Error() != "/does/not/exist.json does not exist" {
		t.Error(err)
	}
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	defer html.Close()
	s = Source{URL: html.URL}
	if _, err := s.fetch(context.Background()); err == nil || !strings.Contains(err.Error(), "not application/json") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`[{"targets": ["10.0.0.1:862"], "labels": {"node": "n1"}}]`))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		groups, err := parse(strings.NewReader(string(raw)))
		if err == nil {
			_, _ = peers(groups)
		}
	})
}
