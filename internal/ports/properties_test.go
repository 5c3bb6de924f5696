package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	"vigia/internal/ovsdb"
	"vigia/internal/rtnl"
)

// names are what interfaces, ids and tenants may be called by somebody who means ill.
var names = []string{
	"", "a", "tap0", "one-7-1", "one-7-1@tap0", "x", "x@tap0", "x@x", "_unresolved", "\"}", "a\nb", "ümlaut", strings.Repeat("y", 128),
	strings.Repeat("z", 129), "red", "{a=\"b\"}", " ", "../x", "0",
}

func anyName(r *rand.Rand) string { return names[r.IntN(len(names))] }

// anyFacts are what sources may say of the interfaces.
func anyFacts(r *rand.Rand, devices []string) facts {
	f := facts{ovs: make(map[string]ovsPort), southbound: make(map[string]identity), libvirt: make(map[string]identity), cni: make(map[string]identity)}
	for _, device := range append(slices.Clone(devices), "vhu0", "vhu1", "x") {
		if r.IntN(2) == 0 {
			ids := make(map[string]string)
			for _, key := range []string{"iface-id", "vigia-tenant", "vigia-network", "vm-uuid", "pod-namespace", "container-id", "pod_namespace", "sandbox", "iface-id-ver"} {
				if r.IntN(3) == 0 {
					ids[key] = anyName(r)
				}
			}
			kinds := []string{"", "internal", "system", "dpdkvhostuser", "dpdkvhostuserclient", "patch"}
			f.ovs[device] = ovsPort{bridge: "br-int", userspace: r.IntN(2) == 0, kind: kinds[r.IntN(len(kinds))], externalIDs: ids}
		}
		if r.IntN(4) == 0 {
			f.libvirt[device] = identity{Port: anyName(r), Tenant: anyName(r), Workload: anyName(r), Source: "libvirt"}
		}
		if r.IntN(4) == 0 {
			f.cni[device] = identity{Port: anyName(r), Tenant: anyName(r), Network: anyName(r), Source: "cni"}
		}
		if r.IntN(4) == 0 {
			f.file = append(f.file, Entry{Device: device, Port: "id-" + device, Tenant: anyName(r), Network: anyName(r)})
		}
		f.southbound[anyName(r)] = identity{Tenant: anyName(r), Network: anyName(r), Source: "ovn"}
	}
	return f
}

// TestWhateverSourcesSayPortsAreSound makes ports of random facts, hostile ones among
// them: ids are unique and in order, labels are ids, and each port is an interface.
func TestWhateverSourcesSayPortsAreSound(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		var links []rtnl.Link
		var devices []string
		for i := range 1 + r.IntN(8) {
			name := fmt.Sprintf("tap%d", i)
			if r.IntN(4) == 0 {
				name = fmt.Sprintf("one-7-%d", i)
			}
			kinds := []string{"veth", "tun", "macvlan", "bridge", ""}
			links = append(links, rtnl.Link{Index: i + 1, Name: name, MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}, Kind: kinds[r.IntN(len(kinds))], Master: r.IntN(9), Up: true})
			devices = append(devices, name)
		}
		f := anyFacts(r, devices)
		list := resolve(links, f)
		all := append(slices.Clone(list), deviceless(links, f, list)...)
		checkPorts(t, fmt.Sprintf("seed %d", seed), links, list, all)
		if again := resolve(links, f); !slices.Equal(list, again) {
			t.Fatalf("seed %d: the same facts make %+v, then %+v", seed, list, again)
		}
		if t.Failed() {
			return
		}
	}
}

func checkPorts(t *testing.T, what string, links []rtnl.Link, list, all []Port) {
	t.Helper()
	if !slices.IsSortedFunc(list, func(a, b Port) int { return strings.Compare(a.ID, b.ID) }) {
		t.Errorf("%s: not in the order of ids: %+v", what, list)
	}
	ids, indices := make(map[string]bool), make(map[int]bool)
	for _, p := range all {
		if ids[p.ID] {
			t.Errorf("%s: two ports are %q", what, p.ID)
		}
		ids[p.ID] = true
		own := strings.TrimRight(p.ID, "@"+p.Device)
		if !ValidID(p.ID) && p.ID != p.Device && own == p.ID {
			t.Errorf("%s: %q is no id", what, p.ID)
		}
		if !ValidID(p.Tenant) || p.Network != "" && !ValidID(p.Network) || p.Workload != "" && !ValidID(p.Workload) {
			t.Errorf("%s: labels of %+v", what, p)
		}
		if p.Tenant == Unresolved && p.Source != "" && p.Source != "ovsdb" && p.Source != "ovn" && p.Source != "libvirt" && p.Source != "cni" && p.Source != "file" {
			t.Errorf("%s: a tenant from %q", what, p.Source)
		}
		if p.Index == 0 {
			continue // known to the switch alone
		}
		if indices[p.Index] || !slices.ContainsFunc(links, func(l rtnl.Link) bool { return l.Index == p.Index && l.Name == p.Device }) {
			t.Errorf("%s: %+v is no interface, or one twice", what, p)
		}
		indices[p.Index] = true
	}
}

func TestAnIDThatSomebodyGaveAwayBeforeIsNotGivenTwice(t *testing.T) {
	links := []rtnl.Link{{Index: 1, Name: "a"}, {Index: 2, Name: "c"}, {Index: 3, Name: "b"}}
	of := func(id string) ovsPort { return ovsPort{externalIDs: map[string]string{"iface-id": id}} }
	var got []string
	for _, p := range resolve(links, facts{ovs: map[string]ovsPort{"a": of("x"), "c": of("x@b"), "b": of("x")}}) {
		got = append(got, p.ID)
	}
	if want := []string{"x", "x@b", "x@b@b"}; !slices.Equal(got, want) {
		t.Errorf("ids %v, want %v", got, want)
	}
}

// TestTheDatabaseIsNotTrusted reads tables whose references and values are not what they
// should be.
func TestTheDatabaseIsNotTrusted(t *testing.T) {
	raw := func(s string) ovsdb.Row {
		return ovsdb.Row{"name": []byte(s), "ports": []byte(s), "interfaces": []byte(s), "external_ids": []byte(s), "ofport": []byte(s)}
	}
	for _, value := range []string{
		`null`, `7`, `""`, `"x"`, `[]`, `["set"]`, `["set",7]`, `["set",[7]]`, `["uuid"]`, `["uuid",7]`, `["map",[["a"]]]`, `["map",[["ct-zone-p","99999"]]]`,
		`["uuid","p"]`, `["set",[["uuid","p"],["uuid","absent"]]]`, `{`, ``,
	} {
		tables := map[string]ovsdb.Table{"Bridge": {"b": raw(value)}, "Port": {"p": raw(value)}, "Interface": {"i": raw(value)}, "Flow_Table": {"t": raw(value)}, portBinding: {"s": raw(value)}}
		for device := range fromOVS(tables) {
			if device != "" && device != "x" {
				t.Errorf("%s: a device %q", value, device)
			}
		}
		for _, b := range bridges(tables) {
			if len(b.Ports) > 1 {
				t.Errorf("%s: %+v", value, b)
			}
		}
		for id := range fromSouthbound(tables) {
			if id != "" {
				t.Errorf("%s: a logical port %q", value, id)
			}
		}
		if z := zones(tables); len(z) > 0 {
			t.Errorf("%s: zones %v", value, z)
		}
	}
}

func FuzzDomain(f *testing.F) {
	f.Add(novaDomain)
	f.Add(oneDomain)
	f.Add("<domstatus>" + oneDomain + "</domstatus>")
	f.Add("<domain><devices><interface><target dev='x'/></interface></devices>")
	f.Fuzz(func(t *testing.T, text string) {
		devices, err := parseDomain(strings.NewReader(text))
		for device, id := range devices {
			if device == "" || err != nil || id.Source != "libvirt" {
				t.Errorf("%q: %+v, %v", device, id, err)
			}
		}
	})
}

func FuzzStyles(f *testing.F) {
	f.Add("iface-id", "a_b_c", "sandbox", "1", "iface-id-ver", "u")
	f.Add("container-id", "", "pod-namespace", "x", "", "")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2, k3, v3 string) {
		o := ovsPort{externalIDs: map[string]string{k1: v1, k2: v2, k3: v3}}
		links := []rtnl.Link{{Index: 1, Name: "tap0"}, {Index: 2, Name: "tap1"}}
		list := resolve(links, facts{ovs: map[string]ovsPort{"tap0": o, "tap1": o}})
		checkPorts(t, fmt.Sprintf("%v", o.externalIDs), links, list, list)
	})
}
