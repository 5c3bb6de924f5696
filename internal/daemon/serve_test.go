package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"vigia/internal/testutil"
)

// running is a program that the test talks to.
type running struct {
	t      *testing.T
	fake   *fake
	config string
	URL    string
	stop   context.CancelFunc
	exited chan int
	stderr *testutil.Output
}

const reloadToken = "reload-token-of-the-tests"

// start starts a program and waits until it answers, ready or not.
func start(t *testing.T, f *fake, args ...string) *running {
	t.Helper()
	return startProgram(t, f, program(f), args...)
}

func startProgram(t *testing.T, f *fake, p Program, args ...string) *running {
	t.Helper()
	address := testutil.FreeAddress(t)
	in := &running{
		t: t, fake: f, config: file(t, "c.yaml", "one"), URL: "http://" + address, exited: make(chan int, 1), stderr: &testutil.Output{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	in.stop = cancel
	go func() {
		in.exited <- p.Run(ctx, append([]string{"--config", in.config, "--web.listen-address", address, "--web.reload-token-file", file(t, "reload.token", reloadToken)}, args...), io.Discard, in.stderr)
	}()
	t.Cleanup(func() { in.wait() })
	testutil.WaitFor(t, "the server to listen", func() bool {
		if len(in.exited) > 0 {
			t.Fatalf("the program ended:\n%s", in.stderr)
		}
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		c.Close()
		return strings.Contains(in.stderr.String(), "msg=started")
	})
	return in
}

// wait stops the program and returns its exit code.
func (in *running) wait() int {
	in.t.Helper()
	in.stop()
	code := <-in.exited
	in.exited <- code
	return code
}

func (in *running) do(method, path string) (int, string) {
	in.t.Helper()
	req, err := http.NewRequest(method, in.URL+path, nil)
	if err != nil {
		in.t.Fatal(err)
	}
	if path == "/-/reload" {
		req.Header.Set("Authorization", "Bearer "+reloadToken)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// reload has the program take up a new file.
func (in *running) reload(content string) (int, string) {
	in.t.Helper()
	if err := os.WriteFile(in.config, []byte(content), 0o600); err != nil {
		in.t.Fatal(err)
	}
	return in.do(http.MethodPost, "/-/reload")
}

func TestEveryEndpointAnswers(t *testing.T) {
	f := &fake{}
	in := start(t, f)
	for _, tc := range []struct {
		method, path string
		code         int
		body         string
	}{
		{"GET", "/-/healthy", 200, "healthy\n"},
		{"GET", "/-/ready", 503, "not ready: warming up\n"},
		{"GET", "/", 200, "vigia-probe"},
		{"GET", "/metrics", 200, "vigia_probe_build_info{"},
		{"GET", "/metrics", 200, "vigia_probe_config_last_reload_successful 1"},
		{"GET", "/metrics", 200, "process_resident_memory_bytes"},
		{"GET", "/metrics", 200, "go_goroutines"},
		{"POST", "/-/reload", 200, "reloaded\n"},
		{"GET", "/nothing", 404, ""},
		{"GET", "/-/reload", 405, ""},
		{"POST", "/-/ready", 405, ""},
		{"POST", "/metrics", 405, ""},
		{"DELETE", "/", 405, ""},
	} {
		if code, body := in.do(tc.method, tc.path); code != tc.code || !strings.Contains(body, tc.body) {
			t.Errorf("%s %s: %d %.200q", tc.method, tc.path, code, body)
		}
	}
	f.ready.Store(true)
	if code, body := in.do("GET", "/-/ready"); code != http.StatusOK || body != "ready\n" {
		t.Errorf("ready: %d %q", code, body)
	}
	if code := in.wait(); code != ExitOK {
		t.Errorf("exit code %d\n%s", code, in.stderr)
	}
}

// special is a service with a page of metrics and a landing page of its own.
type special struct{ *fake }

func (special) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "own_metric 1") })
}

func (special) ServeLanding(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "own page") }

func TestAServiceMayAnswerItself(t *testing.T) {
	f := &fake{}
	p := program(f)
	begin := p.Start
	p.Start = func(ctx context.Context, env Env) (Service, error) {
		_, err := begin(ctx, env)
		return special{f}, err
	}
	in := startProgram(t, f, p)
	for path, want := range map[string]string{"/metrics": "own_metric 1\n", "/": "own page\n"} {
		if code, body := in.do("GET", path); code != http.StatusOK || body != want {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
}

func TestReloadSwapsOnlyAfterSuccess(t *testing.T) {
	f := &fake{}
	broken := errors.New("cannot swap")
	var fails bool
	f.reload = func(context.Context) error {
		if fails {
			return broken
		}
		return nil
	}
	in := start(t, f)
	if code, body := in.reload("two"); code != http.StatusOK {
		t.Fatalf("got %d %s", code, body)
	}
	metric := func(name string) string {
		_, body := in.do("GET", "/metrics")
		for line := range strings.SplitSeq(body, "\n") {
			if value, ok := strings.CutPrefix(line, name+" "); ok {
				return value
			}
		}
		return "none"
	}
	succeeded := metric("vigia_probe_config_last_reload_success_timestamp_seconds")
	for _, tc := range []struct {
		content, why string
		fails        bool
	}{
		{"bad", "the word bad is not allowed", false},
		{"three", "cannot swap", true}, // half way: the file is fine, and yet it cannot be taken up
	} {
		fails = tc.fails
		if code, body := in.reload(tc.content); code != http.StatusInternalServerError || !strings.Contains(body, tc.why) ||
			!strings.Contains(body, "still running on the old configuration") {
			t.Errorf("%s: %d %q", tc.content, code, body)
		}
		if got := f.config.Load(); got != "two" {
			t.Errorf("%s: the service runs on %q, want two", tc.content, got)
		}
		if got := metric("vigia_probe_config_last_reload_successful"); got != "0" {
			t.Errorf("%s: the failure is exported as %s", tc.content, got)
		}
		if got := metric("vigia_probe_config_last_reload_success_timestamp_seconds"); got != succeeded {
			t.Errorf("%s: the last success moved from %s to %s", tc.content, succeeded, got)
		}
		if log := in.stderr.String(); !strings.Contains(log, "cannot reload") || !strings.Contains(log, tc.why) {
			t.Errorf("%s is not in the log:\n%s", tc.why, log)
		}
	}
	fails = false
	if code, _ := in.reload("four"); code != http.StatusOK || f.config.Load() != "four" || metric("vigia_probe_config_last_reload_successful") != "1" {
		t.Error("the service did not recover from a failed reload")
	}
	if err := os.Remove(in.config); err != nil {
		t.Fatal(err)
	}
	if code, body := in.do("POST", "/-/reload"); code != http.StatusInternalServerError || !strings.Contains(body, "no such file") {
		t.Errorf("a file that is gone: %d %q", code, body)
	}
}

func TestReloadOnSIGHUP(t *testing.T) {
	f := &fake{}
	in := start(t, f)
	if err := os.WriteFile(in.config, []byte("hup"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, "the reload", func() bool { return f.config.Load() == "hup" })
}

// TestSIGHUPWhileItStartsEndsNothing: systemd sends one to a unit that has begun but not looked at its file yet. It counts
// as a reload once the program is up.
func TestSIGHUPWhileItStartsEndsNothing(t *testing.T) {
	f := &fake{}
	p := program(f)
	check := p.Check
	p.Check = func(path string) (string, error) {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Error(err)
		}
		return check(path)
	}
	reloaded := make(chan struct{})
	var once sync.Once
	f.reload = func(context.Context) error {
		once.Do(func() { close(reloaded) })
		return nil
	}
	startProgram(t, f, p)
	<-reloaded
}

// TestReloadsInLineDoNotOutliveTheProgram stops it while one reload is under way and
// others wait for their turn: all of them are answered.
func TestReloadsInLineDoNotOutliveTheProgram(t *testing.T) {
	f := &fake{}
	in := start(t, f)
	began := make(chan bool, 1)
	f.reload = func(ctx context.Context) error {
		select {
		case began <- true:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	}
	var wg sync.WaitGroup
	codes := make(chan int, 8)
	for range cap(codes) {
		wg.Go(func() {
			code, _ := in.do("POST", "/-/reload")
			codes <- code
		})
	}
	<-began
	if code := in.wait(); code != ExitOK {
		t.Errorf("exit code %d\n%s", code, in.stderr)
	}
	wg.Wait()
	close(codes)
	for code := range codes {
		if code != http.StatusInternalServerError && code != http.StatusServiceUnavailable && code != 0 { // 0: came too late
			t.Errorf("a reload was answered %d", code)
		}
	}
	if strings.Contains(in.stderr.String(), "cannot finish every request") {
		t.Errorf("requests were waited for in vain:\n%s", in.stderr)
	}
}

func TestWhatEndsTheProgram(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(ctx context.Context) error
		code int
		want string
	}{
		{"the service breaks", func(context.Context) error { return errors.New("socket broke") }, ExitError, "socket broke"},
		{"the service is done", func(context.Context) error { return nil }, ExitOK, ""},
	} {
		config := file(t, "c.yaml", "one")
		var stderr bytes.Buffer
		args := []string{"--config", config, "--web.listen-address", testutil.FreeAddress(t), "--log.level", "error"}
		code := program(&fake{run: tc.run}).Run(t.Context(), args, io.Discard, &stderr)
		if code != tc.code || !strings.Contains(stderr.String(), tc.want) {
			t.Errorf("%s: %d, %q", tc.name, code, stderr.String())
		}
	}
	for name, tc := range map[string]struct {
		err  error
		code int
	}{
		"it ends by its context":  {context.Canceled, ExitOK},
		"it breaks while it ends": {errors.New("a buffer was not written"), ExitError},
	} {
		in := start(t, &fake{run: func(ctx context.Context) error { <-ctx.Done(); return tc.err }})
		if code := in.wait(); code != tc.code {
			t.Errorf("%s: exit code %d\n%s", name, code, in.stderr)
		}
	}
}

func TestAServiceThatCannotStartLeavesNoListener(t *testing.T) {
	p := program(&fake{})
	p.Start = func(context.Context, Env) (Service, error) { return nil, errors.New("no such device") }
	address := testutil.FreeAddress(t)
	var stderr bytes.Buffer
	code := p.Run(t.Context(), []string{"--config", file(t, "c.yaml", "one"), "--web.listen-address", address}, io.Discard, &stderr)
	if code != ExitError || !strings.Contains(stderr.String(), "no such device") {
		t.Errorf("%d, %q", code, stderr.String())
	}
	testutil.WaitUnbound(t, "", "tcp", netip.MustParseAddrPort(address).Port())
}

func TestSeveralAddresses(t *testing.T) {
	other, third := testutil.FreeAddress(t), testutil.FreeAddress(t)
	in := start(t, &fake{}, "--web.listen-address", other)
	in.URL = "http://" + other
	if code, _ := in.do("GET", "/-/healthy"); code != http.StatusOK {
		t.Errorf("the second address answers %d", code)
	}
	// One of several that is taken: the others are given back.
	var stderr bytes.Buffer
	args := []string{"--config", in.config, "--web.listen-address", third, "--web.listen-address", other}
	if code := program(&fake{}).Run(t.Context(), args, io.Discard, &stderr); code != ExitError || !strings.Contains(stderr.String(), other+" is in use") {
		t.Errorf("%d, %q", code, stderr.String())
	}
	testutil.WaitUnbound(t, "", "tcp", netip.MustParseAddrPort(third).Port())
}
