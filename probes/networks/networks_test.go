package networks

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vigia/internal/rtnl"
	"vigia/internal/testutil"
	"vigia/probes/stamp"
)

// world is a kernel as a test wants it.
type world struct {
	links     []rtnl.Link
	addresses []rtnl.Address
	err       error
	routes    map[string]string // device by destination
}

func (w *world) Links() ([]rtnl.Link, error)        { return w.links, w.err }
func (w *world) Addresses() ([]rtnl.Address, error) { return w.addresses, nil }
func (w *world) Egress(f rtnl.Flow) (string, error) {
	device, ok := w.routes[f.To.String()]
	if !ok {
		return "", errors.New("no route")
	}
	return device, nil
}

// link adds an interface with addresses.
func (w *world) link(name, kind string, addresses ...string) *world {
	index := len(w.links) + 1
	w.links = append(w.links, rtnl.Link{Index: index, Name: name, Kind: kind, Up: true})
	for _, a := range addresses {
		w.addresses = append(w.addresses, rtnl.Address{Index: index, Prefix: netip.MustParsePrefix(a), Usable: true})
	}
	return w
}

func pod() *world {
	return (&world{}).link("lo", "", "127.0.0.1/8", "10.1.1.1/32").link("eth0", "veth", "10.244.1.7/24", "10.244.1.8/24", "fe80::1/64")
}

var known = netip.MustParseAddr("10.244.1.7")

func words(all []Network) string {
	out := make([]string, 0, len(all))
	for _, n := range all {
		out = append(out, fmt.Sprintf("%s %s %s", n.Name, n.Kind, n.Address))
	}
	return strings.Join(out, ", ")
}

// TestFurtherInterfaces are those that the node is not known by, with an address that others can reach, and are named
// by what they are.
func TestFurtherInterfaces(t *testing.T) {
	sysfs := t.TempDir()
	for _, name := range []string{"vf", "nic"} {
		if err := os.MkdirAll(filepath.Join(sysfs, name, "device"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// In a pod's namespace the physical function's name is out of sight: the link leads to nothing.
	if err := os.Symlink("../0000:01:00.0", filepath.Join(sysfs, "vf", "device", "physfn")); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		world *world
		want  string
	}{
		"one network":         {pod(), ""},
		"macvlan":             {pod().link("net1", "macvlan", "10.88.1.10/16"), "net1 macvlan 10.88.1.10"},
		"in order of names":   {pod().link("net2", "vlan", "10.89.1.10/16").link("net1", "ipvlan", "10.88.1.10/16"), "net1 ipvlan 10.88.1.10, net2 vlan 10.89.1.10"},
		"virtual function":    {pod().link("vf", "", "10.88.1.10/16"), "vf sriov 10.88.1.10"},
		"other hardware":      {pod().link("nic", "", "10.88.1.10/16").link("absent", "", "10.89.1.10/16"), "absent device 10.89.1.10, nic device 10.88.1.10"},
		"a kind goes before":  {pod().link("vf", "macvlan", "10.88.1.10/16"), "vf macvlan 10.88.1.10"},
		"its family first":    {pod().link("net1", "veth", "fd00::10/64", "10.88.1.10/16", "10.88.1.11/16"), "net1 veth 10.88.1.10"},
		"else the other":      {pod().link("net1", "veth", "fe80::1/64", "fd00::10/64", "fd00::11/64"), "net1 veth fd00::10"},
		"no address of use":   {pod().link("net1", "veth").link("net2", "veth", "fe80::1/64", "169.254.1.1/16"), ""},
		"a name of no use":    {pod().link(`net"`, "veth", "10.88.1.10/16"), ""},
		"nobody knows us yet": {(&world{}).link("net1", "veth", "10.88.1.10/16"), ""},
	} {
		all, more, err := own(tc.world, sysfs, known)
		if got := words(all); got != tc.want || more > 0 || err != nil {
			t.Errorf("%s: %q, %d more, %v; want %q", name, got, more, err, tc.want)
		}
	}
	w := pod().link("net1", "veth", "fd00::10/64")
	w.addresses[len(w.addresses)-1].Usable = false
	if all, _, _ := own(w, sysfs, known); len(all) != 0 {
		t.Errorf("an address that cannot be bound to: %s", words(all))
	}
	w = pod().link("net1", "veth", "10.88.1.10/16")
	w.links[2].Up = false
	if all, _, _ := own(w, sysfs, known); words(all) != "net1 veth 10.88.1.10" {
		t.Errorf("an interface that is down: %s", words(all))
	}
	w.err = errors.New("the kernel is silent")
	if _, _, err := own(w, sysfs, known); !errors.Is(err, w.err) {
		t.Errorf("%v", err)
	}
}

func TestTooManyInterfaces(t *testing.T) {
	w := pod()
	for i := range stamp.MaxNetworks + 2 {
		w.link(fmt.Sprintf("net%02d", i), "macvlan", fmt.Sprintf("10.%d.0.1/16", 100+i))
	}
	slices.Reverse(w.links)
	all, more, err := own(w, t.TempDir(), known)
	if len(all) != stamp.MaxNetworks || more != 2 || err != nil || all[0].Name != "net00" || all[7].Name != "net07" {
		t.Errorf("%s, %d more, %v", words(all), more, err)
	}
	if told := Told(all); len(told) != stamp.MaxNetworks || told[1] != (stamp.Network{Name: "net01", Address: netip.MustParseAddr("10.101.0.1")}) {
		t.Errorf("%v", told)
	}
}

// TestInTheKernel looks at real interfaces.
func TestInTheKernel(t *testing.T) {
	ns, other := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, ns, "eth0", other, "eth0")
	testutil.NewVethPair(t, ns, "net3", other, "net3")
	for _, line := range []string{
		"addr add 10.244.1.7/24 dev eth0", "addr add 10.90.0.1/24 dev net3",
		"link add link eth0 name net1 type macvlan mode bridge", "addr add 10.88.1.10/16 dev net1", "link set net1 up",
	} {
		testutil.IP(t, append([]string{"-n", ns}, strings.Fields(line)...)...)
	}
	c, err := rtnl.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, _, err := own(c, t.TempDir(), known)
	if want := "net1 macvlan 10.88.1.10, net3 veth 10.90.0.1"; err != nil || words(all) != want {
		t.Errorf("%s, %v, want %s", words(all), err, want)
	}
}
