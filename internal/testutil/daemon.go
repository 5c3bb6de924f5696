package testutil

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Output collects what a program writes; it may be read while the program runs.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Daemon is a program that runs inside the test process.
type Daemon struct {
	t      testing.TB
	URL    string
	Stderr *Output
	stop   context.CancelFunc
	exited chan int
	code   int
	ended  bool
}

// RunFunc runs a program until ctx ends and returns its exit code.
type RunFunc func(ctx context.Context, args []string, stdout, stderr io.Writer) int

const reloadToken = "reload-token-of-the-tests"

// StartDaemon runs a program on a free loopback port and waits until it is
// ready. It ends with the test.
func StartDaemon(t testing.TB, run RunFunc, args ...string) *Daemon {
	t.Helper()
	address := FreeAddress(t)
	token := filepath.Join(t.TempDir(), "reload.token")
	if err := os.WriteFile(token, []byte(reloadToken), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Daemon{t: t, URL: "http://" + address, Stderr: &Output{}, stop: cancel, exited: make(chan int, 1)}
	go func() {
		d.exited <- run(ctx, append(args, "--web.listen-address", address, "--web.reload-token-file", token), io.Discard, d.Stderr)
	}()
	t.Cleanup(func() { d.Stop() })
	state := ""
	defer func() {
		if t.Failed() {
			t.Logf("last it said: %s\n%s", state, d.Stderr)
		}
	}()
	WaitFor(t, "the program to become ready", func() bool {
		code, why := d.Get("/-/ready")
		select {
		case code := <-d.exited:
			d.ended, d.code = true, code
			t.Fatalf("the program exited with %d:\n%s", code, d.Stderr)
		default:
		}
		state = why
		return code == http.StatusOK
	})
	return d
}

// Stop ends the program as SIGTERM would and returns its exit code.
func (d *Daemon) Stop() int {
	d.stop()
	if !d.ended {
		d.code, d.ended = <-d.exited, true
	}
	return d.code
}

// Get fetches a path; status 0 means that nothing answered.
func (d *Daemon) Get(path string) (int, string) {
	return d.Do(http.MethodGet, path, "", "")
}

// Do sends a request with an optional bearer token and body; a reload has its token.
func (d *Daemon) Do(method, path, token, body string) (int, string) {
	d.t.Helper()
	if path == "/-/reload" && token == "" {
		token = reloadToken
	}
	req, err := http.NewRequest(method, d.URL+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(out)
}

// Metrics scrapes the daemon and returns the samples by series in the text
// format, the labels sorted by name: name{label="value",...}.
func (d *Daemon) Metrics() map[string]float64 {
	d.t.Helper()
	return d.Scrape("/metrics")
}

// Scrape is Metrics from a path of the test's own, with parameters for example.
func (d *Daemon) Scrape(path string) map[string]float64 {
	d.t.Helper()
	code, body := d.Get(path)
	if code != http.StatusOK {
		d.t.Fatalf("/metrics answers %d: %s", code, body)
	}
	out := make(map[string]float64)
	for line := range strings.SplitSeq(body, "\n") {
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			d.t.Fatalf("/metrics has the line %q", line)
		}
		series := SortLabels(line[:i])
		if _, ok := out[series]; ok {
			d.t.Fatalf("/metrics has %s twice", series)
		}
		out[series] = v
	}
	return out
}

// SortLabels returns a series with its labels sorted by name.
func SortLabels(series string) string {
	name, labels, ok := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	if !ok {
		return series
	}
	pairs := strings.Split(strings.TrimSuffix(labels, `"`), `",`)
	slices.Sort(pairs)
	return name + "{" + strings.Join(pairs, `",`) + `"}`
}
