package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/refusal"
)

const red = "/v1/ports/p-red/limit"

// codes are all codes of refusals.
func codes() []refusal.Code {
	var out []refusal.Code
	for c := refusal.Code(1); c.Text() != refusal.Code(0).Text(); c++ {
		out = append(out, c)
	}
	return out
}

// refusals are requests that are refused, each for one reason.
var refusals = []struct {
	name, method, path, body string
	code                     refusal.Code
	status                   int
	field                    string
}{
	{"unknown port", "PUT", "/v1/ports/nope/limit", body(), refusal.UnknownPort, 404, ""},
	{"unknown port's removal", "DELETE", "/v1/ports/nope/limit", "", refusal.UnknownPort, 404, ""},
	{"foreign tenant", "PUT", red, body(`tenant="blue"`), refusal.TenantMismatch, 409, "tenant"},
	{"no contract", "PUT", "/v1/ports/p-blue/limit", body(`tenant="blue"`), refusal.NoContract, 409, "tenant"},
	{"not attached", "PUT", "/v1/ports/p-bare/limit", body(), refusal.NotAttached, 409, ""},
	{"below the guarantee", "PUT", red, body("rate_bytes_per_second=999999"), refusal.BelowFloor, 409, "rate_bytes_per_second"},
	{"below the packets", "PUT", red, body("packets_per_second=4999"), refusal.BelowFloor, 409, "packets_per_second"},
	{"below the flows", "PUT", red, body("new_flows_per_second=399"), refusal.BelowFloor, 409, "new_flows_per_second"},
	{"another action's limit", "PUT", red, body(`id="` + actionB + `"`), refusal.OtherLimit, 409, "id"},
	{"another action's removal", "DELETE", red + "?id=" + actionB, "", refusal.OtherLimit, 409, "id"},
	{"an old term", "PUT", red, body("term=6"), refusal.StaleTerm, 409, "term"},
	{"an old term's removal", "DELETE", red + "?id=" + actionA + "&term=6", "", refusal.StaleTerm, 409, "term"},
	{"an old term's removal of all", "DELETE", "/v1/limits?term=6", "", refusal.StaleTerm, 409, "term"},
	{"no number of a term", "DELETE", red + "?term=x", "", refusal.BadField, 400, "term"},
	{"a term below zero", "DELETE", "/v1/limits?term=-1", "", refusal.BadField, 400, "term"},
	{"a term beyond 64 bits", "DELETE", "/v1/limits?term=18446744073709551616", "", refusal.BadField, 400, "term"},
	{"another protocol", "PUT", red, body(`protocol="tcp"`), refusal.BadField, 400, "protocol"},
	{"no rate", "PUT", red, body("rate_bytes_per_second=0"), refusal.BadField, 400, "rate_bytes_per_second"},
	{"absurd rate", "PUT", red, body("rate_bytes_per_second=4611686018427387904"), refusal.BadField, 400, "rate_bytes_per_second"},
	{"absurd burst", "PUT", red, body("burst_bytes=4611686018427387904"), refusal.BadField, 400, "burst_bytes"},
	{"absurd packets", "PUT", red, body("packets_per_second=4611686018427387904"), refusal.BadField, 400, "packets_per_second"},
	{"absurd flows", "PUT", red, body("new_flows_per_second=4611686018427387904"), refusal.BadField, 400, "new_flows_per_second"},
	{"no ttl", "PUT", red, body("ttl_seconds=0"), refusal.BadField, 400, "ttl_seconds"},
	{"a short ttl", "PUT", red, body("ttl_seconds=0.999"), refusal.BadField, 400, "ttl_seconds"},
	{"a ttl above a minute", "PUT", red, body("ttl_seconds=60.001"), refusal.BadField, 400, "ttl_seconds"},
	{"endless ttl", "PUT", red, body("ttl_seconds=1e300"), refusal.BadField, 400, "ttl_seconds"},
	{"a negative ttl", "PUT", red, body("ttl_seconds=-60"), refusal.BadField, 400, "ttl_seconds"},
	{"bad id", "PUT", red, body(`id="x"`), refusal.BadField, 400, "id"},
	{"nil id", "PUT", red, body(`id="00000000-0000-0000-0000-000000000000"`), refusal.BadField, 400, "id"},
	{"bad id in the query", "DELETE", red + "?id=" + strings.Repeat("x", 200), "", refusal.BadField, 400, "id"},
	{"an endless name", "PUT", red, body(`approved_by="` + strings.Repeat("x", 257) + `"`), refusal.BadField, 400, "approved_by"},
	{"no body", "PUT", red, "", refusal.BadBody, 400, ""},
	{"no JSON", "PUT", red, "nope", refusal.BadBody, 400, ""},
	{"JSON that is cut", "PUT", red, body()[:40], refusal.BadBody, 400, ""},
	{"JSON that ends early", "PUT", red, strings.TrimSuffix(body(), "}"), refusal.BadBody, 400, ""},
	{"no object", "PUT", red, "[" + body() + "]", refusal.BadBody, 400, ""},
	{"nothing", "PUT", red, "null", refusal.BadBody, 400, ""},
	{"another type", "PUT", red, body(`rate_bytes_per_second="fast"`), refusal.BadBody, 400, ""},
	{"a nested object", "PUT", red, body(`tenant={"a":1,"a":2}`), refusal.BadBody, 400, ""},
	{"a negative number", "PUT", red, body("rate_bytes_per_second=-7"), refusal.BadBody, 400, ""},
	{"a fraction of a byte", "PUT", red, body("burst_bytes=1.5"), refusal.BadBody, 400, ""},
	{"an unknown key", "PUT", red, body("ratte=1"), refusal.BadBody, 400, ""},
	{"a key in another case", "PUT", red, body(`Tenant="red"`), refusal.BadBody, 400, ""},
	{"a key that folds to a known one", "PUT", red, body(`ttl_\u017feconds=60`), refusal.BadBody, 400, ""},
	{"a key twice", "PUT", red, strings.TrimSuffix(body(), "}") + `,"rate_bytes_per_second":9000000}`, refusal.BadBody, 400, ""},
	{"a key twice, once escaped", "PUT", red, strings.TrimSuffix(body(), "}") + `,"\u0069d":"` + actionB + `"}`, refusal.BadBody, 400, ""},
	{"two values", "PUT", red, body() + "{}", refusal.BadBody, 400, ""},
	{"something after the value", "PUT", red, body() + " x", refusal.BadBody, 400, ""},
	{"huge", "PUT", red, `{"id":"` + strings.Repeat("x", maxBody) + `"}`, refusal.TooLarge, 413, ""},
}

func TestEveryRefusal(t *testing.T) {
	r := newRig(t)
	if resp := r.do("PUT", red, body("term=7")); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, read(t, resp))
	}
	before := fmt.Sprint(r.store.limits)
	seen := map[refusal.Code]bool{refusal.Unauthorized: true, refusal.Kernel: true, refusal.NotReady: true} // tests of their own
	for _, tc := range refusals {
		t.Run(tc.name, func(t *testing.T) {
			resp := r.do(tc.method, tc.path, tc.body)
			raw := read(t, resp)
			var got struct {
				Error struct{ Code, Message, Field string }
			}
			if err := json.Unmarshal([]byte(raw), &got); err != nil {
				t.Fatalf("%v in %s", err, raw)
			}
			if resp.StatusCode != tc.status || got.Error.Code != tc.code.String() || got.Error.Field != tc.field || got.Error.Message == "" {
				t.Errorf("got %d %+v; want %d %s %s", resp.StatusCode, got.Error, tc.status, tc.code, tc.field)
			}
			if len(raw) > 600 {
				t.Errorf("the answer repeats what was sent: %d bytes", len(raw))
			}
			if kind := resp.Header.Get("Content-Type"); kind != "application/json" {
				t.Errorf("content type %q", kind)
			}
		})
		seen[tc.code] = true
	}
	if after := fmt.Sprint(r.store.limits); after != before {
		t.Errorf("refused requests changed limits from %s to %s", before, after)
	}
	for _, code := range codes() {
		if !seen[code] {
			t.Errorf("no request is refused with %s here", code)
		}
	}
}

// TestNothingIsSaidOfPortsBeforeTheyAreKnown: an empty list would say that limits are gone which are in force.
func TestNothingIsSaidOfPortsBeforeTheyAreKnown(t *testing.T) {
	r := newRig(t)
	if resp := r.do("PUT", red, body()); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, read(t, resp))
	}
	before := fmt.Sprint(r.store.limits)
	reason := errors.New("the interfaces have not been read yet")
	r.server.SetReady(func() error { return reason })
	for _, ask := range [][3]string{{"GET", "/v1/state", ""}, {"PUT", red, body("ttl_seconds=30")}, {"DELETE", red + "?id=" + actionA, ""}} {
		resp := r.do(ask[0], ask[1], ask[2])
		if raw := read(t, resp); resp.StatusCode != 503 || !strings.Contains(raw, `"code":"not_ready"`) || !strings.Contains(raw, reason.Error()) {
			t.Errorf("%s %s: %d %s", ask[0], ask[1], resp.StatusCode, raw)
		}
	}
	if after := fmt.Sprint(r.store.limits); after != before {
		t.Errorf("limits were changed from %s to %s", before, after)
	}
	req := httptest.NewRequest("GET", "/v1/state", http.NoBody)
	if resp := r.send(req); resp.StatusCode != 401 {
		t.Errorf("without the token: %d", resp.StatusCode)
	}
	reason = nil
	if resp := r.do("GET", "/v1/state", ""); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, read(t, resp))
	}
}

// TestAListWithoutASourceIsNotComplete while one of the sources of ports cannot be read.
func TestAListWithoutASourceIsNotComplete(t *testing.T) {
	r := newRig(t)
	for _, tc := range []struct {
		states []ports.SourceState
		want   string
	}{
		{nil, `"complete":true`},
		{[]ports.SourceState{{Name: "rtnetlink"}, {Name: "ovsdb", Err: errors.New("not connected")}}, `"complete":false`},
		{[]ports.SourceState{{Name: "rtnetlink"}, {Name: "ovsdb"}}, `"complete":true`},
	} {
		r.node.sources = tc.states
		resp := r.do("GET", "/v1/state", "")
		if raw := read(t, resp); !strings.Contains(raw, tc.want) {
			t.Errorf("%v: %s", tc.states, raw)
		}
	}
}

func TestAFailureOfTheKernelIsNotTakenForARefusalOfTheRequest(t *testing.T) {
	r := newRig(t)
	r.store.applyErr = errors.New("no space left on device")
	resp := r.do("PUT", red, body())
	if raw := read(t, resp); resp.StatusCode != 500 || !strings.Contains(raw, `"code":"kernel"`) || !strings.Contains(raw, "no space left on device") {
		t.Errorf("%d %s", resp.StatusCode, raw)
	}
	if !strings.Contains(r.log.String(), "cannot answer a request") || !strings.Contains(r.log.String(), "operation=set") {
		t.Errorf("the log says\n%s", r.log)
	}
	r.node.err = errors.New("no such map")
	for _, path := range []string{"/v1/state", "/v1/pairs"} {
		resp := r.do("GET", path, "")
		if raw := read(t, resp); resp.StatusCode != 500 || !strings.Contains(raw, `"code":"kernel"`) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, raw)
		}
	}
}

// TestTheCodesOfTheREADMEAreThoseOfTheAPI keeps the list of refusals in the README true.
func TestTheCodesOfTheREADMEAreThoseOfTheAPI(t *testing.T) {
	raw, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(raw), "Refusals are `{\"error\": {\"code\", \"message\", \"field\"}}`:")
	paragraph, _, _ := strings.Cut(after, "\n\n")
	if !found {
		t.Fatal("the README does not list refusals")
	}
	current := 0
	got := map[string]int{}
	for _, word := range strings.FieldsFunc(paragraph, func(r rune) bool { return strings.ContainsRune(" \n,;.|", r) }) {
		if _, err := fmt.Sscanf(word, "%d", &current); err == nil {
			continue
		}
		if code, ok := strings.CutPrefix(word, "`"); ok {
			got[strings.TrimSuffix(code, "`")] = current
		}
	}
	for _, code := range codes() {
		if got[code.String()] != status(code) {
			t.Errorf("%s is %d, and %d in the README", code, status(code), got[code.String()])
		}
		delete(got, code.String())
	}
	if len(got) > 0 {
		t.Errorf("the README has codes that do not exist: %v", got)
	}
}

// routes are all of the API.
var routes = []struct{ method, path, operation string }{
	{"GET", "/v1/state", "state"},
	{"PUT", red, "set"},
	{"DELETE", red, "remove"},
	{"DELETE", "/v1/limits", "remove_all"},
	{"GET", "/v1/pairs", "pairs"},
	{"GET", "/v1/desired", "desired"},
	{"GET", "/v1/actual", "actual"},
	{"POST", "/v1/reconcile", "reconcile"},
}

func TestNothingIsAnsweredWithoutTheToken(t *testing.T) {
	r := newRig(t)
	for _, route := range routes {
		for name, header := range map[string]string{
			"nothing": "", "another token": "Bearer wrong", "more": "Bearer " + token + "x", "less": "Bearer " + token[1:],
			"another scheme": "Basic " + token, "the token alone": token, "nothing after the scheme": "Bearer ", "another case": "bearer " + token,
		} {
			req := httptest.NewRequest(route.method, route.path, strings.NewReader(body()))
			if header != "" {
				req.Header.Set("Authorization", header)
			}
			resp := r.send(req)
			raw := read(t, resp)
			if resp.StatusCode != 401 || !strings.Contains(raw, `"code":"unauthorized"`) || resp.Header.Get("WWW-Authenticate") != `Bearer realm="vigia-enforcer"` {
				t.Errorf("%s %s with %s: %d %s", route.method, route.path, name, resp.StatusCode, raw)
			}
			if strings.Contains(raw, token) || strings.Contains(r.log.String(), token) {
				t.Fatal("the token is shown")
			}
		}
	}
	if len(r.store.limits) != 0 {
		t.Errorf("somebody without a token set %v", r.store.limits)
	}
}

func TestTheTokenIsSwapped(t *testing.T) {
	r := newRig(t)
	r.server.SetToken("another-token-of-some-length")
	if resp := r.do("GET", "/v1/state", ""); resp.StatusCode != 401 {
		t.Errorf("the old token: %d", resp.StatusCode)
	}
	req := httptest.NewRequest("GET", "/v1/state", nil)
	req.Header.Set("Authorization", "Bearer another-token-of-some-length")
	if resp := r.send(req); resp.StatusCode != 200 {
		t.Errorf("the new token: %d", resp.StatusCode)
	}
	r.server.token.Store(nil) // before the first SetToken nobody comes in, the empty token neither
	req = httptest.NewRequest("GET", "/v1/state", nil)
	req.Header.Set("Authorization", "Bearer ")
	if resp := r.send(req); resp.StatusCode != 401 {
		t.Errorf("without a token there: %d", resp.StatusCode)
	}
}

func TestEveryRequestIsObservedOnce(t *testing.T) {
	r := newRig(t)
	var want []observation
	for _, route := range routes {
		sent := ""
		if route.method == "PUT" {
			sent = body()
		}
		if resp := r.do(route.method, route.path, sent); resp.StatusCode != 200 {
			t.Errorf("%s %s: %d %s", route.method, route.path, resp.StatusCode, read(t, resp))
		}
		want = append(want, observation{route.operation, 200})
	}
	r.do("PUT", red, "nope")
	r.send(httptest.NewRequest("GET", "/v1/state", nil))
	want = append(want, observation{"set", 400}, observation{"state", 401})
	if !slices.Equal(r.observed, want) {
		t.Errorf("observed %v, want %v", r.observed, want)
	}
}

func TestOtherMethodsAndPathsDoNotExist(t *testing.T) {
	r := newRig(t)
	for _, route := range []struct {
		method, path string
		status       int
	}{
		{"POST", "/v1/state", 405},
		{"PATCH", red, 405},
		{"GET", red, 405},
		{"GET", "/v1/limits", 405},
		{"GET", "/v1/reconcile", 405},
		{"GET", "/v1", 404},
		{"GET", "/v2/state", 404},
		{"PUT", "/v1/ports/p-red", 404},
		{"PUT", "/v1/ports/p-red/limit/x", 404},
	} {
		if resp := r.do(route.method, route.path, body()); resp.StatusCode != route.status {
			t.Errorf("%s %s: %d, want %d", route.method, route.path, resp.StatusCode, route.status)
		}
	}
	if len(r.observed) != 0 {
		t.Errorf("observed %v", r.observed)
	}
}

func TestALimitIsSetShownAndRemoved(t *testing.T) {
	r := newRig(t)
	resp := r.do("PUT", red, body(`protocol="all"`, "rate_bytes_per_second=2000000", "burst_bytes=70000", "packets_per_second=6000", "new_flows_per_second=500", "ttl_seconds=45.5"))
	var got struct {
		Port     string
		Verified bool
		Limit    limitJSON
	}
	if err := json.Unmarshal([]byte(read(t, resp)), &got); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%d %v", resp.StatusCode, err)
	}
	want := limitJSON{
		ID: actionA, Protocol: "all", Rate: 2_000_000, Burst: 70_000, Packets: 6000, NewFlows: 500, ExpiresIn: 45.5, PolicedBytes: 10, PolicedPackets: 2,
	}
	if got.Port != "p-red" || !got.Verified || got.Limit != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if state := r.store.limits["p-red"]; state.Protocol != limits.Everything || state.ID != id(actionA) {
		t.Errorf("put %+v", state)
	}
	var removed struct {
		Removed, Verified bool
	}
	for _, want := range []bool{true, false} {
		resp = r.do("DELETE", red+"?id="+actionA, "")
		if err := json.Unmarshal([]byte(read(t, resp)), &removed); err != nil || resp.StatusCode != 200 || removed.Removed != want || !removed.Verified {
			t.Errorf("%d %+v %v", resp.StatusCode, removed, err)
		}
	}
}

func TestOneRequestEndsAllLimitsThoseOfTheLoopToo(t *testing.T) {
	r := newRig(t)
	loop := &fakeLoop{released: 3}
	r.server.SetLoop(loop)
	r.do("PUT", red, body())
	resp := r.do("DELETE", "/v1/limits", "")
	if raw := read(t, resp); resp.StatusCode != 200 || raw != "{\"released\":3,\"removed\":1}\n" {
		t.Errorf("%d %s", resp.StatusCode, raw)
	}
	if resp := r.do("DELETE", "/v1/limits?term=9", ""); resp.StatusCode != 200 || loop.calls != 2 {
		t.Errorf("%d, the loop was called %d times", resp.StatusCode, loop.calls)
	}
	if resp := r.do("DELETE", "/v1/limits?term=8", ""); resp.StatusCode != 409 || loop.calls != 2 {
		t.Errorf("an old term: %d, the loop was called %d times", resp.StatusCode, loop.calls)
	}
}

func TestStateShowsPortsAsTheyAre(t *testing.T) {
	r := newRig(t)
	r.node.signals = vport.Signals{UDPPackets: 300, UDPBytes: 9000, FloodScore: 81.5, DestinationPorts: 40, ReplyRatio: 0.25, FloodSinceNs: vport.Monotonic()}
	r.do("PUT", red, body("term=7"))
	var got stateJSON
	r.get("/v1/state", &got)
	if got.Node != "n1" || got.Term != 7 || len(got.Ports) != 3 || !slices.Equal(got.Supports, limits.Supports()) || got.Time.IsZero() {
		t.Fatalf("%+v", got)
	}
	bare, blue, red := got.Ports[0], got.Ports[1], got.Ports[2]
	if bare.Attached || bare.Offered != nil || bare.Signals != nil || bare.Limit != nil || bare.Guarantee == nil {
		t.Errorf("without a program: %+v", bare)
	}
	if !blue.Attached || blue.Guarantee != nil || blue.Ceiling != nil || blue.Packets != nil || blue.NewFlows != nil || blue.Limit != nil {
		t.Errorf("without a contract: %+v", blue)
	}
	if red.Tenant != "red" || red.Device != "tap-red" || red.Workload != "web-0" || blue.Workload != "" || red.Hook != "tcx" || *red.Guarantee != 1_000_000 || *red.Ceiling != 12_500_000 || *red.Packets != 5000 || *red.NewFlows != 400 {
		t.Errorf("red: %+v", red)
	}
	seconds := vport.SignalWindow.Seconds()
	if red.Offered == nil || red.Offered.BytesPerSecond != 9000/seconds || red.Offered.PacketsPerSecond != 300/seconds || red.Offered.WindowSeconds != seconds {
		t.Errorf("offered: %+v", red.Offered)
	}
	if s := red.Signals; s == nil || s.FloodScore != 81.5 || s.DestinationPorts != 40 || s.ReplyRatio != 0.25 || s.FloodDetectedAt == nil || s.FloodLastSeenAt != nil {
		t.Errorf("signals: %+v", s)
	}
	if red.Limit == nil || red.Limit.ID != actionA {
		t.Errorf("limit: %+v", red.Limit)
	}
}

func TestEveryCodeHasItsStatus(t *testing.T) {
	for _, code := range codes() {
		got := status(code)
		if (got == http.StatusInternalServerError) != (code == refusal.Kernel) || http.StatusText(got) == "" {
			t.Errorf("%s: %d", code, got)
		}
	}
}
