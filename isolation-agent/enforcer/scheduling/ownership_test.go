package scheduling

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vigia/internal/bpf/classify"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/contract"
)

// shown is all that tc(8) shows of the uplink and ip(8) of its devices.
func (n *node) shown() string {
	n.t.Helper()
	return n.tc("qdisc", "show", "dev", "up0") + n.tc("class", "show", "dev", "up0") + n.tc("filter", "show", "dev", "up0", "ingress") +
		n.tc("filter", "show", "dev", "up0", "egress")
}

func TestAnothersClsactQdiscServesAndStays(t *testing.T) {
	n := newNode(t)
	n.drop()
	n.tc("filter", "add", "dev", "up0", "ingress", "protocol", "all", "prio", "7", "u32", "match", "u32", "0", "0", "classid", "1:1")
	before := n.shown()
	n.Set([]Link{link()}, set(t, pair()...))
	n.look()
	if drift := n.look(); drift != nil {
		t.Errorf("drift %q", drift)
	}
	if got := n.tc("filter", "show", "dev", "up0", "ingress"); !strings.Contains(got, "pref 7 u32") || !strings.Contains(got, "vigia") {
		t.Errorf("both filters are wanted:\n%s", got)
	}
	n.drop()
	if after := n.shown(); after != before {
		t.Errorf("what was there before was\n%s\nand is\n%s", before, after)
	}
}

func TestAnothersFilterInThePlaceOfOursIsRefused(t *testing.T) {
	n := newNode(t)
	n.tc("filter", "del", "dev", "up0", "ingress")
	n.tc("filter", "add", "dev", "up0", "ingress", "protocol", "all", "prio", "41296", "handle", "800::1", "u32", "match", "u32", "0", "0", "classid", "1:1")
	before := n.tc("filter", "show", "dev", "up0", "ingress")
	for range 2 {
		if _, err := n.Reconcile(); err == nil {
			t.Error("nobody says that the tenants' ingress is not scheduled")
		}
	}
	if after := n.tc("filter", "show", "dev", "up0", "ingress"); after != before {
		t.Errorf("the filter was\n%s\nand is\n%s", before, after)
	}
}

func TestADeviceOfAnotherKindInThePlaceOfOursIsRefused(t *testing.T) {
	n := newNode(t)
	n.drop()
	name := IFBName(n.link)
	testutil.IP(t, "-n", n.ns, "link", "add", name, "type", "veth", "peer", "name", "other")
	n.Set([]Link{link()}, set(t, pair()...))
	_, err := n.Reconcile()
	if err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("error %v", err)
	}
	n.Set(nil, nil)
	n.look()
	if got := testutil.IP(t, "-n", n.ns, "link", "show", "dev", name); !strings.Contains(got, name) {
		t.Errorf("somebody else's device is gone: %s", got)
	}
}

// TestWhatIsOnOtherDevicesIsNotLookedAt: a second interface has a tree of our handles
// that is nobody's link here.
func TestWhatIsOnOtherDevicesIsNotLookedAt(t *testing.T) {
	n := newNode(t)
	testutil.IP(t, "-n", n.ns, "link", "add", "other", "type", "veth", "peer", "name", "otherp")
	n.tc("qdisc", "add", "dev", "other", "root", "handle", "1150:", "htb", "default", "2")
	n.tc("class", "add", "dev", "other", "parent", "1150:", "classid", "1150:1", "htb", "rate", "5mbit")
	before := n.tc("class", "show", "dev", "other")
	if drift := n.look(); drift != nil {
		t.Errorf("drift %q", drift)
	}
	if after := n.tc("class", "show", "dev", "other"); after != before {
		t.Errorf("the classes were\n%s\nand are\n%s", before, after)
	}
}

func TestTwoLinksHaveTheirOwnTrees(t *testing.T) {
	n := newNode(t)
	testutil.IP(t, "-n", n.ns, "link", "add", "up1", "type", "veth", "peer", "name", "up1p")
	testutil.IP(t, "-n", n.ns, "link", "set", "up1", "up")
	second := Link{Device: "up1", RateBytesPerSecond: 1000 * mbit, Headroom: 0.1}
	n.Set([]Link{link(), second}, set(t, pair()...))
	n.look()
	if drift := n.look(); drift != nil {
		t.Errorf("drift %q", drift)
	}
	for device, want := range map[string]string{"up0": "ceil 95Mbit", "up1": "ceil 900Mbit"} {
		if got := n.tc("class", "show", "dev", device); !strings.Contains(got, "root rate") || !strings.Contains(got, want) {
			t.Errorf("%s: no %q in\n%s", device, want, got)
		}
	}
	if ifbs := strings.Count(testutil.IP(t, "-n", n.ns, "-o", "link", "show", "type", "ifb"), "vigia-ifb"); ifbs != 2 {
		t.Errorf("%d IFB devices", ifbs)
	}
	n.Set([]Link{second}, set(t, pair()...)) // the first is listed no more
	n.look()
	if got := n.tc("qdisc", "show", "dev", "up0"); strings.Contains(got, "htb") {
		t.Errorf("left on up0:\n%s", got)
	}
	if got := n.tc("qdisc", "show", "dev", "up1"); !strings.Contains(got, "htb 1150:") {
		t.Errorf("gone from up1:\n%s", got)
	}
}

func TestALinkThatIsGoneLeavesNothingToDo(t *testing.T) {
	n := newNode(t)
	n.look()
	testutil.IP(t, "-n", n.ns, "link", "del", "up0")
	n.Set(nil, nil)
	for range 2 {
		n.look()
	}
	if len(n.dropped) != 0 {
		t.Errorf("%v is still to be removed", n.dropped)
	}
	if left := n.ifbDevices(); len(left) != 0 {
		t.Errorf("%q are left of it", left)
	}
}

// TestALinkThatIsMadeAnewHasItsGuarantees again and again, as by a daemon that builds a bond anew: each is another
// device, and nothing that somebody changes.
func TestALinkThatIsMadeAnewHasItsGuarantees(t *testing.T) {
	n := newNode(t)
	for i := range maxRepairs + 3 {
		testutil.IP(t, "-n", n.ns, "link", "del", "up0")
		testutil.NewVethPair(t, n.ns, "up0", n.far, "eth0")
		if drift := n.look(); drift != nil {
			t.Errorf("device %d: drift %q", i, drift)
		}
		if got := n.tc("class", "show", "dev", "up0"); !strings.Contains(got, "htb") {
			t.Errorf("device %d has no classes:\n%s", i, got)
		}
		if there := n.ifbDevices(); len(there) != 1 {
			t.Errorf("device %d: %q are there", i, there)
		}
	}
}

// ifbDevices returns the names of our IFB devices.
func (n *node) ifbDevices() (out []string) {
	n.t.Helper()
	for line := range strings.Lines(testutil.Run(n.t, "ip", "-n", n.ns, "-o", "link", "show", "type", "ifb")) {
		if _, name, _ := strings.Cut(line, ": "); strings.HasPrefix(name, classify.IFBPrefix) {
			out = append(out, strings.Fields(name)[0])
		}
	}
	return out
}

// TestChangedContractsAreNoDrift: what a reload changes is wanted.
func TestChangedContractsAreNoDrift(t *testing.T) {
	n := newNode(t)
	for step, change := range []func([]contract.Contract) []contract.Contract{
		func(l []contract.Contract) []contract.Contract { l[0].Send = bandwidth(30, 40); return l },
		func(l []contract.Contract) []contract.Contract { l[1].Receive = bandwidth(1, 2); return l },
		func(l []contract.Contract) []contract.Contract { return l[:1] },
		func(l []contract.Contract) []contract.Contract { return append(l, many(5)...) },
		func([]contract.Contract) []contract.Contract { return nil },
		func(l []contract.Contract) []contract.Contract { return l },
	} {
		n.Set([]Link{link()}, set(t, change(pair())...))
		if drift := n.look(); drift != nil {
			t.Errorf("step %d: drift %q", step, drift)
		}
		if drift := n.look(); drift != nil {
			t.Errorf("step %d, looked at again: drift %q", step, drift)
		}
	}
}

func TestRatesBeyondThirtyTwoBitsAreKept(t *testing.T) {
	n := newNode(t)
	fast := Link{Device: "up0", RateBytesPerSecond: 400_000 * mbit, Headroom: 0.05}
	big := contract.Contract{Owner: owner("big"), Send: bandwidth(200_000, 400_000), Receive: bandwidth(100_000, 300_000)}
	n.Set([]Link{fast}, set(t, big))
	n.look()
	if drift := n.look(); drift != nil {
		t.Errorf("drift %q", drift)
	}
	if got := n.tc("class", "show", "dev", "up0"); !strings.Contains(got, "rate 200Gbit ceil 380Gbit") {
		t.Errorf("classes\n%s", got)
	}
}

// TestASmallGuaranteeBelowALargeCeilingIsNoDrift: a burst is kept as the time that it takes at the guarantee, and that is
// longer than the kernel has a number for.
func TestASmallGuaranteeBelowALargeCeilingIsNoDrift(t *testing.T) {
	n := newNode(t)
	for _, guarantee := range []uint64{1, 2, 5, 10, 100, 1000} {
		small := contract.Contract{Owner: owner("small"), Send: bandwidth(guarantee, 95_000), Receive: bandwidth(guarantee, 95_000)}
		n.Set([]Link{{Device: "up0", RateBytesPerSecond: 100_000 * mbit, Headroom: 0.05}}, set(t, small))
		n.look()
		if drift := n.look(); drift != nil {
			t.Errorf("with %d Mbit/s: drift %q", guarantee, drift)
		}
	}
}

// TestAHundredTenantsFitAndGo: many contracts are made, found again, and removed.
func TestAHundredTenantsFitAndGo(t *testing.T) {
	n := newNode(t)
	n.Set([]Link{{Device: "up0", RateBytesPerSecond: 1000 * mbit, Headroom: 0.05}}, set(t, many(100)...))
	n.look()
	if drift := n.look(); drift != nil {
		t.Errorf("drift %q", drift)
	}
	count := func(device string) int { return strings.Count(n.tc("class", "show", "dev", device), "class htb") }
	if sending, receiving := count("up0"), count(IFBName(n.link)); sending != 203 || receiving != 103 {
		t.Errorf("%d classes to send, %d to receive", sending, receiving)
	}
	n.Set([]Link{link()}, nil)
	n.look()
	if sending, receiving := count("up0"), count(IFBName(n.link)); sending != 3 || receiving != 3 {
		t.Errorf("%d classes to send, %d to receive are left", sending, receiving)
	}
}

func TestDriftOfAMatchIsPutRight(t *testing.T) {
	n := newNode(t)
	if _, err := n.programs.SetMatches(nil); err != nil { // somebody emptied the classifier's map
		t.Fatal(err)
	}
	if drift := n.look(); len(drift) != 1 || drift[0] != " matches changed repaired" {
		t.Errorf("drift %q", drift)
	}
	if drift := n.look(); drift != nil {
		t.Errorf("drift %q", drift)
	}
}

func TestANamespaceThatIsNotThereIsAnError(t *testing.T) {
	if _, err := os.Stat(filepath.Join("/run/netns", "vigia-none")); err == nil {
		t.Fatal("the namespace is there")
	}
	if r, err := NewReconciler("vigia-none", nil, nil); err == nil {
		r.Close()
		t.Error("no error")
	}
	if got := fmt.Sprint(IFBName(7)); got != "vigia-ifb7" || len(IFBName(1<<31-1)) > 20 {
		t.Errorf("device %s", got)
	}
}
