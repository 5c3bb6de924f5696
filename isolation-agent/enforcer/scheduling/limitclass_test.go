package scheduling

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/internal/tc"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/contract"
)

// mustSet sets a class and fails the test if that fails.
func (n *node) mustSet(class uint32, owner contract.Owner, rate uint64) uint32 {
	n.t.Helper()
	class, err := n.SetLimitClass(class, owner, rate)
	if err != nil {
		n.t.Fatal(err)
	}
	return class
}

// mustRemove removes a class and waits until it is gone.
func (n *node) mustRemove(class uint32) {
	n.t.Helper()
	if err := n.RemoveLimitClass(class); err != nil {
		n.t.Fatal(err)
	}
	testutil.WaitFor(n.t, "the end of "+tc.Handle(class).String(), func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.limits[tc.Handle(class).Minor()] == nil
	})
}

// mustKnow waits until so many classes, and numbers of them, are in use.
func (n *node) mustKnow(count int) {
	n.t.Helper()
	testutil.WaitFor(n.t, fmt.Sprintf("%d classes and numbers", count), func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.limits) == count && n.ids.used == count
	})
}

// class returns what the kernel has of a class on a device; false if it has none.
func (n *node) class(device int, class uint32) (tc.Class, bool) {
	n.t.Helper()
	list, err := n.conn.Classes(device, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	for i := range list {
		if uint32(list[i].Handle) == class {
			return list[i], true
		}
	}
	return tc.Class{}, false
}

func TestAShapedLimitHasItsOwnClassBelowTheContract(t *testing.T) {
	n := newNode(t)
	class := n.mustSet(0, owner("a"), 3*mbit)
	if tc.Handle(class).Major() != Major || tc.Handle(class).Minor() < 0x8000 {
		t.Fatalf("class %x", class)
	}
	if again := n.mustSet(class, owner("a"), 4*mbit); again != class {
		t.Errorf("another rate makes another class: %x", again)
	}
	got := n.tc("class", "show", "dev", "up0")
	parent := tc.MakeHandle(Major, minor("a")).String()
	if want := tc.Handle(class).String() + " parent " + parent + " leaf 8000:"; !strings.Contains(got, want) || !strings.Contains(got, "ceil 4Mbit") {
		t.Errorf("no %q in\n%s", want, got)
	}
	if drift := n.look(); drift != nil {
		t.Errorf("a limit's class is taken for drift: %q", drift)
	}
	if err := n.RemoveLimitClass(class); err != nil {
		t.Fatal(err)
	}
	if _, err := n.SetLimitClass(class, owner("a"), mbit); err == nil || errors.Is(err, ErrNoClass) {
		t.Errorf("a class that is given back is changed: %v", err)
	}
	n.mustRemove(class)
	if _, there := n.class(n.link, class); there {
		t.Errorf("left:\n%s", n.tc("class", "show", "dev", "up0"))
	}
	if _, err := n.SetLimitClass(class, owner("a"), mbit); err == nil || errors.Is(err, ErrNoClass) {
		t.Errorf("a class that was given back is changed: %v", err)
	}
}

// TestWhatWaitsInAClassArrivesThoughItsLimitEnds: packets that a limit delayed are not lost when it is over.
func TestWhatWaitsInAClassArrivesThoughItsLimitEnds(t *testing.T) {
	n := newNode(t)
	class := n.mustSet(0, owner("a"), 5_000)
	var far *net.UDPConn
	if err := netns.Do(n.far, func() (err error) {
		far, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 8, 0, 2), Port: 9})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	const count, size = 64, 1000
	if err := netns.Do(n.ns, func() error { return sendTo(far.LocalAddr().(*net.UDPAddr), class, count, size) }); err != nil {
		t.Fatal(err)
	}
	if k, _ := n.class(n.link, class); k.Stats.Backlog < 8*size {
		t.Fatalf("nothing waits: %+v", k.Stats)
	}
	n.mustRemove(class)
	if err := far.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		if _, err := far.Read(make([]byte, 2*size)); err != nil {
			t.Fatalf("%d of %d arrived: %v", i, count, err)
		}
	}
}

// sendTo sends datagrams that a scheduler puts into a class.
func sendTo(far *net.UDPAddr, class uint32, count, size int) error {
	near, err := net.DialUDP("udp4", nil, far)
	if err != nil {
		return err
	}
	defer near.Close()
	raw, err := near.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	if err := raw.Control(func(fd uintptr) {
		refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY, int(class))
	}); err != nil || refused != nil {
		return errors.Join(err, refused)
	}
	for range count {
		if _, err := near.Write(make([]byte, size)); err != nil {
			return err
		}
	}
	return nil
}

func TestAClassThatDrainsGoesWithItsReconciler(t *testing.T) {
	n := newNode(t)
	class := n.mustSet(0, owner("a"), 5_000)
	if err := errors.Join(n.RemoveLimitClass(class), n.Close()); err != nil {
		t.Fatal(err)
	}
	if got := n.tc("class", "show", "dev", "up0"); strings.Contains(got, tc.Handle(class).String()) {
		t.Errorf("left:\n%s", got)
	}
}

func TestWithoutAContractOnALinkThereIsNoClass(t *testing.T) {
	n := newNode(t)
	if _, err := n.SetLimitClass(0, owner("none"), mbit); !errors.Is(err, ErrNoClass) {
		t.Errorf("a tenant without a contract: %v", err)
	}
	n.drop()
	if _, err := n.SetLimitClass(0, owner("a"), mbit); !errors.Is(err, ErrNoClass) {
		t.Errorf("a node without links: %v", err)
	}
	if n.ids.used != 0 {
		t.Errorf("%d numbers are taken", n.ids.used)
	}
}

func TestAClassThatCannotBeMadeIsNotLeftBehind(t *testing.T) {
	n := newNode(t)
	n.Set([]Link{link(), {Device: "none", RateBytesPerSecond: 1000 * mbit, Headroom: 0.05}}, set(t, pair()...))
	if _, err := n.SetLimitClass(0, owner("a"), mbit); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("error %v", err)
	}
	if got := n.tc("class", "show", "dev", "up0"); strings.Contains(got, "1150:8") {
		t.Errorf("the first link keeps it:\n%s", got)
	}
	if n.ids.used != 0 || len(n.limits) != 0 {
		t.Errorf("%d numbers, %d classes are taken", n.ids.used, len(n.limits))
	}
}

func TestALimitBelowAnotherContractGetsAnotherClass(t *testing.T) {
	n := newNode(t)
	first := n.mustSet(0, owner("a"), 3*mbit)
	second := n.mustSet(first, owner("b"), 3*mbit) // its port has another contract now
	if second == first {
		t.Fatal("HTB does not move a class to another parent")
	}
	k, there := n.class(n.link, second)
	if !there || k.Parent.Minor() != minor("b") {
		t.Errorf("class %+v, %v", k, there)
	}
	if _, there := n.class(n.link, first); !there {
		t.Error("the first class is gone while frames may still be sent to it")
	}
	n.mustRemove(first)
	if n.ids.used != 1 {
		t.Errorf("%d numbers are taken", n.ids.used)
	}
}

func TestClassesOfLimitsArePutRightWithTheOthers(t *testing.T) {
	n := newNode(t)
	class := n.mustSet(0, owner("a"), 3*mbit)
	n.tc("qdisc", "del", "dev", "up0", "root")
	n.look()
	k, there := n.class(n.link, class)
	if !there || k.Ceil != 3*mbit || k.Parent.Minor() != minor("a") {
		t.Errorf("after the root qdisc was made anew: %+v, %v", k, there)
	}
	if got := n.tc("qdisc", "show", "dev", "up0"); !strings.Contains(got, "bfifo 8000: parent 1150:8000 limit 256Kb") {
		t.Errorf("its queue is not there:\n%s", got)
	}
	n.tc("class", "change", "dev", "up0", "parent", tc.MakeHandle(Major, minor("a")).String(), "classid", tc.Handle(class).String(), "htb", "rate", "1mbit", "ceil", "50mbit")
	if drift := n.look(); len(drift) != 1 || drift[0] != "up0 class 1150:8000 changed repaired" {
		t.Errorf("somebody gave it more: drift %q", drift)
	}
	if k, _ := n.class(n.link, class); k.Ceil != 3*mbit {
		t.Errorf("class %+v", k)
	}
}

func TestAContractThatEndsTakesItsLimitsClassesWithIt(t *testing.T) {
	n := newNode(t)
	class := n.mustSet(0, owner("b"), 3*mbit)
	n.Set([]Link{link()}, set(t, pair()[:1]...))
	n.look()
	if _, there := n.class(n.link, class); there {
		t.Error("the class of a limit outlives its contract's")
	}
	if _, there := n.class(n.link, uint32(tc.MakeHandle(Major, minor("b")))); there {
		t.Error("the contract's class is still there")
	}
	if err := n.RemoveLimitClass(class); err != nil {
		t.Errorf("giving it back: %v", err)
	}
}

func TestANewLinkHasTheClassesOfLimitsThatAreInForce(t *testing.T) {
	n := newNode(t)
	class := n.mustSet(0, owner("a"), 3*mbit)
	testutil.IP(t, "-n", n.ns, "link", "add", "up1", "type", "veth", "peer", "name", "up1p")
	testutil.IP(t, "-n", n.ns, "link", "set", "up1", "up")
	second := Link{Device: "up1", RateBytesPerSecond: 10 * mbit, Headroom: 0.05}
	n.Set([]Link{link(), second}, set(t, many(3)[1:2]...))
	n.Set([]Link{link(), second}, set(t, pair()...))
	n.look()
	index, err := n.conn.LinkIndex("up1")
	if err != nil {
		t.Fatal(err)
	}
	if k, there := n.class(index, class); !there || k.Ceil != 3*mbit {
		t.Errorf("class %+v, %v", k, there)
	}
	if n.mustSet(class, owner("a"), 50*mbit); true {
		if k, _ := n.class(index, class); k.Ceil != second.Limit() {
			t.Errorf("more than the link has: %+v", k)
		}
	}
	n.mustRemove(class)
	for _, device := range []int{n.link, index} {
		if k, there := n.class(device, class); there {
			t.Errorf("left on device %d: %+v", device, k)
		}
	}
}

func TestClassesOfADeadProcessAreRemovedAndTheirNumbersSpared(t *testing.T) {
	n := newNode(t)
	for range 3 {
		n.mustSet(0, owner("b"), mbit)
	}
	n.Reconciler = n.newReconciler() // its process died
	n.look()
	if got := n.tc("class", "show", "dev", "up0"); strings.Contains(got, "1150:8") {
		t.Errorf("left by a dead process:\n%s", got)
	}
	if class := n.mustSet(0, owner("a"), mbit); tc.Handle(class).Minor() != 0x8003 {
		t.Errorf("class %x: limits in the kernel may still name the dead process's", class)
	}
}
