package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

// fake is a service whose configuration is the content of its file; the word
// "bad" anywhere in it is a mistake.
type fake struct {
	env     Env
	config  atomic.Value
	ready   atomic.Bool
	runErr  error
	reloads atomic.Int64
}

func check(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if strings.Contains(string(raw), "bad") {
		return "", errors.New("config: the word bad is not allowed")
	}
	return fmt.Sprintf("%d bytes", len(raw)), nil
}

func (f *fake) Run(ctx context.Context) error {
	if f.runErr != nil {
		return f.runErr
	}
	<-ctx.Done()
	return nil
}

func (f *fake) Reload(_ context.Context, path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if strings.Contains(string(raw), "unswappable") {
		return errors.New("cannot swap")
	}
	f.config.Store(string(raw))
	f.reloads.Add(1)
	return nil
}

func (f *fake) Ready() error {
	if !f.ready.Load() {
		return errors.New("warming up")
	}
	return nil
}

type instance struct {
	service *fake
	config  string
	url     string
	stop    context.CancelFunc
	exited  chan int
	stderr  *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func program(f *fake) Program {
	return Program{
		Name: "vigia-probe", Part: "probe", Description: "A test.", DefaultAddress: "127.0.0.1:9871",
		Check: check,
		Start: func(ctx context.Context, env Env) (Service, error) {
			f.env = env
			return f, f.Reload(ctx, env.ConfigPath)
		},
		Commands: []Command{{Name: "greet", Help: "Greet.", Register: func(cmd *kingpin.CmdClause) func(context.Context, io.Writer, io.Writer) error {
			name := cmd.Flag("name", "Whom.").Required().String()
			return func(_ context.Context, stdout, _ io.Writer) error {
				_, err := fmt.Fprintf(stdout, "hello %s\n", *name)
				return err
			}
		}}},
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func start(t *testing.T, f *fake) *instance {
	t.Helper()
	in := &instance{service: f, config: filepath.Join(t.TempDir(), "c.yaml"), exited: make(chan int, 1), stderr: &syncBuffer{}}
	if err := os.WriteFile(in.config, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	in.url = "http://" + address
	ctx, cancel := context.WithCancel(t.Context())
	in.stop = cancel
	go func() {
		in.exited <- program(f).Run(ctx, []string{"--config", in.config, "--web.listen-address", address}, io.Discard, in.stderr)
	}()
	t.Cleanup(func() { in.wait(t) })
	waitFor(t, "the server to answer", func() bool { code, _ := in.get(t, "/-/healthy"); return code == http.StatusOK })
	return in
}

func (in *instance) wait(t *testing.T) int {
	t.Helper()
	in.stop()
	select {
	case code := <-in.exited:
		in.exited <- code
		return code
	case <-time.After(20 * time.Second):
		t.Fatalf("the program did not stop\n%s", in.stderr)
		return -1
	}
}

func (in *instance) get(t *testing.T, path string) (int, string) {
	t.Helper()
	resp, err := http.Get(in.url + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (in *instance) reload(t *testing.T, content string) (int, string) {
	t.Helper()
	if err := os.WriteFile(in.config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(in.url+"/-/reload", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

func TestEndpoints(t *testing.T) {
	in := start(t, &fake{})
	if code, body := in.get(t, "/-/ready"); code != http.StatusServiceUnavailable || !strings.Contains(body, "warming up") {
		t.Errorf("not ready: got %d %q", code, body)
	}
	in.service.ready.Store(true)
	if code, _ := in.get(t, "/-/ready"); code != http.StatusOK {
		t.Errorf("ready: got %d", code)
	}
	_, body := in.get(t, "/metrics")
	for _, want := range []string{"vigia_probe_build_info{", "vigia_probe_config_last_reload_successful 1", "process_resident_memory_bytes", "go_goroutines"} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if code, body := in.get(t, "/"); code != http.StatusOK || !strings.Contains(body, "vigia-probe") {
		t.Errorf("landing page: got %d", code)
	}
	if code, _ := in.get(t, "/nothing"); code != http.StatusNotFound {
		t.Errorf("/nothing: got %d", code)
	}
	if code := in.wait(t); code != ExitOK {
		t.Errorf("exit code %d\n%s", code, in.stderr)
	}
}

func TestReloadSwapsOnlyAfterSuccess(t *testing.T) {
	in := start(t, &fake{})
	if code, body := in.reload(t, "two"); code != http.StatusOK {
		t.Fatalf("got %d %s", code, body)
	}
	for _, content := range []string{"bad", "unswappable"} {
		if code, _ := in.reload(t, content); code != http.StatusInternalServerError {
			t.Errorf("%s: got %d, want 500", content, code)
		}
		if got := in.service.config.Load(); got != "two" {
			t.Errorf("%s: the service runs on %q, want two", content, got)
		}
		if _, body := in.get(t, "/metrics"); !strings.Contains(body, "config_last_reload_successful 0") {
			t.Errorf("%s: the failure is not exported", content)
		}
	}
	if code, _ := in.reload(t, "three"); code != http.StatusOK || in.service.config.Load() != "three" {
		t.Error("the service did not recover from a failed reload")
	}
	resp, err := http.Get(in.url + "/-/reload")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET /-/reload: got %d, want 405", resp.StatusCode)
	}
}

func TestReloadOnSIGHUP(t *testing.T) {
	in := start(t, &fake{})
	if err := os.WriteFile(in.config, []byte("hup"), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the reload", func() bool { return in.service.config.Load() == "hup" })
}

func TestRunErrorsExitNonZeroWithOneLine(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := write("good", "fine"), write("wrong", "bad")
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	free := freeAddress(t)
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no config", nil, ExitUsage, "--config FILE is missing"},
		{"unknown flag", []string{"--nope"}, ExitUsage, "unknown long flag '--nope'"},
		{"unknown command", []string{"nope"}, ExitUsage, "nope"},
		{"bad config", []string{"--config", bad, "--web.listen-address", free}, ExitError, "the word bad is not allowed"},
		{"absent config", []string{"--config", filepath.Join(dir, "absent")}, ExitError, "no such file"},
		{"busy port", []string{"--config", good, "--web.listen-address", busy.Addr().String()}, ExitError, "is in use; stop the process"},
		{"bad address", []string{"--config", good, "--web.listen-address", "127.0.0.1:http-nope"}, ExitError, "--web.listen-address 127.0.0.1:http-nope"},
		{"absent web config", []string{"--config", good, "--web.config.file", filepath.Join(dir, "absent")}, ExitError, "--web.config.file"},
		{"check without config", []string{"check-config"}, ExitUsage, "check-config needs --config"},
		{"check bad config", []string{"check-config", "--config", bad}, ExitError, "the word bad"},
		{"dead instance", []string{"healthcheck", "--url", "http://" + free + "/-/ready"}, ExitError, "connection refused"},
		{"missing command flag", []string{"greet"}, ExitUsage, "--name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var stderr bytes.Buffer
			code := program(&fake{}).Run(t.Context(), tc.args, io.Discard, &stderr)
			if code != tc.code || !strings.Contains(stderr.String(), tc.want) {
				t.Errorf("got exit %d, %q; want %d and %q", code, stderr.String(), tc.code, tc.want)
			}
			if n := strings.Count(stderr.String(), "\n"); n != 1 {
				t.Errorf("got %d lines on stderr, want 1:\n%s", n, stderr.String())
			}
		})
	}
}

func TestServiceErrorEndsTheProgram(t *testing.T) {
	f := &fake{runErr: errors.New("socket broke")}
	config := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(config, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	code := program(f).Run(t.Context(), []string{"--config", config, "--web.listen-address", freeAddress(t), "--log.level", "error"}, io.Discard, &stderr)
	if code != ExitError || !strings.Contains(stderr.String(), "socket broke") {
		t.Errorf("got %d, %q", code, stderr.String())
	}
}

func TestOneShotCommands(t *testing.T) {
	config := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(config, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	in := start(t, &fake{})
	in.service.ready.Store(true)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--version"}, "vigia-probe dev"},
		{[]string{"--help"}, "check-config"},
		{[]string{"--list-metrics", "text"}, "vigia_probe_rtt_seconds{"},
		{[]string{"--list-metrics", "json"}, `"name": "vigia_probe_build_info"`},
		{[]string{"check-config", "--config", config}, "OK, 3 bytes"},
		{[]string{"healthcheck", "--url", in.url + "/-/ready"}, "ready"},
		{[]string{"greet", "--name", "world"}, "hello world"},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := program(&fake{}).Run(t.Context(), tc.args, &stdout, &stderr)
			if code != ExitOK || !strings.Contains(stdout.String()+stderr.String(), tc.want) {
				t.Errorf("got exit %d, %q %q; want %q", code, stdout.String(), stderr.String(), tc.want)
			}
		})
	}
	in.service.ready.Store(false)
	var stderr bytes.Buffer
	if code := program(&fake{}).Run(t.Context(), []string{"healthcheck", "--url", in.url + "/-/ready"}, io.Discard, &stderr); code != ExitError || !strings.Contains(stderr.String(), "warming up") {
		t.Errorf("unready instance: got %d, %q", code, stderr.String())
	}
}
