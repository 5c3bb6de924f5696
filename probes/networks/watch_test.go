package networks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"vigia/internal/testutil"
	"vigia/probes/stamp"
)

// site is what a Watch of a test sees.
type site struct {
	mu      sync.Mutex
	kernel  *world
	open    error
	tells   map[string][]stamp.Network // by node; nil: no answer
	asked   []string
	updates int
	time    time.Time
	said    strings.Builder
}

func newSite(kernel *world) (*site, *Watch) {
	s := &site{kernel: kernel, tells: make(map[string][]stamp.Network), time: time.Unix(1000, 0)}
	w := New(slog.New(slog.NewTextHandler(&s.said, nil)), func() { s.updates++ })
	w.now = func() time.Time { return s.time }
	w.open = func() (Kernel, func() error, error) { return s.kernel, func() error { return nil }, s.open }
	w.ask = func(_ context.Context, p *Peer) ([]stamp.Network, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, p.Node)
		if told, ok := s.tells[p.Node]; ok {
			return told, nil
		}
		return nil, errors.New("silent")
	}
	return s, w
}

func told(pairs ...string) (out []stamp.Network) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, stamp.Network{Name: pairs[i], Address: netip.MustParseAddr(pairs[i+1])})
	}
	return out
}

// macvlan is a pod with a second interface that leads to two others and a neighbour of the first one.
func macvlan() *world {
	w := pod().link("net1", "macvlan", "10.88.1.10/16")
	w.routes = map[string]string{"10.88.2.10": "net1", "10.88.2.11": "net1", "10.88.1.10": "lo", "10.244.2.5": "eth0", "10.244.1.7": "lo", "10.88.99.99": "eth0"}
	return w
}

func where(w *Watch, node, network string) string {
	address, ok := w.Address(node, network)
	if !ok {
		return ""
	}
	return address.String()
}

// TestOthersAreAsked where we are in a second network, and then again.
func TestOthersAreAsked(t *testing.T) {
	s, w := newSite(macvlan())
	ctx := t.Context()
	if w.look(ctx) || len(w.Own()) != 0 {
		t.Error("something is found though nothing is to be")
	}
	b, c := Peer{Node: "b", Host: "10.244.2.5", Port: 8620}, Peer{Node: "c", Host: "10.244.3.5", Port: 8620}
	gone := Peer{Node: "d", Host: "10.244.4.5", Port: 8620, Paused: true}
	w.Set(known, []Peer{b, c, gone})
	s.tells["b"] = told("net1", "10.88.2.10")
	if !w.look(ctx) || words(w.Own()) != "net1 macvlan 10.88.1.10" || where(w, "b", "net1") != "10.88.2.10" {
		t.Errorf("%s, b is at %q", words(w.Own()), where(w, "b", "net1"))
	}
	if len(s.asked) != 2 || where(w, "c", "net1") != "" || where(w, "x", "net1") != "" {
		t.Errorf("asked %v", s.asked)
	}
	for _, step := range []struct {
		after time.Duration
		asked string
	}{{0, "[]"}, {every, "[c]"}, {every, "[c]"}, {again, "both"}} {
		s.time, s.asked = s.time.Add(step.after), nil
		if w.look(ctx) {
			t.Errorf("after %v something has changed", step.after)
		}
		if got := fmt.Sprint(s.asked); got != step.asked && (step.asked != "both" || len(s.asked) != 2) {
			t.Errorf("after %v: asked %s, want %s", step.after, got, step.asked)
		}
	}
	// Another network of ours: all are asked at once.
	s.kernel.link("net2", "macvlan", "10.89.1.10/16")
	if s.asked = nil; !w.look(ctx) || len(s.asked) != 2 || len(w.Own()) != 2 {
		t.Errorf("asked %v, %s", s.asked, words(w.Own()))
	}
	w.Set(netip.Addr{}, nil)
	if w.look(ctx); len(w.Own()) != 0 || where(w, "b", "net1") != "" {
		t.Error("what is not wanted any more is still known")
	}
}

// TestWhatIsBelieved of what others tell: what our own interface of that network leads to.
func TestWhatIsBelieved(t *testing.T) {
	for what, tc := range map[string]struct {
		told []stamp.Network
		want string
	}{
		"its place":                    {told("net1", "10.88.2.10"), "10.88.2.10"},
		"the last of two":              {told("net1", "10.88.2.10", "net1", "10.88.2.11"), "10.88.2.11"},
		"a network that is not ours":   {told("net9", "10.88.2.10"), ""},
		"the usual interface":          {told("eth0", "10.244.2.5"), ""},
		"an address elsewhere":         {told("net1", "10.88.99.99"), ""},
		"an address without a route":   {told("net1", "192.0.2.1"), ""},
		"ours":                         {told("net1", "10.88.1.10"), ""},
		"what we are known by":         {told("net1", "10.244.1.7"), ""},
		"another family":               {told("net1", "fd00::1"), ""},
		"nothing":                      {nil, ""},
		"its place and an address off": {told("net1", "10.88.2.10", "net1", "192.0.2.1"), "10.88.2.10"},
	} {
		s, w := newSite(macvlan())
		w.Set(known, []Peer{{Node: "b"}})
		s.tells["b"] = tc.told
		w.look(t.Context())
		if got := where(w, "b", "net1"); got != tc.want || where(w, "b", "net9") != "" || where(w, "b", "eth0") != "" {
			t.Errorf("%s: %q, want %q", what, got, tc.want)
		}
	}
}

// TestWhatIsKnownStays while a node does not answer, for a while where it tells of it no more, and over another
// address of it until it answers there.
func TestWhatIsKnownStays(t *testing.T) {
	s, w := newSite(macvlan())
	b := Peer{Node: "b", Host: "10.244.2.5"}
	w.Set(known, []Peer{b})
	s.tells["b"] = told("net1", "10.88.2.10")
	w.look(t.Context())
	delete(s.tells, "b")
	b.Host = "10.244.2.6"
	w.Set(known, []Peer{b})
	for range 100 {
		s.time = s.time.Add(again)
		if w.look(t.Context()) || where(w, "b", "net1") != "10.88.2.10" {
			t.Fatalf("at %v it is at %q", s.time, where(w, "b", "net1"))
		}
	}
	s.tells["b"] = told("net1", "10.88.2.11")
	if s.time = s.time.Add(again); !w.look(t.Context()) || where(w, "b", "net1") != "10.88.2.11" {
		t.Errorf("after it moved it is at %q", where(w, "b", "net1"))
	}
	s.tells["b"] = nil
	for left := keep; left > 0; left -= again {
		if s.time = s.time.Add(again); w.look(t.Context()) || where(w, "b", "net1") == "" {
			t.Fatalf("%v before the end it is not known any more", left)
		}
	}
	if s.time = s.time.Add(again); !w.look(t.Context()) || where(w, "b", "net1") != "" {
		t.Errorf("in the end it is at %q", where(w, "b", "net1"))
	}
}

// TestAnAnswerToAnOldQuestion changes nothing.
func TestAnAnswerToAnOldQuestion(t *testing.T) {
	s, w := newSite(macvlan())
	b := Peer{Node: "b", Host: "10.244.2.5"}
	w.Set(known, []Peer{b})
	w.look(t.Context())
	w.Set(known, []Peer{{Node: "b", Host: "10.244.2.9"}})
	if w.answered(&b, told("net1", "10.88.2.10"), nil, s.kernel) || where(w, "b", "net1") != "" {
		t.Error("it is believed")
	}
	w.Set(known, nil)
	if w.answered(&b, told("net1", "10.88.2.10"), nil, s.kernel) {
		t.Error("a node that is gone is believed")
	}
	if w.found(netip.MustParseAddr("10.244.1.9"), w.Own()[:0]) {
		t.Error("networks are taken that were found beside another address")
	}
}

// TestTroubleIsSaidOnce and keeps what is known.
func TestTroubleIsSaidOnce(t *testing.T) {
	s, w := newSite(macvlan())
	w.Set(known, nil)
	w.look(t.Context())
	for _, fault := range []func(){func() { s.open = errors.New("no netlink") }, func() { s.open, s.kernel.err = nil, errors.New("no dump") }} {
		fault()
		for range 3 {
			if w.look(t.Context()) || len(w.Own()) != 1 {
				t.Errorf("%s", words(w.Own()))
			}
		}
	}
	if n := strings.Count(s.said.String(), "cannot look for further networks"); n != 1 {
		t.Errorf("it is said %d times: %s", n, s.said.String())
	}
	s.kernel.err = nil
	for i := range stamp.MaxNetworks {
		s.kernel.link(fmt.Sprintf("x%d", i), "vlan", fmt.Sprintf("10.%d.0.1/16", 100+i))
	}
	w.look(t.Context())
	if w.look(t.Context()); strings.Count(s.said.String(), "left_out=1") != 1 {
		t.Error(s.said.String())
	}
}

// TestRun looks at once when it is told of nodes, and tells of what has changed.
func TestRun(t *testing.T) {
	s, w := newSite(macvlan())
	s.tells["b"] = told("net1", "10.88.2.10")
	ctx, cancel := context.WithCancel(t.Context())
	updated := make(chan bool, 10)
	w.update = func() { updated <- true }
	done := make(chan bool)
	go func() { w.Run(ctx); close(done) }()
	w.Set(known, []Peer{{Node: "b"}})
	testutil.WaitFor(t, "b's place", func() bool { return where(w, "b", "net1") != "" })
	<-updated
	cancel()
	<-done
}
