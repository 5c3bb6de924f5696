package plug

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vigia/internal/testutil"
)

const (
	bridgeA = "brq11111111-11"
	bridgeB = "brq22222222-22"
)

// bridge makes a network's bridge as Neutron's agent and os-vif do, with a machine's port, and with an address at which an
// endpoint reaches it.
func (b *bench) bridge(name string, number, endpoint int) {
	b.Helper()
	port := fmt.Sprintf("tap%08d-%02d", number, number)
	// A bridge made anew keeps its address: else the endpoint's neighbour entry leads astray until the kernel doubts it.
	testutil.IP(b, "-n", b.home, "link", "add", name, "address", fmt.Sprintf("02:00:00:00:00:%d", number),
		"type", "bridge", "forward_delay", "0", "stp_state", "0")
	testutil.IP(b, "-n", b.home, "tuntap", "add", "dev", port, "mode", "tap")
	testutil.IP(b, "-n", b.home, "link", "set", port, "master", name)
	testutil.IP(b, "-n", b.home, "addr", "add", fmt.Sprintf("10.9.0.%d", number), "peer", fmt.Sprintf("10.9.0.%d", endpoint), "dev", name)
	testutil.IP(b, "-n", b.home, "link", "set", name, "up")
}

// master returns the bridge that a device belongs to.
func (b *bench) master(device string) string {
	b.Helper()
	words := strings.Fields(testutil.IP(b, "-n", b.home, "-o", "link", "show", "dev", device))
	for i, word := range words {
		if word == "master" {
			return words[i+1]
		}
	}
	return ""
}

// members returns how many devices belong to a bridge.
func (b *bench) members(name string) int {
	b.Helper()
	return strings.Count(testutil.IP(b, "-n", b.home, "-o", "link", "show", "master", name), "\n")
}

func bridged(network, port string, number int, bridge string) string {
	return endpoint(network, port, number, "switch: linuxbridge, bridge: "+bridge)
}

func TestADeviceJoinsItsNetworksBridge(t *testing.T) {
	b := newBench(t, false)
	b.bridge(bridgeA, 91, 1)
	b.bridge(bridgeB, 92, 2)
	before := map[string]int{bridgeA: b.members(bridgeA), bridgeB: b.members(bridgeB)}
	b.write(bridged("vxlan", portA, 1, bridgeA) + bridged("gre", portB, 2, bridgeB))
	n := b.start()
	for range 2 { // the second time nothing is left to be done
		b.pass(n)
		if a, g := b.master(tapA), b.master(tapB); a != bridgeA || g != bridgeB {
			t.Errorf("they are in %q and %q", a, g)
		}
		b.pings("vxlan", "10.9.0.91")
		b.pings("gre", "10.9.0.92")
	}
	b.write(bridged("gre", portB, 2, bridgeB))
	b.pass(n)
	b.expect("vxlan", tapA, "")
	b.write("")
	b.pass(n)
	b.expect("gre", tapB, "")
	for name, count := range before {
		if now := b.members(name); now != count {
			t.Errorf("%s had %d devices and has %d", name, count, now)
		}
	}
}

func TestABridgeThatComesLaterIsJoined(t *testing.T) {
	b := newBench(t, false)
	b.write(bridged("vxlan", portA, 1, bridgeA))
	n := b.start()
	n.wait = time.Hour
	b.pass(n) // the agent needs the device to make the bridge for it
	if got := b.master(tapA); got != "" {
		t.Errorf("it is in %s", got)
	}
	b.bridge(bridgeA, 91, 1)
	b.pass(n)
	b.pings("vxlan", "10.9.0.91")
	// The agent, when it cleans up, takes bridges away: what is left of the endpoint joins the next one.
	testutil.IP(t, "-n", b.home, "link", "del", bridgeA)
	testutil.IP(t, "-n", b.home, "link", "del", "tap00000091-91")
	b.pass(n)
	b.bridge(bridgeA, 91, 1)
	b.pass(n)
	b.pings("vxlan", "10.9.0.91")
}

func TestABridgeThatDoesNotComeIsNamed(t *testing.T) {
	b := newBench(t, false)
	b.bridge(bridgeB, 92, 2)
	b.write(bridged("vxlan", portA, 1, bridgeA) + bridged("gre", portB, 2, bridgeB))
	n := b.start() // with no patience, as with --once
	b.fails(n, "network vxlan", tapA+" is in no bridge", "there is no "+bridgeA, "neutron-linuxbridge-agent")
	b.expect("vxlan", tapA, "netns device") // it waits there for the agent
	b.pings("gre", "10.9.0.92")
	before := testutil.IP(t, "-n", b.home, "-o", "link", "show", "dev", tapA)
	b.fails(n, "there is no "+bridgeA)
	if after := testutil.IP(t, "-n", b.home, "-o", "link", "show", "dev", tapA); strings.Fields(after)[0] != strings.Fields(before)[0] {
		t.Errorf("%s has been made anew", after)
	}
	b.write(endpoint("vxlan", portA, 1, "switch: linuxbridge"))
	b.fails(n, "there is no bridge in the file")
}

// TestWhereSomebodyElsePutADeviceItStays: bridge_mappings of the agent may name another bridge than the network's.
func TestWhereSomebodyElsePutADeviceItStays(t *testing.T) {
	b := newBench(t, false)
	b.vs.Stop() // there is no Open vSwitch
	b.write(endpoint("vxlan", portA, 1, "switch: linuxbridge"))
	n := b.start()
	n.wait = time.Hour
	b.pass(n)
	if said := testutil.IP(t, "-n", b.home, "-o", "link", "show", "dev", tapA); !strings.Contains(said, "UP") {
		t.Error(said)
	}
	b.bridge("br-own", 93, 1)
	testutil.IP(t, "-n", b.home, "link", "set", tapA, "master", "br-own")
	for range 2 {
		b.pass(n)
		b.pings("vxlan", "10.9.0.93")
	}
	b.bridge(bridgeA, 91, 1)
	b.write(bridged("vxlan", portA, 1, bridgeA)) // what the file says has changed: it is made anew
	testutil.IP(t, "-n", b.home, "addr", "flush", "dev", "br-own")
	b.pass(n)
	b.pings("vxlan", "10.9.0.91")
	testutil.IP(t, "-n", b.home, "link", "set", tapA, "master", "br-own")
	b.pass(n)
	b.pass(b.start())
	if got := b.master(tapA); got != "br-own" {
		t.Errorf("it is in %q", got)
	}
	b.write("")
	b.pass(n)
	if said := testutil.IP(t, "-n", b.home, "-o", "link"); strings.Contains(said, tapA) || !strings.Contains(said, "br-own") {
		t.Error(said)
	}
}

func TestADeviceThatIsNoBridgeIsLeftAlone(t *testing.T) {
	b := newBench(t, false)
	testutil.IP(t, "-n", b.home, "tuntap", "add", "dev", bridgeA, "mode", "tap")
	before := testutil.IP(t, "-n", b.home, "-o", "link", "show", "dev", bridgeA)
	b.write(bridged("vxlan", portA, 1, bridgeA))
	n := b.start()
	b.fails(n, bridgeA+" is no bridge", "ip link del "+bridgeA)
	if after := testutil.IP(t, "-n", b.home, "-o", "link", "show", "dev", bridgeA); after != before {
		t.Errorf("%s was %s", after, before)
	}
	testutil.IP(t, "-n", b.home, "link", "del", bridgeA)
	b.bridge(bridgeA, 91, 1)
	b.pass(n)
	b.pings("vxlan", "10.9.0.91")
}

// TestACrashOnABridge takes parts away that a process that was killed may not have come to.
func TestACrashOnABridge(t *testing.T) {
	b := newBench(t, false)
	b.bridge(bridgeA, 91, 1)
	b.write(bridged("vxlan", portA, 1, bridgeA))
	for name, cut := range map[string]func(){
		"joining":   func() { testutil.IP(t, "-n", b.home, "link", "set", tapA, "nomaster") },
		"device":    func() { testutil.IP(t, "-n", b.home, "link", "del", tapA) },
		"namespace": func() { testutil.IP(t, "netns", "del", b.prefix+"vxlan") },
	} {
		b.pass(b.start())
		cut()
		b.pass(b.start())
		if got := b.master(tapA); got != bridgeA {
			t.Errorf("after a crash before %s it is in %q", name, got)
		}
		b.pings("vxlan", "10.9.0.91")
	}
}
