package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alecthomas/kingpin/v2"

	"vigia/internal/testutil"
)

// fake is a service whose configuration is the content of its file; the word
// "bad" anywhere in it is a mistake.
type fake struct {
	env    Env
	config atomic.Value
	ready  atomic.Bool
	run    func(ctx context.Context) error // nil: works until ctx ends
	reload func(ctx context.Context) error // goes before the swap; nil: fine

	onReady func() // when it is asked; nil: nothing
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
	if f.run != nil {
		return f.run(ctx)
	}
	<-ctx.Done()
	return nil
}

func (f *fake) Reload(ctx context.Context, path string) error {
	if f.reload != nil {
		if err := f.reload(ctx); err != nil {
			return err
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	f.config.Store(string(raw))
	return nil
}

func (f *fake) Ready() error {
	if f.onReady != nil {
		f.onReady()
	}
	if !f.ready.Load() {
		return errors.New("warming up")
	}
	return nil
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

// file writes a file of the test's own.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
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
	free := testutil.FreeAddress(t)
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

func TestOneShotCommands(t *testing.T) {
	config := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(config, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fake{}
	f.ready.Store(true)
	in := start(t, f)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--version"}, "vigia-probe dev"},
		{[]string{"--help"}, "check-config"},
		{[]string{"--list-metrics", "text"}, "vigia_probe_rtt_seconds{"},
		{[]string{"--list-metrics", "json"}, `"name": "vigia_probe_build_info"`},
		{[]string{"check-config", "--config", config}, "OK, 3 bytes"},
		{[]string{"healthcheck", "--url", in.URL + "/-/ready"}, "ready"},
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
	f.ready.Store(false)
	var stderr bytes.Buffer
	if code := program(&fake{}).Run(t.Context(), []string{"healthcheck", "--url", in.URL + "/-/ready"}, io.Discard, &stderr); code != ExitError || !strings.Contains(stderr.String(), "warming up") {
		t.Errorf("unready instance: got %d, %q", code, stderr.String())
	}
}

// TestAHelpOfEveryCommand has a line for each of the flags that all daemons share.
func TestTheHelpNamesWhatAllDaemonsShare(t *testing.T) {
	var stdout bytes.Buffer
	if code := program(&fake{}).Run(t.Context(), []string{"--help"}, &stdout, io.Discard); code != ExitOK {
		t.Fatalf("exit code %d", code)
	}
	for _, want := range []string{"--config=", "--list-metrics=", "--web.listen-address=", "--web.config.file=", "--log.level=", "--log.format=", "healthcheck", "greet"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%s is not there:\n%s", want, stdout.String())
		}
	}
}

// TestAFullStandardOutputIsAnError writes to what takes nothing.
func TestAFullStandardOutputIsAnError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	config := file(t, "c.yaml", "one")
	for _, args := range [][]string{{"check-config", "--config", config}, {"--list-metrics", "text"}, {"greet", "--name", "world"}} {
		var stderr bytes.Buffer
		if code := program(&fake{}).Run(t.Context(), args, full, &stderr); code != ExitError || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%v: exit %d, %q", args, code, stderr.String())
		}
	}
}
