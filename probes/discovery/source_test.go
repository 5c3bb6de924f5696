package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigia/internal/testutil"
)

// TestNamesAndHosts come from the label node, or from the target itself.
func TestNamesAndHosts(t *testing.T) {
	for content, want := range map[string]string{
		`[{"targets": ["10.0.0.1"]}]`:                                                  "10.0.0.1@10.0.0.1/",
		`[{"targets": ["10.0.0.1:9100"]}]`:                                             "10.0.0.1@10.0.0.1/",
		`[{"targets": ["[fd00::1]:9100"]}]`:                                            "fd00::1@fd00::1/",
		`[{"targets": ["[fd00::1]"]}]`:                                                 "fd00::1@fd00::1/",
		`[{"targets": ["fd00::1"]}]`:                                                   "fd00::1@fd00::1/",
		`[{"targets": ["a.example:1"], "labels": {"node": "a", "rack": "r7"}}]`:        "a@a.example/r7",
		`[{"targets": ["a"], "labels": {"node": "a"}}, {"targets": ["b"]}]`:            "a@a/ b@b/",
		`[{"targets": ["a", "a"]}]`:                                                    "a@a/",
		"- targets: [a]\n  labels: {node: n1, rack: r1}\n":                             "n1@a/r1",
		`[{"targets": ["a"], "labels": {"__meta_kubernetes_pod_name": "p"}}]`:          "a@a/",
		`[{"targets": []}, {"targets": ["a"]}]`:                                        "a@a/",
		`[{"targets": ["a"], "labels": {"node": "n"}, "source": "not of the format"}]`: "n@a/",
	} {
		found, err := Read(strings.NewReader(content))
		if err != nil || names(found) != want {
			t.Errorf("%s: %q, %v; want %q", content, names(found), err, want)
		}
	}
}

// TestHostileDocuments are refused: nothing makes us take more memory or time than a large
// site does.
func TestHostileDocuments(t *testing.T) {
	many := func(n int) string {
		var b strings.Builder
		b.WriteString("- targets:\n")
		for i := range n {
			fmt.Fprintf(&b, "  - n%d\n", i)
		}
		return b.String()
	}
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n"
	for name, tc := range map[string]struct{ content, want string }{
		"too many nodes":   {many(maxPeers + 1), fmt.Sprintf("%d nodes, at most %d are taken", maxPeers+1, maxPeers)},
		"too large":        {strings.Repeat(" ", maxSize+1), "is larger than"},
		"aliases":          {bomb, "is not a list of groups"},
		"a mapping":        {`{"targets": ["a"]}`, "is not a list of groups"},
		"targets are text": {`[{"targets": "a"}]`, "is not a list of groups"},
		"half a document":  {`[{"targets": ["a"]`, "is not a list of groups"},
		"nothing":          {"", "there is no node in it"},
		"two racks":        {`[{"targets": ["a"], "labels": {"rack": "r1"}}, {"targets": ["a"], "labels": {"rack": "r2"}}]`, `node "a" is there twice`},
	} {
		if found, err := Read(strings.NewReader(tc.content)); err == nil || !strings.Contains(err.Error(), tc.want) || found != nil {
			t.Errorf("%s: %d nodes, %v; want %q", name, len(found), err, tc.want)
		}
	}
	if found, err := Read(strings.NewReader(many(maxPeers))); err != nil || len(found) != maxPeers {
		t.Errorf("as many nodes as there may be: %d, %v", len(found), err)
	}
}

// TestPatterns match files, none being no error, and are bounded.
func TestPatterns(t *testing.T) {
	dir := t.TempDir()
	for i := range maxFiles + 1 {
		write(t, filepath.Join(dir, fmt.Sprintf("%03d.json", i)), fmt.Sprintf(`[{"targets": ["n%d"]}]`, i))
	}
	for pattern, want := range map[string]string{
		filepath.Join(dir, "00[0-1].json"): "n0@n0/ n1@n1/",
		filepath.Join(dir, "007.json"):     "n7@n7/",
	} {
		s := Source{Files: []string{pattern}}
		if found, err := s.fetch(context.Background()); err != nil || names(found) != want {
			t.Errorf("%s: %q, %v", pattern, names(found), err)
		}
	}
	for pattern, want := range map[string]string{
		filepath.Join(dir, "*.json"):   fmt.Sprintf("%d files match, at most %d are read", maxFiles+1, maxFiles),
		filepath.Join(dir, "none*"):    "there is no node in it",
		filepath.Join(dir, "[.json"):   "syntax error in pattern",
		filepath.Join(dir, "none.yml"): "does not exist",
		dir:                            "is a directory",
	} {
		s := Source{Files: []string{pattern}}
		if _, err := s.fetch(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", pattern, err, want)
		}
	}
}

// TestHostileServers cannot hold us up, fill our memory, or get a secret into the log.
func TestHostileServers(t *testing.T) {
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for line := []byte(strings.Repeat(" ", 1<<16)); ; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/moved", http.StatusFound) })
	mux.HandleFunc("/gone", http.NotFound)
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(release)
	secret := strings.Replace(server.URL, "http://", "http://user:secret@", 1)
	for path, want := range map[string]string{"/silent": "context", "/endless": "is larger than", "/moved": "redirects", "/gone": "404"} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if path == "/silent" {
			cancel() // as the daemon does when it ends
		}
		s := Source{URL: secret + path}
		_, err := s.fetch(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q and no password", path, err, want)
		}
	}
}

// TestReturningNodes: one that comes back within the grace is no longer vanished, one that
// changes its rack is another.
func TestReturningNodes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n.json")
	s := Source{Files: []string{path}, Refresh: 10 * time.Millisecond, Grace: time.Hour}
	write(t, path, `[{"targets": ["a", "b"], "labels": {"rack": "r1"}}]`)
	m, updates := manage(t, s)
	testutil.WaitFor(t, "both", func() bool { return len(m.State(&s).Peers) == 2 })
	write(t, path, `[{"targets": ["a"], "labels": {"rack": "r1"}}, {"targets": ["b"], "labels": {"rack": "r2"}}]`)
	testutil.WaitFor(t, "the other rack", func() bool { return names(m.State(&s).Peers) == "a@a/r1 b@b/r2" })
	if gone := names(m.State(&s).Vanished); gone != "b@b/r1" {
		t.Errorf("vanished: %q", gone)
	}
	write(t, path, `[{"targets": ["a", "b"], "labels": {"rack": "r1"}}]`)
	testutil.WaitFor(t, "the former rack", func() bool { return names(m.State(&s).Peers) == "a@a/r1 b@b/r1" })
	if gone := names(m.State(&s).Vanished); gone != "b@b/r2" {
		t.Errorf("vanished: %q", gone)
	}
	testutil.WaitFor(t, "three updates", func() bool { return updates.Load() >= 3 })
	if n := updates.Load(); n != 3 {
		t.Errorf("%d updates for three changes", n)
	}
}

// TestUnknownSource has no state, and a manager without sources waits.
func TestUnknownSource(t *testing.T) {
	m := New(slog.New(slog.DiscardHandler), func() { t.Error("an update of nothing") })
	s := Source{Files: []string{"/x"}}
	if st := m.State(&s); len(st.Peers) != 0 || len(st.Vanished) != 0 || st.Err != nil || !st.At.IsZero() {
		t.Errorf("%+v", st)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	cancel()
	<-done
}
