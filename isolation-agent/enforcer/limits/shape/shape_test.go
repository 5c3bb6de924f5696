package shape

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"

	"vigia/internal/bpf/classify"
	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/limits/mechanismtest"
	"vigia/isolation-agent/enforcer/limits/police"
	"vigia/isolation-agent/enforcer/scheduling"
)

const mbit = 125_000

// node is a namespace with an uplink, the schedulers of two tenants on it, and two
// ports of red that have the BPF program.
type node struct {
	t          *testing.T
	ns         string
	manager    *vport.Manager
	reconciler *scheduling.Reconciler
	contracts  *contract.Set
	targets    []limits.Target
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, ns: testutil.NewNetNS(t)}
	testutil.IP(t, "-n", n.ns, "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	testutil.IP(t, "-n", n.ns, "link", "set", "up0", "up")
	pins := testutil.NewBPFFS(t)
	var err error
	if n.manager, err = vport.Open(vport.Options{PinDir: pins, NetNS: n.ns, MaxPorts: 8}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.manager.Close() })
	programs, err := classify.Open(pins+"/classify", 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { programs.Close() })
	if n.reconciler, err = scheduling.NewReconciler(n.ns, programs, promslog.NewNopLogger()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.reconciler.Close() })
	n.contracts = contracts(t, "red", "blue")
	n.reconciler.Set([]scheduling.Link{{Device: "up0", RateBytesPerSecond: 100 * mbit, Headroom: 0.05}}, n.contracts)
	if _, err := n.reconciler.Reconcile(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		device := fmt.Sprintf("tap%d", i)
		testutil.IP(t, "-n", n.ns, "link", "add", device, "type", "veth", "peer", "name", device+"p")
		var index int
		if _, err := fmt.Sscanf(testutil.IP(t, "-n", n.ns, "-o", "link", "show", "dev", device), "%d:", &index); err != nil {
			t.Fatal(err)
		}
		if err := n.manager.Attach(index, vport.TCX); err != nil {
			t.Fatal(err)
		}
		n.targets = append(n.targets, limits.Target{
			Port: ports.Port{ID: device, Tenant: "red", Device: device, Index: index}, Contract: n.contracts.Of("red", device), Age: After,
		})
	}
	return n
}

func contracts(t *testing.T, tenants ...string) *contract.Set {
	t.Helper()
	var list []contract.Contract
	for _, tenant := range tenants {
		b := contract.Bandwidth{GuaranteeBytesPerSecond: 10 * mbit, CeilingBytesPerSecond: 100 * mbit}
		list = append(list, contract.Contract{Owner: contract.Owner{Tenant: tenant}, Send: b, Receive: b})
	}
	s, err := contract.NewSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// classes returns the uplink's classes of limits, as tc(8) shows them.
func (n *node) classes() []string {
	n.t.Helper()
	var out []string
	for line := range strings.SplitSeq(testutil.Run(n.t, "tc", "-n", n.ns, "class", "show", "dev", "up0"), "\n") {
		if strings.Contains(line, "htb 1150:8") || strings.Contains(line, "htb 1150:9") {
			out = append(out, line)
		}
	}
	return out
}

// settled waits until there are so many classes of limits, and returns them: those that are over drain first.
func (n *node) settled(count int) (classes []string) {
	n.t.Helper()
	testutil.WaitFor(n.t, fmt.Sprintf("%d classes of limits", count), func() bool {
		classes = n.classes()
		return len(classes) == count
	})
	return classes
}

func TestMechanism(t *testing.T) {
	mechanismtest.Run(t, func(t *testing.T) mechanismtest.Subject {
		n := newNode(t)
		missing := n.targets[0]
		missing.Port = ports.Port{ID: "gone", Tenant: "red", Index: 1 << 20}
		return mechanismtest.Subject{Mechanism: New(n.manager, n.reconciler), Target: n.targets[0], Other: n.targets[1], Gone: missing}
	})
}

func TestALimitIsAClassBelowTheContractUntilItIsRemoved(t *testing.T) {
	n := newNode(t)
	m := New(n.manager, n.reconciler)
	l := mechanismtest.Limit(8 * mbit)
	for _, rate := range []uint64{8, 4, 16} {
		l.BytesPerSecond = rate * mbit
		if err := m.Apply(n.targets[0], l, time.Minute); err != nil {
			t.Fatal(err)
		}
		got := n.classes()
		if len(got) != 1 || !strings.Contains(got[0], fmt.Sprintf("ceil %dMbit", rate)) {
			t.Errorf("classes %q, want one of %d Mbit/s", got, rate)
		}
	}
	if state, err := m.Read(&n.targets[0].Port); err != nil || !state.Shaped {
		t.Errorf("read %+v, %v", state, err)
	}
	if err := m.Remove(&n.targets[0].Port); err != nil {
		t.Fatal(err)
	}
	n.settled(0)
}

func TestWhatItDoesNotSuit(t *testing.T) {
	n := newNode(t)
	m := New(n.manager, n.reconciler)
	for name, change := range map[string]func(*limits.Target, *limits.Limit){
		"a limit that is young":       func(t *limits.Target, _ *limits.Limit) { t.Age = After - 1 },
		"a limit that drops":          func(_ *limits.Target, l *limits.Limit) { l.BytesPerSecond, l.BurstBytes = 0, 0 },
		"a program before the buffer": func(t *limits.Target, _ *limits.Limit) { t.Port.DataPlane = ports.OVSUserspace },
		"the tenant's own end":        func(t *limits.Target, _ *limits.Limit) { t.Port.TenantSide = true },
		"a port without a contract":   func(t *limits.Target, _ *limits.Limit) { t.Contract = nil },
		"a contract that has no class": func(t *limits.Target, _ *limits.Limit) {
			t.Contract = &contract.Contract{Owner: contract.Owner{Tenant: "green"}}
		},
	} {
		target, l := n.targets[0], mechanismtest.Limit(8*mbit)
		change(&target, &l)
		if err := m.Apply(target, l, time.Minute); !errors.Is(err, limits.ErrUnsuited) {
			t.Errorf("%s: %v", name, err)
		}
	}
	n.settled(0)
}

func TestWithoutLinksItSuitsNoPort(t *testing.T) {
	n := newNode(t)
	m := New(n.manager, nil)
	if err := m.Apply(n.targets[0], mechanismtest.Limit(8*mbit), time.Minute); !errors.Is(err, limits.ErrUnsuited) {
		t.Errorf("applied: %v", err)
	}
	if _, err := m.Read(&n.targets[0].Port); !errors.Is(err, limits.ErrNone) {
		t.Errorf("read: %v", err)
	}
	if err := m.Remove(&n.targets[0].Port); err != nil {
		t.Errorf("removed: %v", err)
	}
}

func TestWhenTheProgramDoesNotTakeALimitItsClassIsFreed(t *testing.T) {
	n := newNode(t)
	m := New(n.manager, n.reconciler)
	l := mechanismtest.Limit(vport.MaxRate + 1)
	if err := m.Apply(n.targets[0], l, time.Minute); err == nil || errors.Is(err, limits.ErrUnsuited) {
		t.Errorf("error %v", err)
	}
	n.settled(0)
	// A limit that is there keeps the class that it has.
	if err := m.Apply(n.targets[0], mechanismtest.Limit(8*mbit), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := m.Apply(n.targets[0], l, time.Minute); err == nil {
		t.Error("applied")
	}
	n.settled(1)
	if state, err := m.Read(&n.targets[0].Port); err != nil || state.BytesPerSecond != 8*mbit {
		t.Errorf("read %+v, %v", state, err)
	}
}

func TestPolicingAndShapingHandALimitToEachOther(t *testing.T) {
	n := newNode(t)
	policing, shaping := police.New(n.manager), New(n.manager, n.reconciler)
	l, target := mechanismtest.Limit(8*mbit), n.targets[0]
	apply := func(m limits.Mechanism) {
		t.Helper()
		if err := m.Apply(target, l, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(m limits.Mechanism) {
		t.Helper()
		if err := m.Remove(&target.Port); err != nil {
			t.Fatal(err)
		}
	}
	inForce := func(m limits.Mechanism, shaped bool) {
		t.Helper()
		if state, err := m.Read(&target.Port); err != nil || state.Limit != l || state.Shaped != shaped {
			t.Fatalf("read %+v, %v; want it shaped: %v", state, err, shaped)
		}
	}
	apply(policing)
	inForce(policing, false)
	if _, err := shaping.Read(&target.Port); !errors.Is(err, limits.ErrNone) {
		t.Errorf("a policed limit is read as a shaped one: %v", err)
	}
	apply(shaping)
	remove(policing)
	inForce(shaping, true)
	apply(policing)
	remove(shaping)
	inForce(policing, false)
	n.settled(0)
}

func TestAPortWithANewContractGetsAClassBelowThat(t *testing.T) {
	n := newNode(t)
	m := New(n.manager, n.reconciler)
	l, target := mechanismtest.Limit(8*mbit), n.targets[0]
	if err := m.Apply(target, l, time.Minute); err != nil {
		t.Fatal(err)
	}
	first := n.classes()
	target.Contract = n.contracts.Of("blue", "")
	if err := m.Apply(target, l, time.Minute); err != nil {
		t.Fatal(err)
	}
	second := n.settled(1)
	if len(first) != 1 || first[0] == second[0] {
		t.Errorf("classes were %q and are %q", first, second)
	}
	if state, err := m.Read(&target.Port); err != nil || !state.Shaped {
		t.Errorf("read %+v, %v", state, err)
	}
}

func TestAClassIsGivenBackWhenThePortIsGone(t *testing.T) {
	n := newNode(t)
	m := New(n.manager, n.reconciler)
	if err := m.Apply(n.targets[0], mechanismtest.Limit(8*mbit), time.Minute); err != nil {
		t.Fatal(err)
	}
	testutil.IP(t, "-n", n.ns, "link", "del", "tap0")
	if err := m.Remove(&ports.Port{ID: "tap0"}); err != nil {
		t.Fatal(err)
	}
	n.settled(0)
}
