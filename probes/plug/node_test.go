package plug

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigia/internal/config"
	"vigia/internal/daemon"
	"vigia/internal/netns"
	"vigia/internal/testutil"
)

const (
	portA = "0a4f2c11-5a0e-4a5f-8c0d-0f1e2d3c4b5a"
	portB = "0b4f2c11-5a0e-4a5f-8c0d-0f1e2d3c4b5b"
	portC = "0c4f2c11-5a0e-4a5f-8c0d-0f1e2d3c4b5c"
	tapA  = "tap0a4f2c11-5a"
	tapB  = "tap0b4f2c11-5a"
)

// unhurried is how long ovs-vswitchd may take on a busy machine.
const unhurried = 2 * time.Minute

var counted atomic.Int64

// bench is a node with a switch, and the command's files.
type bench struct {
	*testing.T
	home, prefix, file, state string
	vs                        *testutil.VSwitch
}

// newBench makes a node; without a bridge it has Open vSwitch and no bridge br-int.
func newBench(t *testing.T, bridge bool) *bench {
	t.Helper()
	b := &bench{T: t, home: testutil.NewNetNS(t), prefix: fmt.Sprintf("vigia-test-plug%d-%d-", os.Getpid(), counted.Add(1))}
	b.vs = testutil.NewVSwitch(t, b.home)
	b.file, b.state = filepath.Join(t.TempDir(), "HOST.yaml"), filepath.Join(t.TempDir(), "state.json")
	if bridge {
		b.vs.Set("add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev")
	}
	t.Cleanup(func() { // also of a test that failed
		for _, network := range []string{"vxlan", "gre"} {
			_ = netns.Delete(b.prefix + network)
		}
	})
	return b
}

// start returns the command's node, as a new process has it.
func (b *bench) start() *node {
	b.Helper()
	n := &node{
		logger: slog.New(slog.DiscardHandler), prefix: b.prefix, path: b.state, home: b.home, pulse: &daemon.Pulse{},
		file: config.NewFile[content](b.file, "write it"), vs: &vswitch{remote: "unix:" + b.vs.Socket, owner: b.prefix, settle: unhurried},
	}
	if err := n.open(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { n.links.Close() })
	return n
}

func endpoint(network, port string, number int, more string) string {
	return fmt.Sprintf("  - {network: %s, port: %s, mac: \"fa:16:3e:00:00:%02x\", mtu: 1442, addresses: [10.9.0.%d/24, \"fd00:9::%d/64\"], %s}\n", network, port, number, number, number, more)
}

const ovs = "switch: openvswitch, bridge: br-int"

var both = endpoint("vxlan", portA, 1, ovs) + endpoint("gre", portB, 2, ovs)

func (b *bench) write(endpoints string) {
	b.Helper()
	text := "version: 1\nendpoints:\n" + endpoints
	if endpoints == "" {
		text = "version: 1\nendpoints: []\n"
	}
	if err := os.WriteFile(b.file+".new", []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.Rename(b.file+".new", b.file); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) pass(n *node) {
	b.Helper()
	if err := n.pass(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// fails has a pass fail and say all of what it should.
func (b *bench) fails(n *node, want ...string) {
	b.Helper()
	err := n.pass(context.Background())
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			b.Errorf("%v does not say %q", err, w)
		}
	}
}

// there returns what of an endpoint is there: its namespace, its device, its interface of Open vSwitch.
func (b *bench) there(network, device string) string {
	b.Helper()
	var found []string
	if _, err := os.Stat(filepath.Join(netns.Dir, b.prefix+network)); err == nil {
		found = append(found, "netns")
	}
	if strings.Contains(testutil.IP(b, "-n", b.home, "-o", "link"), device) {
		found = append(found, "device")
	}
	if strings.Contains(b.vs.VSCtl("--columns=name", "list", "Interface"), device) {
		found = append(found, "interface")
	}
	return strings.Join(found, " ")
}

const all = "netns device interface"

func (b *bench) expect(network, device, want string) {
	b.Helper()
	if got := b.there(network, device); got != want {
		b.Errorf("of %s there is %q, want %q", network, got, want)
	}
}

func (b *bench) pings(from, to string) {
	b.Helper()
	testutil.WaitFor(b.T, "an answer of "+to, func() bool {
		return exec.Command("ip", "netns", "exec", b.prefix+from, "ping", "-c", "1", "-W", "1", to).Run() == nil
	})
}

func TestEndpointsArePluggedAndCarryPackets(t *testing.T) {
	b := newBench(t, true)
	b.write(both)
	n := b.start()
	for range 2 { // the second time nothing is left to be done
		b.pass(n)
		b.expect("vxlan", tapA, all)
		b.expect("gre", tapB, all)
		b.pings("vxlan", "10.9.0.2")
		b.pings("gre", "fd00:9::1")
	}
	said := testutil.IP(t, "-n", b.prefix+"vxlan", "addr", "show", "dev", "eth0")
	for _, want := range []string{"fa:16:3e:00:00:01", "mtu 1442", "10.9.0.1/24", "fd00:9::1/64", "UP"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in %s", want, said)
		}
	}
	ids := b.vs.VSCtl("get", "Interface", tapA, "external_ids")
	for _, want := range []string{`iface-id="` + portA, "iface-status=active", `attached-mac="fa:16:3e:00:00:01`, "vigia-tenant=_infra"} {
		if !strings.Contains(ids, want) {
			t.Errorf("%q is not in %s", want, ids)
		}
	}
	if offload := testutil.Run(t, "ip", "netns", "exec", b.prefix+"gre", "ethtool", "-k", "eth0"); !strings.Contains(offload, "tx-checksum-ip-generic: off") {
		t.Error("checksums are left to a device that is none")
	}
}

func TestWhatIsWantedNoMoreGoesAndTheRestStays(t *testing.T) {
	b := newBench(t, true)
	testutil.IP(t, "-n", b.home, "tuntap", "add", "dev", "tap99999999-99", "mode", "tap")
	b.vs.Set("add-port", "br-int", "tap99999999-99", "--", "set", "Interface", "tap99999999-99", "external_ids:iface-id=a-tenants")
	b.write(both)
	n := b.start()
	b.pass(n)
	before := testutil.IP(t, "-n", b.home, "-o", "link", "show", "dev", tapA)
	b.write(endpoint("vxlan", portA, 1, ovs))
	b.pass(n)
	b.expect("gre", tapB, "")
	b.expect("vxlan", tapA, all)
	if after := testutil.IP(t, "-n", b.home, "-o", "link", "show", "dev", tapA); strings.Fields(after)[0] != strings.Fields(before)[0] {
		t.Errorf("%s has been made anew", after)
	}
	b.write(endpoint("vxlan", portB, 3, ovs)) // another port of the network
	b.pass(n)
	b.expect("vxlan", tapB, all)
	b.expect("gre", tapA, "")
	if said := testutil.IP(t, "-n", b.prefix+"vxlan", "addr"); !strings.Contains(said, "10.9.0.3/24") || strings.Contains(said, "10.9.0.1/") {
		t.Error(said)
	}
	if err := n.removeAll(context.Background()); err != nil {
		t.Fatal(err)
	}
	b.expect("vxlan", tapB, "")
	if ports := b.vs.VSCtl("list-ports", "br-int"); ports != "tap99999999-99" {
		t.Errorf("of somebody else's ports there are %q", ports)
	}
}

// TestWhatACrashLeavesIsFinishedOrRemoved takes every part away that a process that was killed may not have come to.
func TestWhatACrashLeavesIsFinishedOrRemoved(t *testing.T) {
	b := newBench(t, true)
	cuts := map[string]func(){
		"all":         func() {},
		"interface":   func() { b.vs.VSCtl("del-port", "br-int", tapA) },
		"addresses":   func() { testutil.IP(t, "-n", b.prefix+"vxlan", "addr", "flush", "dev", "eth0") },
		"device":      func() { testutil.IP(t, "-n", b.home, "link", "del", tapA) },
		"namespace":   func() { testutil.IP(t, "netns", "del", b.prefix+"vxlan") },
		"device down": func() { testutil.IP(t, "-n", b.home, "link", "set", tapA, "down") },
	}
	for name, cut := range cuts {
		for _, wanted := range []bool{true, false} {
			b.write(both)
			b.pass(b.start())
			cut()
			if !wanted {
				b.write(endpoint("gre", portB, 2, ovs))
			}
			b.pass(b.start())
			want := map[bool]string{true: all}[wanted]
			if got := b.there("vxlan", tapA); got != want {
				t.Errorf("after a crash before %s, wanted %v: %q, want %q", name, wanted, got, want)
			}
			if wanted {
				b.pings("vxlan", "10.9.0.2")
			}
		}
	}
}

func TestAStartOfTheMachineLeavesNoInterfaceBehind(t *testing.T) {
	b := newBench(t, true)
	b.write(both)
	b.pass(b.start())
	for _, network := range []string{"vxlan", "gre"} {
		testutil.IP(t, "netns", "del", b.prefix+network)
	}
	testutil.WaitFor(t, "devices to go with their namespaces", func() bool {
		return b.there("vxlan", tapA) == "interface" && b.there("gre", tapB) == "interface"
	})
	if err := os.Remove(b.state); err != nil {
		t.Fatal(err)
	}
	b.write(endpoint("vxlan", portA, 1, ovs))
	b.pass(b.start())
	b.expect("vxlan", tapA, all)
	b.expect("gre", tapB, "")
}

func TestWhatSomebodyElseMadeIsNotTouched(t *testing.T) {
	b := newBench(t, true)
	b.write(both)
	testutil.IP(t, "netns", "add", b.prefix+"vxlan")
	testutil.IP(t, "-n", b.home, "tuntap", "add", "dev", tapB, "mode", "tap")
	n := b.start()
	b.fails(n, "network vxlan", "ip netns del "+b.prefix+"vxlan", "network gre", "ip link del "+tapB)
	if err := n.removeAll(context.Background()); err != nil {
		t.Error(err)
	}
	b.expect("vxlan", tapA, "netns")
	b.expect("gre", tapB, "device")
	testutil.IP(t, "netns", "del", b.prefix+"vxlan")
	testutil.IP(t, "-n", b.home, "link", "del", tapB)
	b.pass(n)
	b.expect("gre", tapB, all)
}

func TestASwitchThatIsNotReadyLeavesNothingHalfMade(t *testing.T) {
	b := newBench(t, false)
	b.write(both)
	n := b.start()
	b.fails(n, "no bridge br-int", "ovn-controller")
	b.expect("vxlan", tapA, "")
	b.vs.Set("add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev")
	b.pass(n)
	b.expect("vxlan", tapA, all)
	b.pings("vxlan", "10.9.0.2")
	before := testutil.IP(t, "-n", b.home, "-o", "link", "show", "dev", tapA)
	b.vs.Stop() // the database goes away: what is plugged stays as it is
	b.fails(n, "connect to ovsdb-server")
	fresh := b.start()
	b.fails(fresh, "--ovsdb")
	b.vs.Start()
	b.pass(fresh)
	b.expect("vxlan", tapA, all)
	if after := testutil.IP(t, "-n", b.home, "-o", "link", "show", "dev", tapA); strings.Fields(after)[0] != strings.Fields(before)[0] {
		t.Errorf("%s has been made anew", after)
	}
	b.pings("vxlan", "10.9.0.2")
}

// TestASwitchThatDoesNothingIsNamed: what is withdrawn goes all the same, and ovs-vswitchd finds it so later.
func TestASwitchThatDoesNothingIsNamed(t *testing.T) {
	b := newBench(t, true)
	b.write(both)
	n := b.start()
	b.pass(n)
	b.pings("vxlan", "10.9.0.2")
	b.vs.StopSwitch()
	n.vs.settle = 200 * time.Millisecond
	b.write(endpoint("vxlan", portA, 1, ovs))
	b.fails(n, "network gre", "ovs-vswitchd has not done", "start it")
	b.expect("gre", tapB, "")
	if _, noted := n.begun["gre"]; !noted {
		t.Error("it is forgotten before it is known to be gone")
	}
	b.vs.StartSwitch()
	n.vs.settle = unhurried
	b.pass(n)
	if len(n.begun) != 1 {
		t.Errorf("%+v is noted", n.begun)
	}
	b.write(both)
	b.pass(n)
	b.pings("vxlan", "10.9.0.2")
}

func TestAFileThatIsBadOrGoneChangesNothing(t *testing.T) {
	b := newBench(t, true)
	n := b.start()
	b.fails(n, "does not exist", "write it")
	b.write(both)
	b.pass(n)
	b.write("  - {network: vxlan}\n")
	b.fails(n, "endpoints[0].port")
	b.expect("vxlan", tapA, all)
	if err := os.Remove(b.file); err != nil {
		t.Fatal(err)
	}
	b.fails(n, "does not exist")
	b.expect("gre", tapB, all)
	b.fails(b.start(), "does not exist") // a new process knows what was begun, and not what is wanted
	b.expect("gre", tapB, all)
}

func TestAStateThatIsNotOursIsRefused(t *testing.T) {
	testutil.RequireRoot(t)
	for text, want := range map[string]string{
		`{"endpoints": {"vxlan": {"network": "../../x", "port": "` + portA + `"}}}`: "not what this command wrote",
		`{"endpoints": {"vxlan": {"network": "vxlan", "port": "short"}}}`:           "not what this command wrote",
		`{`:                             "remove the file",
		strings.Repeat(" ", maxState+1): "more than",
	} {
		path := filepath.Join(t.TempDir(), "state.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n := &node{path: path}
		if err := n.open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

func TestAStateThatCannotBeWrittenBeginsNothing(t *testing.T) {
	b := newBench(t, true)
	b.state = filepath.Join(b.state, "no-folder", "state.json")
	b.write(both)
	b.fails(b.start(), "note what is plugged")
	b.expect("vxlan", tapA, "")
}

// output is written by the command and read by the test.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestCommand runs the command as people do.
func TestCommand(t *testing.T) {
	b := newBench(t, false)
	o := options{file: b.file, remote: "unix:" + b.vs.Socket, prefix: b.prefix, state: filepath.Join(t.TempDir(), "run", "state.json"), every: minEvery}
	b.write("")
	once := o
	once.once = true
	var stderr output
	if err := once.run(context.Background(), &stderr); err != nil {
		t.Fatal(err)
	}
	b.write(endpoint("vxlan", portA, 1, ovs))
	if err := once.run(context.Background(), &stderr); err == nil || !strings.Contains(err.Error(), "no bridge br-int") {
		t.Errorf("once: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.run(ctx, &stderr) }()
	testutil.WaitFor(t, "a word of what is wrong", func() bool { return strings.Contains(stderr.String(), "no bridge br-int") })
	if err := once.run(context.Background(), &stderr); err == nil || !strings.Contains(err.Error(), "another vigia-probe plug") {
		t.Errorf("a second of them: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := strings.Count(stderr.String(), "not all endpoints are plugged"); n != 1 {
		t.Errorf("told %d times: %s", n, stderr.String())
	}
	remove := o
	remove.file, remove.remove = "", true
	if err := remove.run(context.Background(), &stderr); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(netns.Dir, b.prefix+"vxlan")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
