package get

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"vigia/probes/protocol/background"
)

const (
	maxRedirects = 10 // as blackbox_exporter and net/http have it
	maxHeader    = 64 << 10
)

// client makes the requests of a session.
type client struct {
	Protocol
	codes    []int
	versions []string
	matches  []*regexp.Regexp
	misses   []*regexp.Regexp
}

func newClient(p Protocol) *client {
	c := &client{Protocol: p.orDefault(), versions: p.versions.Texts(), matches: p.matches.Compiled(), misses: p.misses.Compiled()}
	for _, code := range p.codes.Texts() {
		n, _ := strconv.Atoi(code) // it was a number
		c.codes = append(c.codes, n)
	}
	return c
}

// failure is an error of a kind.
type failure struct {
	kind string
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// get asks once, over a connection of its own.
func (c *client) get(ctx context.Context, to *background.Endpoint) (o background.Outcome) {
	o.Values = unknown()
	watch := &stopwatch{}
	err := c.ask(httptrace.WithClientTrace(ctx, watch.trace()), to, watch, &o)
	o.Phases = watch.stop()
	if err == nil {
		return o
	}
	kind := badAnswer
	if f := (*failure)(nil); errors.As(err, &f) {
		kind = f.kind
	} else if watch.insecure() {
		kind = badTLS
	}
	o.Fail(kind, err)
	return o
}

// ask makes a request, follows where it is led, and checks what comes.
func (c *client) ask(ctx context.Context, to *background.Endpoint, watch *stopwatch, o *background.Outcome) error {
	transport, err := c.transport(to, watch)
	if err != nil {
		return &failure{badTLS, err}
	}
	defer transport.CloseIdleConnections()
	host := to.Address.String()
	request, err := http.NewRequestWithContext(ctx, c.method, c.scheme+"://"+host+c.path, http.NoBody)
	if err != nil {
		return err
	}
	request.Host = cmp.Or(c.host, host)
	request.Header.Set("User-Agent", "vigia-probe")
	asking := &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, before []*http.Request) error {
		return c.redirected(next, before, host)
	}}
	answer, err := asking.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	o.Values[status] = float64(answer.StatusCode)
	o.Values[expiry] = soonest(answer.TLS)
	return c.check(answer)
}

// redirected decides whether a redirect is followed.
func (c *client) redirected(next *http.Request, before []*http.Request, host string) error {
	switch {
	case c.stay:
		return http.ErrUseLastResponse
	case len(before) > maxRedirects:
		return &failure{badRedirect, fmt.Errorf("more than %d redirects", maxRedirects)}
	case next.URL.Scheme != c.scheme || next.URL.Host != host && next.URL.Host != c.host:
		return &failure{badRedirect, fmt.Errorf("redirected to %.200s, which is another path", next.URL.Redacted())}
	}
	next.Host = before[0].Host
	return nil
}

// check says whether an answer is a success, and reads all of it.
func (c *client) check(answer *http.Response) error {
	valid := answer.StatusCode >= 200 && answer.StatusCode < 300
	if len(c.codes) > 0 {
		valid = slices.Contains(c.codes, answer.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, c.limit+1))
	switch {
	case !valid:
		return &failure{badStatus, fmt.Errorf("the status is %d", answer.StatusCode)}
	case len(c.versions) > 0 && !slices.Contains(c.versions, answer.Proto):
		return &failure{badVersion, fmt.Errorf("the version is %.20q", answer.Proto)}
	case err != nil:
		return err
	case int64(len(body)) > c.limit:
		return &failure{badBody, fmt.Errorf("the body is longer than %d bytes", c.limit)}
	}
	for _, pattern := range c.matches {
		if pattern.Match(body) {
			return &failure{badBody, fmt.Errorf("the body matches %q", pattern)}
		}
	}
	for _, pattern := range c.misses {
		if !pattern.Match(body) {
			return &failure{badBody, fmt.Errorf("the body does not match %q", pattern)}
		}
	}
	return nil
}

// transport returns what makes connections to the endpoint, and to nothing else.
func (c *client) transport(to *background.Endpoint, watch *stopwatch) (*http.Transport, error) {
	t := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxHeader,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			watch.begin(connecting)
			defer watch.end(connecting)
			conn, err := to.Dial(ctx, "tcp")
			if err != nil {
				return nil, &failure{noConnection, err}
			}
			return conn, nil
		},
	}
	if c.scheme != secure {
		return t, nil
	}
	name := cmp.Or(c.serverName, hostname(c.host), to.Address.Addr().String())
	t.TLSClientConfig = &tls.Config{ServerName: name, InsecureSkipVerify: c.insecure} //nolint:gosec // only where the configuration says so
	if c.caFile != "" {
		pool, err := authorities(c.caFile)
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig.RootCAs = pool
	}
	return t, nil
}

// hostname returns a host without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

// soonest returns when the first certificate of a chain expires, in seconds since 1970; not a
// number without TLS.
func soonest(state *tls.ConnectionState) float64 {
	if state == nil || len(state.PeerCertificates) == 0 {
		return unknown()[expiry]
	}
	first := state.PeerCertificates[0].NotAfter
	for _, certificate := range state.PeerCertificates[1:] {
		if certificate.NotAfter.Before(first) {
			first = certificate.NotAfter
		}
	}
	return float64(first.Unix())
}

// stopwatch times the phases, of all requests together where one led to another.
type stopwatch struct {
	mu    sync.Mutex
	since [numPhases]time.Time // when a phase began that has not ended
	took  [numPhases]time.Duration
	noTLS bool // a handshake failed
}

func (w *stopwatch) begin(phase int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since[phase] = time.Now()
}

func (w *stopwatch) end(phase int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopPhase(phase, time.Now())
}

func (w *stopwatch) stopPhase(phase int, now time.Time) {
	if !w.since[phase].IsZero() {
		w.took[phase] += now.Sub(w.since[phase])
		w.since[phase] = time.Time{}
	}
}

// secured ends the handshake of TLS.
func (w *stopwatch) secured(err error) {
	w.end(securing)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noTLS = w.noTLS || err != nil
}

// insecure reports whether a handshake of TLS failed.
func (w *stopwatch) insecure() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.noTLS
}

// next ends a phase and begins the one after it.
func (w *stopwatch) next(phase int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.stopPhase(phase, now)
	w.since[phase+1] = now
}

// stop ends whatever goes on and returns how long each phase took.
func (w *stopwatch) stop() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for phase := range w.since {
		w.stopPhase(phase, now)
	}
	return slices.Clone(w.took[:])
}

// trace tells the phases apart.
func (w *stopwatch) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		TLSHandshakeStart: func() { w.begin(securing) },
		TLSHandshakeDone:  func(_ tls.ConnectionState, err error) { w.secured(err) },
		GotConn: func(httptrace.GotConnInfo) {
			w.end(transferring) // of the answer that led here
			w.begin(processing)
		},
		GotFirstResponseByte: func() { w.next(processing) },
	}
}
