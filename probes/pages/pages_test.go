package pages

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/export"
	"vigia/probes/moment"
	"vigia/probes/pairs"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/records"
	"vigia/probes/sender"
)

// site is what the pages show: a test sets it.
type site struct {
	status  []sender.Status
	err     error
	recent  map[sender.Labels][]*records.Line
	mtu     map[sender.Labels]export.PathMTU
	written []sender.Labels
	ready   error
}

func (s *site) Snapshot(to []sender.Status) ([]sender.Status, sender.Totals, error) {
	return append(to, s.status...), sender.Totals{}, s.err
}

func (s *site) Recent(l sender.Labels, n int) []*records.Line {
	all := s.recent[l]
	return all[max(len(all)-n, 0):]
}

func (s *site) Write(w io.Writer, wanted func(sender.Labels) bool, none func()) error {
	s.written = nil
	for i := range s.status {
		if l := s.status[i].Target.Labels; wanted(l) {
			s.written = append(s.written, l)
			fmt.Fprintf(w, "{\"dst\":%q}\n", l.Dst)
		}
	}
	if len(s.written) == 0 {
		none()
	}
	return nil
}

func (s *site) Known(l sender.Labels) (export.PathMTU, bool) {
	p, ok := s.mtu[l]
	return p, ok
}

func (s *site) serve(t *testing.T, path string) *httptest.ResponseRecorder {
	t.Helper()
	return s.serveWith(t, &Pages{
		Targets: s, Records: s, PathMTUs: s, Ready: func() error { return s.ready },
		Node: func() (string, string) { return "lb1", "node lb1: 3 targets" },
	}, path)
}

func (s *site) serveWith(t *testing.T, p *Pages, path string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	p.Register(mux)
	mux.HandleFunc("GET /{$}", p.ServeLanding)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func labels(dst string) sender.Labels {
	return sender.Labels{Src: "lb1", Dst: dst, Path: "direct", Tenant: "blue", Probe: "stamp-64"}
}

func status(dst string, change func(*sender.Status)) sender.Status {
	st := sender.Status{
		Target: sender.Target{Labels: labels(dst), Protocol: stampprobe.Protocol{}, Host: dst + ".example", Netns: "red", Source: netip.MustParseAddrPort("10.0.0.1:0")},
		Open:   true, Up: true, Address: netip.MustParseAddrPort("10.0.0.2:862"),
		Counts: accounting.Counts{Sent: 10, Received: 9, Handed: 10, Lost: [accounting.NumCauses]uint64{accounting.Forward: 1}},
	}
	change(&st)
	return st
}

func unchanged(*sender.Status) {}

// rows returns the first cells of the table's rows.
func rows(page string) (dsts []string) {
	for _, m := range regexp.MustCompile(`(?s)<tr>\s*<td>([^<]*)</td>`).FindAllStringSubmatch(page, -1) {
		dsts = append(dsts, m[1])
	}
	return dsts
}

// TestFailuresComeFirst and paused targets last; each row says why. No time passes meanwhile.
func TestFailuresComeFirst(t *testing.T) { synctest.Test(t, failuresComeFirst) }

func failuresComeFirst(t *testing.T) {
	s := &site{
		status: []sender.Status{
			status("fine", unchanged),
			status("paused", func(st *sender.Status) { st.Target.Paused = true }),
			status("down", func(st *sender.Status) { st.Up, st.LastError, st.LastErrorAt = false, syscall.ECONNREFUSED, time.Now() }),
			status("closed", func(st *sender.Status) { st.Up, st.Open = false, false }),
			status("nameless", func(st *sender.Status) { st.Up, st.Address = false, netip.AddrPort{} }),
			status("new", func(st *sender.Status) { st.Up, st.Counts = false, accounting.Counts{} }),
		},
		recent: map[sender.Labels][]*records.Line{
			labels("down"): {{Outcome: "lost", Cause: "forward"}, {Outcome: "lost", Cause: "unknown"}, {Outcome: "lost", Cause: "forward"}},
		},
		ready: errors.New("socket 10.0.0.1:0 is not open"),
	}
	w := s.serve(t, "/")
	page := w.Body.String()
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	if got := strings.Join(rows(page), " "); got != "closed down nameless new fine paused" {
		t.Errorf("rows %s", got)
	}
	for _, want := range []string{
		"vigia-probe on lb1", "node lb1: 3 targets", "socket 10.0.0.1:0 is not open",
		"its socket is not open: it is about to be opened", "its name has no address: it is being looked up", "not probed yet",
		"it has vanished from its discovery source",
		"no answer from 10.0.0.2; 2 of the last 3 lost by forward; 1 of the last 3 lost by unknown; last error, 0s ago: connection refused",
		`<a href="/v1/moments?dst=down&amp;path=direct&amp;tenant=blue&amp;probe=stamp-64">when it turned bad</a>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}

// TestLabelsAreNoMarkup: names come from discovery, and so from outside.
func TestLabelsAreNoMarkup(t *testing.T) {
	const evil = `<script>alert(1)</script>`
	s := &site{status: []sender.Status{status(evil, func(st *sender.Status) { st.Up, st.LastError = false, errors.New(evil) })}, ready: errors.New(evil)}
	if page := s.serve(t, "/").Body.String(); strings.Contains(page, evil) || !strings.Contains(page, "&lt;script&gt;") {
		t.Errorf("markup of a label is in the page:\n%s", page)
	}
}

// TestRoundsOfATarget are shown with their outcome, the last round-trip time beside them.
func TestRoundsOfATarget(t *testing.T) {
	rtt := int64(1500)
	s := &site{
		status: []sender.Status{status("b", unchanged)},
		recent: map[sender.Labels][]*records.Line{labels("b"): {
			{Outcome: "lost", Cause: "reverse", Time: "10:00"}, {Outcome: "received", Time: "10:01", Application: 7000}, {Outcome: "received", Time: "10:02", RTT: &rtt},
		}},
	}
	page := s.serve(t, "/").Body.String()
	for _, want := range []string{"10:00: lost, cause reverse", "10:01: 7µs in the application", "10:02: 1.5µs", `class="lost"`, `class="received"`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, "path MTU") {
		t.Error("a column for what nobody searches")
	}
	s.mtu = map[sender.Labels]export.PathMTU{labels("b"): {Bytes: 1400}}
	if page := s.serve(t, "/").Body.String(); !strings.Contains(page, "path MTU") || !strings.Contains(page, "1400") {
		t.Errorf("no path MTU in\n%s", page)
	}
}

// TestPageIsBounded, however many targets there are, and says how many it leaves out.
func TestPageIsBounded(t *testing.T) {
	s := &site{}
	for i := range maxRows + 7 {
		s.status = append(s.status, status(fmt.Sprintf("n%04d", i), unchanged))
	}
	page := s.serve(t, "/").Body.String()
	if got := len(rows(page)); got != maxRows || !strings.Contains(page, "7 ") {
		t.Errorf("%d rows", got)
	}
}

// TestStoppingDaemon has no state to show.
func TestStoppingDaemon(t *testing.T) {
	s := &site{err: errors.New("the event loop has stopped")}
	for _, path := range []string{"/", "/debug/targets"} {
		if w := s.serve(t, path); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "has stopped") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestTargetsAsJSON has everything of a target, in order.
func TestTargetsAsJSON(t *testing.T) {
	at := time.Unix(1_700_000_000, 0).UTC()
	full := status("b", func(st *sender.Status) {
		st.Counts = accounting.Counts{
			Sent: 10, Received: 4, Lost: [accounting.NumCauses]uint64{1, 1, 1, 1, 1, 1}, Late: 2, Duplicate: 3, Reordered: 4, Corrupt: 5, Skipped: 6, Handed: 11, Refused: 1,
		}
		st.InFlight, st.Waiting, st.Jitter, st.LastError, st.LastErrorAt = 2, 1, 0.5, errors.New("no route"), at
		st.Source = delay.Hardware
	})
	s := &site{status: []sender.Status{full, status("a", unchanged)}, mtu: map[sender.Labels]export.PathMTU{labels("b"): {Bytes: 1400}}}
	w := s.serve(t, "/debug/targets")
	var views struct {
		Targets []TargetView `json:"targets"`
	}
	dec := json.NewDecoder(w.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&views); err != nil || w.Header().Get("Content-Type") != "application/json" {
		t.Fatal(err, w.Header())
	}
	if len(views.Targets) != 2 || views.Targets[0].Dst != "a" {
		t.Fatalf("%+v", views)
	}
	v := views.Targets[1]
	if v.State != "up" || v.Netns != "red" || v.Source != "10.0.0.1:0" || v.Host != "b.example" || v.Address != "10.0.0.2:862" || v.LastError != "no route" || !v.LastErrorAt.Equal(at) ||
		v.Sent != 10 || v.Received != 4 || v.Late != 2 || v.Duplicate != 3 || v.Reordered != 4 || v.Corrupt != 5 || v.Skipped != 6 || v.InFlight != 2 || v.Waiting != 1 ||
		v.Jitter != 0.5 || v.PathMTU != 1400 || v.StampedBy != "hardware" || v.Mismatch != full.Counts.Mismatch(2) {
		t.Errorf("%+v", v)
	}
	for c := range accounting.Cause(accounting.NumCauses) {
		if v.Lost[c.String()] != 1 {
			t.Errorf("lost by %s: %v", c, v.Lost)
		}
	}
	if a := views.Targets[0]; a.LastErrorAt != nil || a.PathMTU != 0 || a.StampedBy != "kernel" {
		t.Errorf("%+v", a)
	}
}

// TestRecordsAreSelected by labels, each given once; what cannot be is a 4xx.
func TestRecordsAreSelected(t *testing.T) {
	s := &site{status: []sender.Status{status("a", unchanged), status("b", unchanged)}}
	for _, tc := range []struct {
		query string
		code  int
		want  []string
	}{
		{"", 200, []string{"a", "b"}},
		{"?dst=b", 200, []string{"b"}},
		{"?tenant=blue&path=direct&probe=stamp-64", 200, []string{"a", "b"}},
		{"?dst=b&tenant=red", 404, nil},
		{"?dst=", 404, nil},
		{"?src=lb1", 400, nil},
		{"?dst=a&dst=b", 400, nil},
	} {
		w := s.serve(t, records.Path+tc.query)
		var got []string
		for _, l := range s.written {
			got = append(got, l.Dst)
		}
		if w.Code != tc.code || tc.code == 200 && strings.Join(got, " ") != strings.Join(tc.want, " ") {
			t.Errorf("%q: %d %v %s", tc.query, w.Code, got, w.Body)
		}
		if tc.code == 200 && w.Header().Get("Content-Type") != "application/jsonl" {
			t.Errorf("%q: %v", tc.query, w.Header())
		}
	}
	s.status = nil
	if w := s.serve(t, records.Path); w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("without targets: %d %s", w.Code, w.Body)
	}
}

// happened has a bad and a good record for each target that is wanted.
type happened struct{ limit int }

func (h *happened) Records(wanted func(sender.Labels) bool, limit int) (bad, good []*moment.Moment) {
	h.limit = limit
	bad, good = []*moment.Moment{}, []*moment.Moment{}
	for _, dst := range []string{"a", "b"} {
		if wanted(labels(dst)) {
			bad = append(bad, &moment.Moment{Dst: dst, Why: moment.Loss, Hops: &moment.Hops{Hops: []moment.Hop{}}})
			good = append(good, &moment.Moment{Dst: dst, Why: moment.Good})
		}
	}
	return bad, good
}

// TestMoments are shown as JSON, by label and number; what cannot be is a 4xx.
func TestMoments(t *testing.T) {
	s, h := &site{}, &happened{}
	for _, tc := range []struct {
		query string
		code  int
		limit int
		want  string
	}{
		{"", 200, 20, "a b"},
		{"?dst=b", 200, 20, "b"},
		{"?dst=b&limit=3", 200, 3, "b"},
		{"?dst=never", 200, 20, ""},
		{"?limit=100", 200, 100, "a b"},
		{"?limit=101", 400, 0, `limit ["101"] is none; write one number from 1 to 100`},
		{"?limit=0", 400, 0, "is none"},
		{"?limit=x", 400, 0, "is none"},
		{"?limit=1&limit=2", 400, 0, "write one number"},
		{"?port=1", 400, 0, `"port" is not a label to select by; known here: dst, path, tenant, probe`},
	} {
		w := s.serveWith(t, &Pages{Moments: h, Node: func() (string, string) { return "lb1", "" }}, "/v1/moments"+tc.query)
		if w.Code != tc.code {
			t.Errorf("%q: %d %s", tc.query, w.Code, w.Body)
			continue
		}
		if tc.code != http.StatusOK {
			if !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("%q: %s", tc.query, w.Body)
			}
			continue
		}
		var page struct {
			Node          string
			Moments, Good []moment.Moment
		}
		dec := json.NewDecoder(w.Body)
		dec.DisallowUnknownFields()
		if err := dec.Decode(&page); err != nil || page.Node != "lb1" || page.Moments == nil || w.Header().Get("Content-Type") != "application/json" || h.limit != tc.limit {
			t.Fatalf("%q: %v %+v, limit %d", tc.query, err, page, h.limit)
		}
		var got []string
		for i := range page.Moments {
			got = append(got, page.Moments[i].Dst)
		}
		if strings.Join(got, " ") != tc.want || len(page.Good) != len(got) {
			t.Errorf("%q: %+v", tc.query, page)
		}
	}
}

// meshed is a site with pairs.
type meshed struct {
	states []export.PairState
	asked  string
}

func (m *meshed) Pairs() []export.PairState { return m.states }

func (m *meshed) Ask(dst string, ttl time.Duration) error {
	if dst != "n1" {
		return fmt.Errorf("dst %q is no node", dst)
	}
	m.asked = fmt.Sprint(dst, " ", ttl)
	return nil
}

// Pairs are told, and asked for, by the command as over HTTP.
func TestPairs(t *testing.T) {
	m := &meshed{states: []export.PairState{
		{Dst: "n1", Path: "p", Tenant: "_infra", Probe: "c", Rack: "r1", Zone: "z1"},
		{Dst: "n2", Path: "p", Tenant: "_infra", Probe: "c", Bad: true, Unreachable: true, Exported: true},
		{Dst: "n3", Path: "p", Tenant: "_infra", Probe: "c", Asked: true},
	}}
	mux := http.NewServeMux()
	(&Pages{Pairs: m}).Register(mux)
	server := httptest.NewServer(mux)
	defer server.Close()
	commandTo := func(url string, arguments ...string) (string, error) {
		c := pairs.Command("127.0.0.1:1")
		app := kingpin.New("test", "").Terminate(nil)
		do := c.Register(app.Command(c.Name, c.Help))
		if _, err := app.Parse(append([]string{c.Name, "--url", url}, arguments...)); err != nil {
			return "", err
		}
		var out strings.Builder
		err := do(t.Context(), &out, io.Discard)
		return out.String(), err
	}
	command := func(arguments ...string) (string, error) { return commandTo(server.URL, arguments...) }
	text, err := command()
	if err != nil || strings.Contains(text, "n1") || !strings.Contains(text, "unreachable, bad, with series\n") || !strings.Contains(text, "asked for, left out\n") {
		t.Errorf("%v\n%s", err, text)
	}
	if text, err = command("--all"); err != nil || !strings.Contains(text, "r1    z1    fine\n") {
		t.Errorf("%v\n%s", err, text)
	}
	if text, err = command("--dst", "n1", "--ttl", "5m"); err != nil || m.asked != "n1 5m0s" || !strings.Contains(text, "n1 have series of their own for 5m0s") {
		t.Errorf("%v, asked for %q\n%s", err, m.asked, text)
	}
	if _, err = command("--dst", "n9"); err == nil || !strings.Contains(err.Error(), `400 Bad Request: dst "n9" is no node`) {
		t.Errorf("%v", err)
	}
	if _, err = commandTo("ftp://x"); err == nil || !strings.Contains(err.Error(), "is not the address of an instance") {
		t.Errorf("%v", err)
	}
	response, err := http.Post(server.URL+pairs.Path+"?dst=n1&ttl=long", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), `ttl "long" is no duration; write for example 10m`) {
		t.Errorf("%v, %s: %s", err, response.Status, body)
	}
}
