package pathkind

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigia/internal/netns"
	"vigia/internal/rtnl"
	"vigia/internal/testutil"
	"vigia/probes/settings"
)

const nodes = `[{"targets": ["10.244.1.5:8620"], "labels": {"node": "a"}},
 {"targets": ["10.244.2.5:8620"], "labels": {"node": "b"}}]`

// written writes what discovery reads.
func written(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pods.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// world is a network as a test wants it, and a clock.
type world struct {
	links  []rtnl.Link
	routes map[string]string
	err    error
	opened int
	time   time.Time
}

func (w *world) Links() ([]rtnl.Link, error) { return w.links, w.err }
func (w *world) Egress(f rtnl.Flow) (string, error) {
	if device, ok := w.routes[f.To.String()]; ok {
		return device, nil
	}
	return "", errors.New("no route")
}

func (w *world) finder(said *strings.Builder) *Finder {
	logger := slog.New(slog.NewTextHandler(said, nil))
	return newFinder(logger, func() time.Time { return w.time }, func() (Network, func() error, error) {
		w.opened++
		return w, func() error { return nil }, nil
	})
}

func auto(file string) settings.Path {
	return settings.Path{Name: "pods", Dataplane: settings.Auto, Encap: settings.Auto, Mode: "normal", Security: "none", Layer: "overlay", Placement: "remote", FoundBy: []string{file}}
}

// TestNetworksOfPods are named by what leads to pods here and on other nodes.
func TestNetworksOfPods(t *testing.T) {
	file := written(t, nodes)
	link := func(name, kind string) rtnl.Link { return rtnl.Link{Name: name, Kind: kind, Up: true} }
	for name, tc := range map[string]struct {
		links            []rtnl.Link
		own, other       string
		dataplane, encap string
	}{
		"bridge and routes":       {[]rtnl.Link{link("cni0", "bridge"), link("eth0", "")}, "cni0", "eth0", "linuxbridge", "none"},
		"bridge and VXLAN":        {[]rtnl.Link{link("cni0", "bridge"), link("flannel.1", "vxlan")}, "cni0", "flannel.1", "linuxbridge", "vxlan"},
		"routes and IP in IP":     {[]rtnl.Link{link("cali123", "veth"), link("tunl0", "ipip")}, "cali123", "tunl0", "routed", "ipip"},
		"routes and WireGuard":    {[]rtnl.Link{link("veth1", "veth"), link("kilo0", "wireguard")}, "veth1", "kilo0", "routed", "wireguard"},
		"Open vSwitch, Geneve":    {[]rtnl.Link{link("ovn-k8s-mp0", "openvswitch"), link("genev_sys_6081", "geneve")}, "ovn-k8s-mp0", "ovn-k8s-mp0", "ovs", "geneve"},
		"Open vSwitch, no tunnel": {[]rtnl.Link{link("antrea-gw0", "openvswitch"), {Name: "genev_sys_6081", Kind: "geneve"}}, "antrea-gw0", "antrea-gw0", "ovs", "none"},
		"Cilium, VXLAN":           {[]rtnl.Link{link("lxc1", "veth"), link("cilium_host", "veth"), link("cilium_vxlan", "vxlan")}, "lxc1", "cilium_host", "ebpf", "vxlan"},
		"Cilium, native routing":  {[]rtnl.Link{link("cilium_host", "veth"), link("eth0", "")}, "cilium_host", "eth0", "ebpf", "none"},
	} {
		w := &world{links: tc.links, routes: map[string]string{"10.244.1.5": tc.own, "10.244.2.5": tc.other}}
		var said strings.Builder
		got := w.finder(&said).Fill("a", []settings.Path{auto(file)})
		if len(got) != 1 || got[0].Dataplane != tc.dataplane || got[0].Encap != tc.encap || said.Len() > 0 {
			t.Errorf("%s: %+v %s", name, got, said.String())
		}
	}
}

// TestWhatIsFoundStays for a minute, and for as long as nothing else is found.
func TestWhatIsFoundStays(t *testing.T) {
	w := &world{
		links:  []rtnl.Link{{Name: "cni0", Kind: "bridge"}, {Name: "eth0"}, {Name: "vx", Kind: "vxlan"}},
		routes: map[string]string{"10.244.1.5": "cni0"}, time: time.Unix(1000, 0),
	}
	file := written(t, nodes)
	var said strings.Builder
	f := w.finder(&said)
	paths := []settings.Path{auto(file), {Name: "host", Dataplane: "none", Encap: "none"}}
	encap := func() string {
		got := f.Fill("a", paths)
		if last := got[len(got)-1]; last.Name != "host" {
			t.Errorf("%+v", got)
		}
		if len(got) == 1 {
			return ""
		}
		return got[0].Encap
	}
	if e := encap(); e != "" || w.opened != 1 {
		t.Errorf("without a route to others: %q", e)
	}
	w.routes["10.244.2.5"] = "eth0"
	for range 3 { // it looks once more, and then knows
		if e := encap(); e != "none" || w.opened != 2 {
			t.Errorf("%q after %d looks", e, w.opened)
		}
	}
	w.routes["10.244.2.5"] = "vx"
	w.time = w.time.Add(again)
	if e := encap(); e != "vxlan" {
		t.Errorf("a minute later: %q", e)
	}
	w.time, w.err = w.time.Add(again), errors.New("the kernel is silent")
	for range 3 {
		if e := encap(); e != "vxlan" {
			t.Errorf("while nobody answers: %q", e)
		}
	}
	if n := strings.Count(said.String(), "cannot find out what a path is made of"); n != 1 {
		t.Errorf("it is said %d times: %s", n, said.String())
	}
}

// TestUnknownPathsAreLeftOut: another program says what they are, or nobody knows.
func TestUnknownPathsAreLeftOut(t *testing.T) {
	w := &world{}
	var said strings.Builder
	f := w.finder(&said)
	p := auto("")
	p.FoundBy = nil
	if got := f.Fill("a", []settings.Path{p}); len(got) != 0 || w.opened != 0 {
		t.Errorf("%+v", got)
	}
	for text, want := range map[string]string{"": "no such file", "nonsense": "is not a list of groups"} {
		said.Reset()
		file := filepath.Join(t.TempDir(), "absent.json")
		if text != "" {
			file = written(t, text)
		}
		if got := f.Fill("a", []settings.Path{auto(file)}); len(got) != 0 || !strings.Contains(said.String(), want) {
			t.Errorf("%q: %+v %s", text, got, said.String())
		}
	}
}

// TestInTheKernel looks at a namespace with a bridge and a VXLAN device.
func TestInTheKernel(t *testing.T) {
	ns := testutil.NewNetNS(t)
	for _, line := range []string{
		"link set lo up", "link add cni0 type bridge", "addr add 10.244.1.1/24 dev cni0", "link set cni0 up",
		"link add vx type vxlan id 7 dstport 8472 local 127.0.0.1", "link set vx up", "route add 10.244.2.0/24 dev vx",
	} {
		testutil.IP(t, append([]string{"-n", ns}, strings.Fields(line)...)...)
	}
	f := newFinder(slog.New(slog.DiscardHandler), time.Now, func() (Network, func() error, error) {
		c, err := rtnl.Dial(ns)
		if err != nil {
			return nil, nil, err
		}
		return c, c.Close, nil
	})
	file := written(t, nodes)
	if got := f.Fill("a", []settings.Path{auto(file)}); len(got) != 1 || got[0].Dataplane != "linuxbridge" || got[0].Encap != "vxlan" {
		t.Errorf("%+v", got)
	}
	err := netns.Do(ns, func() error {
		if got := New(slog.New(slog.DiscardHandler)).Fill("a", []settings.Path{auto(file)}); len(got) != 1 || got[0].Encap != "vxlan" {
			t.Errorf("from inside: %+v", got)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
