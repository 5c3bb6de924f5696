package configmap

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vigia/internal/testutil"
)

// apiServer answers as an API server does to who may see one ConfigMap.
type apiServer struct {
	*httptest.Server
	token string

	mu      sync.Mutex
	data    map[string]string
	version int
	status  int                // answered in place of anything else
	watches int                // answered to who watches in place of changes
	changes []chan any         // of who watches
	queries []string           // of all requests
	raw     func(w io.Writer)  // what a watch answers
	ended   context.CancelFunc // ends all watches
	over    context.Context
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{token: "first", version: 7}
	a.over, a.ended = context.WithCancel(t.Context())
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(a.answer))
	a.EnableHTTP2 = true
	a.StartTLS()
	t.Cleanup(func() { a.endWatches(); a.CloseClientConnections(); a.Close() })
	return a
}

func (a *apiServer) answer(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.queries = append(a.queries, r.URL.RawQuery)
	status, over, raw := a.status, a.over, a.raw
	if r.Header.Get("Authorization") != "Bearer "+a.token {
		status = http.StatusUnauthorized
	}
	if r.URL.Path != "/api/v1/namespaces/vigia/configmaps" || r.URL.Query().Get("fieldSelector") != "metadata.name=vigia-contracts" {
		status = http.StatusForbidden
	}
	if status != 0 {
		a.mu.Unlock()
		w.WriteHeader(status)
		return
	}
	if r.URL.Query().Get("watch") == "" {
		items := []any{}
		if a.data != nil {
			items = append(items, map[string]any{"data": a.data})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"resourceVersion": fmt.Sprint(a.version)}, "items": items})
		a.mu.Unlock()
		return
	}
	if refused := a.watches; refused != 0 {
		a.mu.Unlock()
		w.WriteHeader(refused)
		return
	}
	changes := make(chan any, 64)
	a.changes = append(a.changes, changes)
	a.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	if raw != nil {
		raw(w)
		return
	}
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case <-over.Done():
			return
		case <-r.Context().Done():
			return
		case change := <-changes:
			_ = json.NewEncoder(w).Encode(change)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// set changes the ConfigMap and, if told, tells who watches.
func (a *apiServer) set(content string, tell bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.data = map[string]string{"contracts.yaml": content, "other": "x"}
	a.version++
	for _, c := range a.changes {
		if tell {
			c <- map[string]any{"type": "MODIFIED", "object": map[string]any{"kind": "ConfigMap", "data": a.data}}
		}
	}
}

func (a *apiServer) refuse(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status = status
}

func (a *apiServer) refuseWatches(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watches = status
}

func (a *apiServer) endWatches() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended()
	a.over, a.ended = context.WithCancel(context.Background())
	a.changes = nil
}

func (a *apiServer) watched() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.changes)
}

// logs is a log that is read while it is written.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type rig struct {
	t      *testing.T
	api    *apiServer
	config Config
	logs   *logs
}

func newRig(t *testing.T) *rig {
	t.Helper()
	a, dir := newAPIServer(t), t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	return &rig{t: t, api: a, logs: &logs{}, config: Config{
		APIServer: APIServer{URL: a.URL, TokenFile: file("token", []byte(a.token+"\n")), CAFile: file("ca.crt", ca)},
		Namespace: "vigia", Name: "vigia-contracts", Key: "contracts.yaml",
		Brought: filepath.Join(dir, "brought.yaml"), File: filepath.Join(dir, "contracts.yaml"),
	}}
}

// lasts is how long a watch of these tests has to stand.
const lasts = 50 * time.Millisecond

// start runs a follower until the test ends, or the function is called.
func (r *rig) start() (stop func()) {
	r.t.Helper()
	return r.run(lasts, nil)
}

// run is start with something else in place of pauses, and watches that have to stand for so long.
func (r *rig) run(lasts time.Duration, pause func(context.Context, time.Duration)) (stop func()) {
	r.t.Helper()
	f, err := New(r.config, slog.New(slog.NewTextHandler(r.logs, nil)))
	if err != nil {
		r.t.Fatal(err)
	}
	f.pauses = pauses{first: 10 * time.Millisecond, most: 160 * time.Millisecond, lasts: lasts}
	if pause != nil {
		f.pause = pause
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(stop)
	return stop
}

func (r *rig) content() string {
	raw, _ := os.ReadFile(r.config.File)
	return string(raw)
}

func (r *rig) becomes(want string) {
	r.t.Helper()
	testutil.WaitFor(r.t, fmt.Sprintf("%q, it is %q\n%s", want, r.content(), r.logs), func() bool { return r.content() == want })
}

func (r *rig) brings(content string) {
	r.t.Helper()
	if err := os.WriteFile(r.config.Brought, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func TestAChangeIsTakenUpFromTheWatch(t *testing.T) {
	r := newRig(t)
	r.api.set("one", false)
	r.start()
	r.becomes("one")
	testutil.WaitFor(t, "the watch", func() bool { return r.api.watched() == 1 })
	for _, content := range []string{"two", "", strings.Repeat("x", MaxBytes), "four"} {
		r.api.set(content, true)
		r.becomes(content)
	}
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	if len(r.api.queries) != 2 || !strings.Contains(r.api.queries[1], "resourceVersion=8") {
		t.Errorf("asked %q: the list once, and its changes from its version on", r.api.queries)
	}
	info, err := os.Stat(r.config.File)
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v: another user has to read it", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(r.config.File), ".*")); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

func TestWhatWasMissedIsFoundWhenTheWatchEnds(t *testing.T) {
	r := newRig(t)
	r.api.set("one", false)
	r.start()
	r.becomes("one")
	testutil.WaitFor(t, "the watch", func() bool { return r.api.watched() == 1 })
	r.api.set("two", false)
	r.api.endWatches()
	r.becomes("two")
}

func TestWhileTheAPIServerIsAwayTheFileStays(t *testing.T) {
	r := newRig(t)
	r.brings("old")
	r.api.set("new", false)
	r.start()
	r.becomes("new")
	testutil.WaitFor(t, "the watch", func() bool { return r.api.watched() == 1 })
	r.api.refuse(http.StatusServiceUnavailable)
	r.api.endWatches()
	asked := func() int { r.api.mu.Lock(); defer r.api.mu.Unlock(); return len(r.api.queries) }
	before := asked()
	testutil.WaitFor(t, "it to be asked again", func() bool { return asked() > before+3 })
	if r.content() != "new" {
		t.Errorf("the file has %q: what the kubelet had brought before is older", r.content())
	}
	if n := strings.Count(r.logs.String(), "cannot follow the ConfigMap"); n != 1 {
		t.Errorf("said %d times:\n%s", n, r.logs)
	}
	// What the kubelet brings now is news.
	r.brings("newer")
	r.becomes("newer")
	r.api.set("newest", false)
	r.api.refuse(0)
	r.becomes("newest")
	testutil.WaitFor(t, "a word that it is well again", func() bool { return strings.Contains(r.logs.String(), "following the ConfigMap again") })
}

// waits are the pauses that a follower wanted to make; it makes none.
type waits struct {
	mu   sync.Mutex
	made []time.Duration
}

func (w *waits) record(_ context.Context, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made = append(w.made, d)
}

func (w *waits) all() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.made)
}

func TestAWatchThatFailsAtOnceIsAskedForLessAndLess(t *testing.T) {
	for name, fails := range map[string]func(*apiServer){
		"refused": func(a *apiServer) { a.watches = http.StatusInternalServerError },
		"ended":   func(a *apiServer) { a.raw = func(io.Writer) {} },
		"ended in error": func(a *apiServer) {
			a.raw = func(w io.Writer) { fmt.Fprint(w, `{"type":"ERROR","object":{"code":410}}`) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, w := newRig(t), &waits{}
			r.api.set("one", false)
			fails(r.api)
			r.run(time.Hour, w.record) // without a processor the end of a watch is seen late
			r.becomes("one")
			testutil.WaitFor(t, "pauses", func() bool { return len(w.all()) >= 50 })
			for i, got := range w.all() {
				want := min(10*time.Millisecond<<min(i, 10), 160*time.Millisecond)
				if got < want/2 || got >= want*3/2 {
					t.Fatalf("pause %d is %s, wanted %s on average", i+1, got, want)
				}
			}
			if made := w.all()[10:50]; len(slices.Compact(slices.Sorted(slices.Values(made)))) < 20 {
				t.Errorf("%v: pauses of all nodes have the same lengths", made)
			}
			if n := strings.Count(r.logs.String(), "following the ConfigMap again"); n > 0 {
				t.Errorf("said %d times that it is well:\n%s", n, r.logs)
			}
		})
	}
}

func TestOnlyAWatchThatLastedMakesPausesShortAgain(t *testing.T) {
	r, w := newRig(t), &waits{}
	r.api.set("one", false)
	r.api.watches = http.StatusInternalServerError
	r.run(lasts, w.record)
	testutil.WaitFor(t, "pauses", func() bool { return len(w.all()) >= 8 })
	r.api.refuseWatches(0)
	again := "following the ConfigMap again" // which is said of a watch that lasted
	testutil.WaitFor(t, again, func() bool { return strings.Contains(r.logs.String(), again) })
	before := len(w.all())
	r.api.refuseWatches(http.StatusInternalServerError)
	r.api.endWatches()
	testutil.WaitFor(t, "pauses", func() bool { return len(w.all()) >= before+5 })
	made := w.all()[before:]
	if made[0] >= 15*time.Millisecond || made[4] < 80*time.Millisecond {
		t.Errorf("%v: from the first pause on", made)
	}
	if n := strings.Count(r.logs.String(), "cannot follow the ConfigMap"); n != 2 {
		t.Errorf("said %d times:\n%s", n, r.logs)
	}
}

func TestWatchesOfAllNodesDoNotEndTogether(t *testing.T) {
	r := newRig(t)
	r.api.set("one", false)
	r.api.raw = func(io.Writer) {}
	r.run(lasts, func(context.Context, time.Duration) {})
	testutil.WaitFor(t, "watches", func() bool { return r.api.watched() >= 20 })
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	lengths := map[int]bool{}
	for _, raw := range r.api.queries {
		query, err := url.ParseQuery(raw)
		if err != nil || query.Get("watch") == "" {
			continue
		}
		seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
		if err != nil || seconds < 240 || seconds > 360 {
			t.Errorf("%q: %v", raw, err)
		}
		lengths[seconds] = true
	}
	if len(lengths) < 5 {
		t.Errorf("%v: they have the same lengths", lengths)
	}
}

func TestAMissingRightIsSaidWithItsFix(t *testing.T) {
	r := newRig(t)
	r.brings("one")
	r.config.Name = "another"
	r.start()
	r.becomes("one")
	want := "may not get, list and watch configmaps/another in vigia; grant it in its Role"
	testutil.WaitFor(t, want, func() bool { return strings.Contains(r.logs.String(), want) })
	r.brings("two")
	r.becomes("two")
}

func TestAnExchangedTokenIsRead(t *testing.T) {
	r := newRig(t)
	r.api.set("one", false)
	r.start()
	r.becomes("one")
	// A watch that begins after the change would never be told of it.
	testutil.WaitFor(t, "the watch", func() bool { return r.api.watched() == 1 })
	r.api.mu.Lock()
	r.api.token = "second"
	r.api.mu.Unlock()
	if err := os.WriteFile(r.config.APIServer.TokenFile, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.api.set("two", false)
	r.api.endWatches()
	r.becomes("two")
	if strings.Contains(r.logs.String(), "second") {
		t.Errorf("the log has the token:\n%s", r.logs)
	}
}

func TestOverARestartTheFileIsThereBeforeAnybodyAnswers(t *testing.T) {
	r := newRig(t)
	r.api.set("new", false)
	stop := r.start()
	r.becomes("new")
	stop()
	r.api.refuse(http.StatusServiceUnavailable)
	r.brings("old") // as the kubelet may, when the pod is new to it
	r.start()
	testutil.WaitFor(t, "a word", func() bool { return strings.Contains(r.logs.String(), "cannot follow") })
	if r.content() != "new" {
		t.Errorf("the file has %q", r.content())
	}
}

func TestSeedCopiesWhatWasBroughtAndNothingElse(t *testing.T) {
	r := newRig(t)
	seed := func() error {
		f, err := New(r.config, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return f.Seed()
	}
	if err := seed(); err != nil || r.content() != "" {
		t.Errorf("nothing was brought: %v, %q", err, r.content())
	}
	r.brings("one")
	if err := seed(); err != nil || r.content() != "one" {
		t.Errorf("%v, %q", err, r.content())
	}
	r.brings("two")
	if err := seed(); err != nil || r.content() != "one" {
		t.Errorf("a file that is there: %v, %q", err, r.content())
	}
	r.brings(strings.Repeat("x", MaxBytes+1))
	if err := seed(); err == nil || !strings.Contains(err.Error(), "a ConfigMap has at most 1048576") {
		t.Errorf("%v", err)
	}
}

func TestAnswersThatAreNoneChangeNothing(t *testing.T) {
	for name, answer := range map[string]func(io.Writer){
		"error":   func(w io.Writer) { fmt.Fprint(w, `{"type":"ERROR","object":{"code":410,"message":"too old"}}`) },
		"half":    func(w io.Writer) { fmt.Fprint(w, `{"type":"MODIFIED","object":{"data":{"contracts.yaml":"ba`) },
		"no JSON": func(w io.Writer) { fmt.Fprint(w, "\x00\xff") },
		"wrong":   func(w io.Writer) { fmt.Fprint(w, `{"type":"MODIFIED","object":{"data":[1]}}`) },
		"endless": func(w io.Writer) {
			fmt.Fprint(w, `{"type":"MODIFIED","object":{"data":{"contracts.yaml":"`)
			for range maxAnswer >> 10 {
				if _, err := fmt.Fprint(w, strings.Repeat("y", 1<<10)); err != nil {
					return
				}
			}
			fmt.Fprint(w, `"}}}`)
		},
		"no key":   func(w io.Writer) { fmt.Fprint(w, `{"type":"MODIFIED","object":{"data":{"other":"x"}}}`) },
		"deleted":  func(w io.Writer) { fmt.Fprint(w, `{"type":"DELETED","object":{"data":{"contracts.yaml":"x"}}}`) },
		"bookmark": func(w io.Writer) { fmt.Fprint(w, `{"type":"BOOKMARK","object":{"data":{"contracts.yaml":"x"}}}`) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.api.set("one", false)
			r.api.raw = answer
			r.start()
			testutil.WaitFor(t, "it to be asked again", func() bool { return r.api.watched() > 2 })
			if r.content() != "one" {
				t.Errorf("the file has %.40q", r.content())
			}
		})
	}
}

func TestMistakesAreNamedWithTheirFix(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"--namespace is empty":                   func(c *Config) { c.Namespace = "" },
		"--config-map is empty":                  func(c *Config) { c.Name = "" },
		"--key is empty":                         func(c *Config) { c.Key = "" },
		`--file "x" is not an absolute path`:     func(c *Config) { c.File = "x" },
		`--brought "" is not an absolute path`:   func(c *Config) { c.Brought = "" },
		"write for example https://10.96.0.1":    func(c *Config) { c.APIServer.URL = "http://10.96.0.1" },
		`--api-server "" is not the URL`:         func(c *Config) { c.APIServer.URL = "" },
		"--ca-file: open /nonexistent":           func(c *Config) { c.APIServer.CAFile = "/nonexistent" },
		"has no certificate; give the authority": func(c *Config) { c.APIServer.CAFile = c.APIServer.TokenFile },
	} {
		r := newRig(t)
		change(&r.config)
		if _, err := New(r.config, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, wanted %s", err, want)
		}
	}
}

func TestInAPodTheAPIServerIsInTheEnvironment(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	if got := InCluster(); got.URL != "https://[fd00::1]:443" || !strings.HasSuffix(got.TokenFile, "/token") {
		t.Errorf("%+v", got)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if got := InCluster(); got.URL != "" {
		t.Errorf("%+v", got)
	}
}
