package scheduling

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"

	"golang.org/x/sys/unix"
	"vigia/internal/bpf/classify"

	"vigia/internal/netns"
	"vigia/internal/tc"
	"vigia/internal/testutil"
)

// node is a namespace with an uplink and a reconciler.
type node struct {
	*Reconciler
	t    *testing.T
	ns   string
	far  string
	link int
	ifb  int
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, ns: testutil.NewNetNS(t), far: testutil.NewNetNS(t)}
	for _, ns := range []string{n.ns, n.far} { // nothing is sent that the test does not send
		testutil.DisableIPv6(t, ns)
	}
	testutil.NewVethPair(t, n.ns, "up0", n.far, "eth0")
	testutil.IP(t, "-n", n.ns, "addr", "add", "10.8.0.1/24", "dev", "up0")
	testutil.IP(t, "-n", n.far, "addr", "add", "10.8.0.2/24", "dev", "eth0")
	n.Reconciler = n.newReconciler()
	if _, err := n.Reconcile(); err != nil {
		t.Fatal(err)
	}
	var err error
	if n.link, err = n.conn.LinkIndex("up0"); err != nil {
		t.Fatal(err)
	}
	if n.ifb, err = n.conn.LinkIndex(IFBName(n.link)); err != nil {
		t.Fatal(err)
	}
	return n
}

// newReconciler is what a fresh process has.
func (n *node) newReconciler() *Reconciler {
	n.t.Helper()
	programs, err := classify.Open(testutil.NewBPFFS(n.t), 4)
	if err != nil {
		n.t.Fatal(err)
	}
	k, err := NewReconciler(n.ns, programs, promslog.NewNopLogger())
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		k.Close()
		programs.Close()
	})
	k.Set([]Link{link()}, set(n.t, pair()...))
	return k
}

// minor is the number of a tenant's contract among those of pair.
func minor(tenant string) uint16 { return Minors(pair())[owner(tenant)] }

func (n *node) tc(args ...string) string {
	n.t.Helper()
	return testutil.Run(n.t, "tc", append([]string{"-n", n.ns}, args...)...)
}

// look returns the drift that one look finds, as "device object state action".
func (n *node) look() []string {
	n.t.Helper()
	list, err := n.Reconcile()
	if err != nil {
		n.t.Fatal(err)
	}
	var out []string
	for _, d := range list {
		out = append(out, strings.Join([]string{d.Device, d.Object, d.State, d.Action}, " "))
	}
	return out
}

func (n *node) objects() string {
	n.t.Helper()
	var b strings.Builder
	for _, device := range []string{"up0", IFBName(n.link)} {
		for _, kind := range []string{"qdisc", "class"} {
			b.WriteString(n.tc(kind, "show", "dev", device))
		}
	}
	return b.String()
}

func TestReconcilingAgainChangesNothing(t *testing.T) {
	n := newNode(t)
	before := n.objects()
	if drift := n.look(); drift != nil {
		t.Errorf("drift %q", drift)
	}
	n.Reconciler = n.newReconciler() // another process takes over
	n.look()
	if drift := n.look(); drift != nil {
		t.Errorf("drift after a restart %q", drift)
	}
	if after := n.objects(); after != before {
		t.Errorf("objects were\n%s\nand are\n%s", before, after)
	}
	for _, want := range []string{"rate 71Mbit ceil 95Mbit", "rate 60Mbit ceil 95Mbit", "limit 128Kb", "limit 380000b", "qdisc clsact ffff:"} {
		if !strings.Contains(before, want) {
			t.Errorf("no %q in\n%s", want, before)
		}
	}
}

func TestDriftIsFoundReportedAndPutRight(t *testing.T) {
	n := newNode(t)
	before := n.objects()
	a := tc.MakeHandle(Major, minor("a")+leafOffset).String()
	queue := tc.MakeHandle(minor("a")+leafOffset, 0).String()
	ifb := IFBName(n.link)
	for _, step := range []struct {
		damage []string
		want   string
	}{
		{[]string{"class", "change", "dev", ifb, "parent", "1150:1", "classid", a, "htb", "rate", "1mbit", "ceil", "2mbit"}, ifb + " class " + a + " changed repaired"},
		{[]string{"qdisc", "change", "dev", "up0", "parent", a, "handle", queue, "bfifo", "limit", "5"}, "up0 qdisc " + queue + " changed repaired"},
		{[]string{"class", "add", "dev", "up0", "parent", "1150:1", "classid", "1150:7fff", "htb", "rate", "1mbit"}, "up0 class 1150:7fff leftover removed"},
		{[]string{"filter", "del", "dev", "up0", "ingress"}, "up0 filter vigia missing made"},
		{[]string{"filter", "del", "dev", ifb, "parent", "1150:", "prio", "41296"}, ifb + " filter vigia missing made"},
	} {
		n.tc(step.damage...)
		if got := n.look(); len(got) != 1 || got[0] != step.want {
			t.Errorf("after tc %v: drift %q, want %q", step.damage, got, step.want)
		}
	}
	n.tc("qdisc", "del", "dev", "up0", "root")
	if got := n.look(); len(got) < 5 || got[0] != "up0 qdisc 1150:0 missing made" {
		t.Errorf("after the root qdisc went: drift %q", got)
	}
	if after := n.objects(); !sameLines(before, after) {
		t.Errorf("objects were\n%s\nand are\n%s", before, after)
	}
}

// TestAQueueOfAnotherKindIsReplaced finds what a version before made, or somebody: the kernel changes no queue's kind.
func TestAQueueOfAnotherKindIsReplaced(t *testing.T) {
	n := newNode(t)
	before := n.objects()
	class, handle := tc.MakeHandle(Major, minor("a")+leafOffset).String(), tc.MakeHandle(minor("a")+leafOffset, 0).String()
	devices := []string{"up0", IFBName(n.link)}
	for _, device := range devices {
		n.tc("qdisc", "del", "dev", device, "parent", class, "handle", handle)
		n.tc("qdisc", "add", "dev", device, "parent", class, "handle", handle, "pfifo", "limit", "32")
	}
	want := []string{devices[0] + " qdisc " + handle + " changed repaired", devices[1] + " qdisc " + handle + " changed repaired"}
	if got := n.look(); !slices.Equal(got, want) {
		t.Errorf("drift %q, want %q", got, want)
	}
	if after := n.objects(); !sameLines(before, after) {
		t.Errorf("objects were\n%s\nand are\n%s", before, after)
	}
	if drift := n.look(); drift != nil {
		t.Errorf("drift %q", drift)
	}
}

// TestQueuesHoldWhatADeviceHandsOverAtOnce has a device send and take packets of 215 000 bytes before they are cut: a
// queue that is shorter would refuse every one of them.
func TestQueuesHoldWhatADeviceHandsOverAtOnce(t *testing.T) {
	n := newNode(t)
	testutil.IP(t, "-n", n.ns, "link", "set", "up0", "gso_max_size", "215000")
	n.look()
	for _, device := range []string{"up0", IFBName(n.link)} {
		got := n.tc("qdisc", "show", "dev", device)
		if strings.Count(got, "qdisc bfifo") != 4 || strings.Count(got, "limit 430000b") != 4 {
			t.Errorf("%s has\n%s", device, got)
		}
	}
	class, err := n.SetLimitClass(0, owner("a"), mbit)
	if err != nil {
		t.Fatal(err)
	}
	if got := n.tc("qdisc", "show", "dev", "up0"); strings.Count(got, "limit 430000b") != 5 {
		t.Errorf("the limit's queue is not among\n%s", got)
	}
	if err := n.RemoveLimitClass(class); err != nil {
		t.Error(err)
	}
}

// sameLines compares without order.
func sameLines(a, b string) bool {
	count := map[string]int{}
	for line := range strings.SplitSeq(a, "\n") {
		count[strings.TrimSpace(line)]++
	}
	for line := range strings.SplitSeq(b, "\n") {
		count[strings.TrimSpace(line)]--
	}
	for _, c := range count {
		if c != 0 {
			return false
		}
	}
	return true
}

func TestWhatSomebodyKeepsChangingIsGivenUp(t *testing.T) {
	n := newNode(t)
	queue := tc.MakeHandle(minor("b")+leafOffset, 0).String()
	parent := tc.MakeHandle(Major, minor("b")+leafOffset).String()
	var last []string
	for range maxRepairs + 1 {
		n.tc("qdisc", "change", "dev", "up0", "parent", parent, "handle", queue, "bfifo", "limit", "5")
		last = n.look()
	}
	if len(last) != 1 || !strings.HasSuffix(last[0], "changed given_up") {
		t.Errorf("drift %q", last)
	}
	if got := n.tc("qdisc", "show", "dev", "up0"); !strings.Contains(got, "limit 5b") {
		t.Errorf("it was put right once more:\n%s", got)
	}
	for _, then := range []string{"changed given_up", "changed repaired"} { // it is looked at meanwhile
		for _, repair := range n.repairs {
			repair.last = repair.last.Add(-repairReset/2 - time.Second)
		}
		if last = n.look(); len(last) != 1 || !strings.HasSuffix(last[0], then) {
			t.Errorf("a while later: drift %q, want %s", last, then)
		}
	}
	if got := n.tc("qdisc", "show", "dev", "up0"); strings.Contains(got, "limit 5b") {
		t.Errorf("it was left alone for good:\n%s", got)
	}
}

// drop lists no links any more.
func (n *node) drop() {
	n.t.Helper()
	n.Set(nil, set(n.t, pair()...))
	if drift := n.look(); drift != nil {
		n.t.Fatalf("drift %q", drift)
	}
}

func TestForeignObjectsAreNeverTouched(t *testing.T) {
	n := newNode(t)
	n.drop()
	n.tc("qdisc", "add", "dev", "up0", "root", "handle", "1:", "htb", "default", "1")
	n.tc("class", "add", "dev", "up0", "parent", "1:", "classid", "1:1", "htb", "rate", "50mbit")
	n.tc("filter", "add", "dev", "up0", "ingress", "protocol", "all", "prio", "7", "u32", "match", "u32", "0", "0", "classid", "1:1")
	before := n.tc("qdisc", "show", "dev", "up0") + n.tc("class", "show", "dev", "up0") + n.tc("filter", "show", "dev", "up0", "ingress")
	n.Set([]Link{link()}, set(t, pair()...))
	_, err := n.Reconcile()
	if !errors.Is(err, errForeign) {
		t.Errorf("error %v", err)
	}
	if d := n.Drift(); len(d) != 1 || d[0].State != "failed" || !strings.Contains(d[0].Reason, "another owner") {
		t.Errorf("drift %+v", d)
	}
	n.drop()
	after := n.tc("qdisc", "show", "dev", "up0") + n.tc("class", "show", "dev", "up0") + n.tc("filter", "show", "dev", "up0", "ingress")
	if after != before {
		t.Errorf("foreign objects were\n%s\nand are\n%s", before, after)
	}
}

func TestALinkThatIsListedNoMoreKeepsNothingOfOurs(t *testing.T) {
	n := newNode(t)
	for range 2 {
		n.drop()
	}
	if got := n.tc("qdisc", "show"); strings.Contains(got, "htb") {
		t.Errorf("left:\n%s", got)
	}
	if got := testutil.IP(t, "-n", n.ns, "link", "show"); strings.Contains(got, "vigia-ifb") {
		t.Errorf("left:\n%s", got)
	}
}

func TestAMissingUplinkIsAnErrorAndOthersAreLookedAt(t *testing.T) {
	n := newNode(t)
	n.Set([]Link{{Device: "none", RateBytesPerSecond: 1000, Headroom: 0.05}, link()}, set(t, pair()...))
	_, err := n.Reconcile()
	if err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("error %v", err)
	}
	n.Set([]Link{link()}, set(t, pair()[:1]...))
	n.look()
	if got := n.tc("class", "show", "dev", "up0"); strings.Contains(got, tc.MakeHandle(Major, minor("b")).String()) {
		t.Errorf("the class of a contract that ended is still there:\n%s", got)
	}
}

func TestTrafficGoesThroughItsClassBothWays(t *testing.T) {
	n := newNode(t)
	send := func(ns, to string) {
		if err := netns.Do(ns, func() error {
			conn, err := net.ListenPacket("udp4", ":0")
			if err != nil {
				return err
			}
			address, err := net.ResolveUDPAddr("udp4", to)
			if err != nil {
				return err
			}
			defer conn.Close()
			// A VXLAN frame of network 10 from one VM to another.
			frame := append([]byte{8, 0, 0, 0, 0, 0, 10, 0}, make([]byte, 200)...)
			for range 10 {
				if _, err := conn.WriteTo(frame, address); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	send(n.ns, "10.8.0.2:4789")
	send(n.far, "10.8.0.1:4789")
	a := tc.Handle(leafClass(minor("a")))
	for _, device := range []int{n.link, n.ifb} {
		testutil.WaitFor(t, "ten frames in the class", func() bool {
			classes, err := n.conn.Classes(device, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range classes {
				if k.Handle == a {
					return k.Stats.Packets == 10
				}
			}
			return false
		})
	}
	got, err := n.programs.Arrived(n.ifb, uint32(a))
	if err != nil || got.Packets != 10 || got.Bytes != 10*(14+20+8+208) {
		t.Errorf("arrived %+v %v", got, err)
	}
}

// TestLowerEffortFillsNoQueueOfOthers sends more than the link carries with DSCP 1, and beside it what has none.
func TestLowerEffortFillsNoQueueOfOthers(t *testing.T) {
	n := newNode(t)
	n.Set([]Link{{Device: "up0", RateBytesPerSecond: mbit, Headroom: 0.05}}, nil)
	n.look()
	dial := func(tos int) (conn *net.UDPConn) {
		err := netns.Do(n.ns, func() (err error) {
			conn, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(10, 8, 0, 2), Port: 9})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		raw, err := conn.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if e := raw.Control(func(fd uintptr) {
			// Room for more than the queue has; each frame counts as more than its bytes.
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 16*tcpQueue),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, tos))
		}); e != nil || err != nil {
			t.Fatal(e, err)
		}
		return conn
	}
	class := func(minor uint16) tc.Stats {
		t.Helper()
		k, err := n.conn.Class(n.link, tc.MakeHandle(Major, minor))
		if err != nil {
			t.Fatal(err)
		}
		return k.Stats
	}
	if err := netns.Do(n.far, func() error { // so that nobody refuses
		conn, err := net.ListenPacket("udp4", "10.8.0.2:9")
		if err == nil {
			t.Cleanup(func() { conn.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	bulk, probe := dial(1<<2), dial(0)
	const probes = 20
	for range probes {
		dropped := class(lowerMinor).Drops
		testutil.WaitFor(t, "the queue of lower effort to be full", func() bool {
			for range tcpQueue / 1400 {
				_, _ = bulk.Write(make([]byte, 1400)) // nobody has to take it
			}
			return class(lowerMinor).Drops > dropped
		})
		before := class(DefaultMinor).Packets
		if _, err := probe.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		testutil.WaitFor(t, "a probe to leave", func() bool { return class(DefaultMinor).Packets > before })
	}
	if drops := class(DefaultMinor).Drops; drops != 0 {
		t.Errorf("%d packets of the default class were dropped", drops)
	}
	testutil.WaitFor(t, "lower effort to have what is left", func() bool { return class(lowerMinor).Packets > probes })
}
