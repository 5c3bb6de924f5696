package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"vigia/internal/catalog"
	"vigia/internal/exposition"
	"vigia/internal/testutil"
)

// fastFake is a service with a fast page of one series, whose value is how often it was made.
type fastFake struct {
	*fake
	family *exposition.Family

	mu   sync.Mutex
	made int
	err  error
}

func newFastFake() *fastFake {
	return &fastFake{fake: &fake{}, family: exposition.NewFamily(catalog.Metric{Name: "vigia_probe_recent_bad_targets", Type: catalog.Gauge, Help: "H."})}
}

func (f *fastFake) WriteFast(out *exposition.Page) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	out.Emit(f.family, float64(f.made))
	return f.err
}

func (f *fastFake) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// program returns a program with the page.
func (f *fastFake) program() Program {
	p := program(f.fake)
	begin := p.Start
	p.Start = func(ctx context.Context, env Env) (Service, error) {
		_, err := begin(ctx, env)
		return f, err
	}
	return p
}

const fastSeries = "vigia_probe_recent_bad_targets"

func TestTheFastPageIsServedBesideTheOther(t *testing.T) {
	f := newFastFake()
	in := startProgram(t, f.fake, f.program())
	if code, body := in.do("GET", "/metrics/fast"); code != http.StatusOK || body != "# HELP "+fastSeries+" H.\n# TYPE "+fastSeries+" gauge\n"+fastSeries+" 1\n" {
		t.Errorf("%d %q", code, body)
	}
	if code, body := in.do("GET", "/metrics"); code != http.StatusOK || strings.Contains(body, fastSeries) || !strings.Contains(body, "vigia_probe_build_info{") {
		t.Errorf("the other page: %d %.200q", code, body)
	}
	for _, tc := range []struct {
		method, path string
		code         int
	}{{"POST", "/metrics/fast", 405}, {"GET", "/metrics/fast/", 404}, {"GET", "/metrics/slow", 404}} {
		if code, _ := in.do(tc.method, tc.path); code != tc.code {
			t.Errorf("%s %s: %d, want %d", tc.method, tc.path, code, tc.code)
		}
	}
	if _, body := in.do("GET", "/"); !strings.Contains(body, "/metrics/fast") {
		t.Errorf("the first page does not lead there: %s", body)
	}
	without := start(t, &fake{})
	if code, _ := without.do("GET", "/metrics/fast"); code != http.StatusNotFound {
		t.Errorf("a service without the page answers %d", code)
	}
}

// TestAFastPageThatFailsIsNoPage: a half page would say that the rest is quiet.
func TestAFastPageThatFailsIsNoPage(t *testing.T) {
	f := newFastFake()
	f.fail(errors.New("no map"))
	in := startProgram(t, f.fake, f.program())
	for range 3 {
		if code, body := in.do("GET", "/metrics/fast"); code != http.StatusServiceUnavailable || !strings.Contains(body, "no map") || strings.Contains(body, fastSeries) {
			t.Errorf("%d %q", code, body)
		}
	}
	f.fail(nil)
	testutil.WaitFor(t, "the page", func() bool {
		code, body := in.do("GET", "/metrics/fast")
		return code == http.StatusOK && strings.Contains(body, "\n"+fastSeries+" ")
	})
	if log := in.stderr.String(); strings.Count(log, "cannot make the page") != 1 || strings.Count(log, "is made again") != 1 {
		t.Errorf("it is to be said once:\n%s", log)
	}
}

// TestTheFastPageIsMadeTwiceASecondAtMost has many scrapers at every moment.
func TestTheFastPageIsMadeTwiceASecondAtMost(t *testing.T) {
	f := newFastFake()
	now := time.Unix(1000, 0)
	page := newFastPage(f, slog.New(slog.DiscardHandler), func() time.Time { return now })
	scrape := func() (bodies map[string]bool) {
		t.Helper()
		var mu sync.Mutex
		var wg sync.WaitGroup
		bodies = make(map[string]bool)
		for range 20 {
			wg.Go(func() {
				w := httptest.NewRecorder()
				page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/fast", nil))
				mu.Lock()
				defer mu.Unlock()
				bodies[w.Body.String()] = true
			})
		}
		wg.Wait()
		return bodies
	}
	for i, step := range []struct {
		after time.Duration
		made  int
	}{{0, 1}, {fastInterval - 1, 1}, {1, 2}, {fastInterval / 2, 2}, {fastInterval, 3}, {time.Hour, 4}} {
		now = now.Add(step.after)
		if bodies := scrape(); len(bodies) != 1 || f.made != step.made {
			t.Errorf("step %d: %d different pages, made %d times, want one, made %d times", i, len(bodies), f.made, step.made)
		}
	}
	f.fail(errors.New("broken"))
	now = now.Add(fastInterval)
	if bodies := scrape(); len(bodies) != 1 || f.made != 5 {
		t.Errorf("a failure is tried %d times", f.made-4)
	}
}

// TestTheFastPageIsBehindTheSameDoor asks with passwords and without, then without a certificate.
func TestTheFastPageIsBehindTheSameDoor(t *testing.T) {
	const hashOfTest = "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay" // as Prometheus's guide has it
	f := newFastFake()
	in := startProgram(t, f.fake, f.program(), "--web.config.file", write(t, t.TempDir(), "basic_auth_users: {prometheus: "+hashOfTest+"}\n"))
	for password, want := range map[string]int{"": http.StatusUnauthorized, "another": http.StatusUnauthorized, "test": http.StatusOK} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, in.URL+"/metrics/fast", nil)
		if err != nil {
			t.Fatal(err)
		}
		if password != "" {
			req.SetBasicAuth("prometheus", password)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("with the password %q: %s, want %d", password, resp.Status, want)
		}
	}
	f = newFastFake()
	in = startProgram(t, f.fake, f.program(), "--web.config.file", certified(t))
	if code, body := in.do("GET", "/metrics/fast"); code != http.StatusBadRequest || strings.Contains(body, fastSeries) {
		t.Errorf("without TLS: %d %q", code, body)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	if resp, err := client.Get(strings.Replace(in.URL, "http:", "https:", 1) + "/metrics/fast"); err == nil {
		resp.Body.Close()
		t.Errorf("without a certificate: %s", resp.Status)
	}
}
