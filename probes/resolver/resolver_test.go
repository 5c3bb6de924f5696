package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigia/internal/testutil"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const patience = time.Minute

// zone answers look-ups from a table that the test changes.
type zone struct {
	mu      sync.Mutex
	answers map[string][]string
	errs    map[string]error
	asked   map[string]int
}

func newZone() *zone {
	return &zone{answers: map[string][]string{}, errs: map[string]error{}, asked: map[string]int{}}
}

func (z *zone) set(host string, err error, addresses ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.answers[host], z.errs[host] = addresses, err
}

func (z *zone) lookup(_ context.Context, network, host string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked[network+" "+host]++
	var out []netip.Addr
	for _, a := range z.answers[host] {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, z.errs[host]
}

func (z *zone) count(question string) int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.asked[question]
}

// start runs a resolver until the end of the test; updates arrive as text.
func start(t *testing.T, lookup Lookup) (*Resolver, chan string) {
	t.Helper()
	updates := make(chan string, 100)
	r := New(lookup, 10*time.Millisecond, func(n Name, res Result) {
		if res.Err != nil {
			updates <- n.Host + " failed"
			return
		}
		updates <- n.Host + " " + res.Address.String()
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return r, updates
}

func expect(t *testing.T, updates chan string, want string) {
	t.Helper()
	select {
	case got := <-updates:
		if got != want {
			t.Fatalf("got update %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("no update; want %q", want)
	}
}

func (z *zone) wait(t *testing.T, question string, more int) {
	t.Helper()
	target := z.count(question) + more
	testutil.WaitFor(t, fmt.Sprintf("%d more questions for %q", more, question), func() bool { return z.count(question) >= target })
}

func TestChangesAreReportedOnce(t *testing.T) {
	z := newZone()
	z.set("a", nil, "10.0.0.1")
	r, updates := start(t, z.lookup)
	r.Set([]Name{{Host: "a"}})
	expect(t, updates, "a 10.0.0.1")
	z.wait(t, "ip4 a", 5)
	z.set("a", nil, "10.0.0.2")
	expect(t, updates, "a 10.0.0.2") // and nothing in between
	if res, ok := r.Result(Name{Host: "a"}); !ok || res.Address != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("result %v, %v", res, ok)
	}
	if z.count("ip6 a") != 0 {
		t.Error("IPv6 addresses were asked for")
	}
}

func TestAddressIsKeptWhileTheNameHasIt(t *testing.T) {
	z := newZone()
	z.set("a", nil, "10.0.0.1", "10.0.0.2")
	r, updates := start(t, z.lookup)
	r.Set([]Name{{Host: "a"}})
	expect(t, updates, "a 10.0.0.1")
	z.set("a", nil, "10.0.0.2", "10.0.0.1") // round robin
	z.wait(t, "ip4 a", 5)
	z.set("a", nil, "10.0.0.2")
	expect(t, updates, "a 10.0.0.2")
}

func TestFailuresAreRetriedAndAddressesOutliveOutages(t *testing.T) {
	notFound := &net.DNSError{Err: "no such host", Name: "a", IsNotFound: true}
	z := newZone()
	z.set("a", notFound)
	r, updates := start(t, z.lookup)
	if _, ok := r.Result(Name{Host: "a"}); ok {
		t.Error("there is a result before the first look-up")
	}
	r.Set([]Name{{Host: "a"}})
	expect(t, updates, "a failed")
	z.set("a", nil, "10.0.0.1")
	expect(t, updates, "a 10.0.0.1")
	z.set("a", &net.DNSError{Err: "timeout", Name: "a", IsTimeout: true})
	z.wait(t, "ip4 a", 5)
	if res, _ := r.Result(Name{Host: "a"}); !res.Address.IsValid() {
		t.Errorf("an outage of the name server took the address: %v", res.Err)
	}
	z.set("a", notFound)
	expect(t, updates, "a failed")
	if res, _ := r.Result(Name{Host: "a"}); !errors.Is(res.Err, error(notFound)) {
		t.Errorf("result %v", res)
	}
}

func TestNamesComeAndGo(t *testing.T) {
	z := newZone()
	z.set("a", nil, "10.0.0.1")
	z.set("b", nil, "fd00::1")
	r, updates := start(t, z.lookup)
	r.Set([]Name{{Host: "a"}})
	expect(t, updates, "a 10.0.0.1")
	r.Set([]Name{{Host: "b", IPv6: true}})
	expect(t, updates, "b fd00::1")
	if z.count("ip6 b") == 0 {
		t.Error("IPv6 addresses were not asked for")
	}
	if _, ok := r.Result(Name{Host: "a"}); ok {
		t.Error("the name that is gone still has a result")
	}
	asked := z.count("ip4 a")
	z.wait(t, "ip6 b", 5)
	if now := z.count("ip4 a"); now > asked+1 {
		t.Errorf("the name that is gone was asked for %d more times", now-asked)
	}
}

func TestLookupsAreBounded(t *testing.T) {
	var running, most atomic.Int32
	block := make(chan struct{})
	r, updates := start(t, func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if _, ok := ctx.Deadline(); !ok {
			t.Error("a look-up has no deadline")
		}
		select {
		case <-block:
		case <-ctx.Done():
		}
		return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
	})
	var names []Name
	for i := range 50 {
		names = append(names, Name{Host: fmt.Sprint("host", i)})
	}
	r.Set(names)
	testutil.WaitFor(t, "as many look-ups at a time as there may be", func() bool { return running.Load() >= maxLookups })
	close(block)
	for range names {
		select {
		case <-updates:
		case <-time.After(patience):
			t.Fatal("not every name was resolved")
		}
	}
	if most.Load() > maxLookups {
		t.Errorf("%d look-ups at a time, want at most %d", most.Load(), maxLookups)
	}
}

func TestStopDoesNotWaitForLookups(t *testing.T) {
	started := make(chan struct{}, 1)
	r := New(func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
		started <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}, time.Hour, func(Name, Result) { t.Error("an update after the end") })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	r.Set([]Name{{Host: "a"}})
	<-started
	cancel()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("Run does not end")
	}
}

func TestNext(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for _, tc := range []struct {
		name   string
		before Result
		found  []netip.Addr
		err    error
		want   netip.Addr
	}{
		{"first", Result{}, []netip.Addr{a, b}, nil, a},
		{"kept", Result{Address: b}, []netip.Addr{a, b}, nil, b},
		{"changed", Result{Address: b}, []netip.Addr{a}, nil, a},
		{"mapped", Result{}, []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.1")}, nil, a},
		{"none of this family", Result{Address: a}, nil, nil, netip.Addr{}},
		{"server fails at first", Result{}, nil, errors.New("refused"), netip.Addr{}},
		{"server fails later", Result{Address: a}, nil, errors.New("refused"), a},
	} {
		got := next(tc.before, tc.found, tc.err)
		if diff := cmp.Diff(tc.want, got.Address, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if (got.Err != nil) == got.Address.IsValid() {
			t.Errorf("%s: address %v and error %v", tc.name, got.Address, got.Err)
		}
	}
}

// TestSystemResolver resolves a name that every machine has.
func TestSystemResolver(t *testing.T) {
	r, updates := start(t, nil)
	r.Set([]Name{{Host: "localhost"}})
	expect(t, updates, "localhost 127.0.0.1")
}
