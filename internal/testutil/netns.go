package testutil

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

var netnsCount atomic.Int64

// RequireRoot ends the test where it cannot run: without root it is skipped,
// and as root it never is.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root (CAP_SYS_ADMIN, CAP_NET_ADMIN): run as root")
	}
}

// NewNetNS makes a network namespace with lo up and removes it after the test.
func NewNetNS(t testing.TB) string {
	t.Helper()
	RequireRoot(t)
	name := fmt.Sprintf("vigia-test-%d-%d", os.Getpid(), netnsCount.Add(1))
	t.Cleanup(func() { // also of one that was interrupted while it was made
		if _, err := os.Stat("/run/netns/" + name); err == nil {
			IP(t, "netns", "del", name)
		}
	})
	IP(t, "netns", "add", name)
	IP(t, "-n", name, "link", "set", "lo", "up")
	return name
}

// DisableIPv6 keeps neighbour discovery and multicast reports out of the
// namespace's counters; call it before interfaces come up.
func DisableIPv6(t testing.TB, ns string) {
	t.Helper()
	Run(t, "ip", "netns", "exec", ns, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
}

// NewVethPair joins two namespaces by a veth pair with the given device names, both up. The kernel takes up later that
// the first has a carrier: until then it drops what the device is to send, and a bridge lets nothing through it.
func NewVethPair(t testing.TB, nsA, devA, nsB, devB string) {
	t.Helper()
	IP(t, "link", "add", devA, "netns", nsA, "type", "veth", "peer", "name", devB, "netns", nsB)
	IP(t, "-n", nsA, "link", "set", devA, "up")
	IP(t, "-n", nsB, "link", "set", devB, "up")
	for _, end := range [][2]string{{nsA, devA}, {nsB, devB}} {
		WaitFor(t, end[1]+" to be up", func() bool {
			return strings.Contains(IP(t, "-n", end[0], "-o", "link", "show", "dev", end[1]), " state UP ")
		})
	}
}

// SendDrops returns how many packets a device could not hand over (its statistics' tx_dropped).
func SendDrops(t testing.TB, ns, device string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(Run(t, "ip", "netns", "exec", ns, "cat", "/sys/class/net/"+device+"/statistics/tx_dropped")))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// IP runs ip(8) and fails the test on error.
func IP(t testing.TB, args ...string) string {
	t.Helper()
	return Run(t, "ip", args...)
}

// Run runs a command, returns its output and fails the test on error.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
