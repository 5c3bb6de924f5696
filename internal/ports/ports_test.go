package ports

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vigia/internal/ovsdb"
	"vigia/internal/rtnl"
)

func tablesWith(datapath string, externalIDs map[string]string) map[string]ovsdb.Table {
	pairs := [][2]string{}
	for k, v := range externalIDs {
		pairs = append(pairs, [2]string{k, v})
	}
	ids, err := json.Marshal([]any{"map", pairs})
	if err != nil {
		panic(err)
	}
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	return map[string]ovsdb.Table{
		"Bridge":    {"b": {"name": raw(`"br-int"`), "datapath_type": raw(`"` + datapath + `"`), "ports": raw(`["uuid","p"]`)}},
		"Port":      {"p": {"interfaces": raw(`["uuid","i"]`)}},
		"Interface": {"i": {"name": raw(`"tap0"`), "external_ids": ids}},
	}
}

func TestResolve(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	plain := []rtnl.Link{{Index: 5, Name: "tap0", MAC: mac, Up: true, Kind: "veth"}}
	bridged := []rtnl.Link{{Index: 5, Name: "tap0", MAC: mac, Up: true, Kind: "veth", Master: 9}, {Index: 9, Name: "br10", Kind: "bridge"}}
	base := Port{ID: "abc", Tenant: "red", Device: "tap0", Index: 5, MAC: mac.String(), Up: true, Bridge: "br-int", Source: "ovsdb"}
	with := func(change func(*Port)) []Port {
		p := base
		change(&p)
		return []Port{p}
	}
	for _, tc := range []struct {
		name  string
		links []rtnl.Link
		ovs   map[string]ovsdb.Table
		file  []Entry
		want  []Port
	}{
		{"nothing is said", plain, nil, nil, nil},
		{
			"userspace Open vSwitch", plain, tablesWith("netdev", map[string]string{"iface-id": "abc", "vigia-tenant": "red"}), nil,
			with(func(p *Port) { p.DataPlane = OVSUserspace }),
		},
		{
			"kernel Open vSwitch, other keys", plain,
			tablesWith("system", map[string]string{"iface-id": "abc", "tenant-id": "red", "vm-uuid": "vm1", "vigia-network": "net"}), nil,
			with(func(p *Port) { p.DataPlane, p.Workload, p.Network = OVSKernel, "vm1", "net" }),
		},
		{
			"Linux bridge from the file", bridged, nil,
			[]Entry{{Device: "tap0", Port: "abc", Tenant: "red", Network: "n", Workload: "w"}},
			with(func(p *Port) {
				p.Bridge, p.DataPlane, p.Source, p.Network, p.Workload = "br10", LinuxBridge, "file", "n", "w"
			}),
		},
		{
			"no switch at all", plain, nil,
			[]Entry{{Device: "tap0", Port: "abc", Tenant: "red"}},
			with(func(p *Port) { p.Bridge, p.DataPlane, p.Source = "", NoSwitch, "file" }),
		},
		{
			"Open vSwitch without a tenant", plain, tablesWith("", map[string]string{"iface-id": "abc"}), nil,
			with(func(p *Port) { p.Tenant, p.Source, p.DataPlane = Unresolved, "", OVSKernel }),
		},
		{
			"the file completes Open vSwitch", plain, tablesWith("", map[string]string{"iface-id": "abc"}),
			[]Entry{{Device: "tap0", Port: "other", Tenant: "blue"}},
			with(func(p *Port) { p.Tenant, p.DataPlane, p.Source = "blue", OVSKernel, "file" }),
		},
		{
			"Open vSwitch goes before the file", plain, tablesWith("", map[string]string{"iface-id": "abc", "vigia-tenant": "red"}),
			[]Entry{{Device: "tap0", Port: "other", Tenant: "blue"}},
			with(func(p *Port) { p.DataPlane = OVSKernel }),
		},
		{"a port of the switch's own", plain, tablesWith("", map[string]string{"something": "else"}), nil, nil},
		{"an interface that does not exist", nil, tablesWith("", map[string]string{"iface-id": "abc", "vigia-tenant": "red"}), []Entry{{Device: "tap9", Port: "x", Tenant: "y"}}, nil},
		{
			"hostile external_ids", plain, tablesWith("", map[string]string{"iface-id": "a\nb", "vigia-tenant": "<script>", "vigia-workload": strings.Repeat("x", 500)}), nil,
			with(func(p *Port) { p.ID, p.Tenant, p.Source, p.DataPlane = "tap0", Unresolved, "", OVSKernel }),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := resolve(tc.links, facts{ovs: fromOVS(tc.ovs), file: tc.file})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestResolveKeepsIDsApart(t *testing.T) {
	links := []rtnl.Link{{Index: 2, Name: "b"}, {Index: 1, Name: "a"}}
	got := resolve(links, facts{ovs: map[string]ovsPort{
		"a": {externalIDs: map[string]string{"iface-id": "same"}}, "b": {externalIDs: map[string]string{"iface-id": "same"}},
	}})
	if len(got) != 2 || got[0].ID == got[1].ID || got[0].ID > got[1].ID {
		t.Errorf("got %+v", got)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFileIsCheckedStrictly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ports.yaml")
	entry := func(s string) string { return "version: 1\nports:\n  - " + s + "\n" }
	for _, tc := range []struct{ name, content, want string }{
		{"unknown key", entry("{device: a, port: b, tenant: c, tenat: d}"), `:3: unknown key "tenat"; known here: device, network, port, tenant, workload`},
		{"no version", "ports: []\n", `version: "0": is not a known version; write version: 1`},
		{"no device", entry("{port: b, tenant: c}"), ":3: ports[0].device"},
		{"long device", entry("{device: abcdefghijklmnop, port: b, tenant: c}"), "is not an interface name"},
		{"no port", entry("{device: a, tenant: c}"), "ports[0].port"},
		{"bad tenant", entry("{device: a, port: b, tenant: \"x y\"}"), `ports[0].tenant: "x y": is not an id`},
		{"device twice", entry("{device: a, port: b, tenant: c}\n  - {device: a, port: d, tenant: c}"), ":4: ports[1].device: \"a\": is listed twice"},
		{"port twice", entry("{device: a, port: b, tenant: c}\n  - {device: d, port: b, tenant: c}"), ":4: ports[1].port: \"b\": is used twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			write(t, path, tc.content)
			_, err := CheckFile(path)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	write(t, path, entry("{device: a, port: b, tenant: c, network: n, workload: w}"))
	if n, err := CheckFile(path); n != 1 || err != nil {
		t.Errorf("good file: %d, %v", n, err)
	}
}

func TestSourcesAreChecked(t *testing.T) {
	good := filepath.Join(t.TempDir(), "ports.yaml")
	write(t, good, "version: 1\nports: []\n")
	for _, tc := range []struct {
		s    Sources
		want string
	}{
		{Sources{}, "ports_file: is missing and so are ovsdb, libvirt_dir and cni_results_dir"},
		{Sources{OVSDB: "tcp:1.2.3.4:6640"}, `ovsdb: "tcp:1.2.3.4:6640": is not a unix socket`},
		{Sources{File: "/nonexistent"}, "no such file"},
		{Sources{File: good, OVSDB: "unix:/x"}, ""},
	} {
		err := tc.s.Validate()
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: got %v, want %q", tc.s, err, tc.want)
		}
	}
}

func TestPortsThatOnlyTheSwitchKnows(t *testing.T) {
	ids := map[string]string{"iface-id": "a", "vigia-tenant": "red"}
	f := facts{ovs: map[string]ovsPort{
		"vhu0":  {bridge: "br-int", userspace: true, kind: "dpdkvhostuserclient", externalIDs: ids},
		"vhu1":  {bridge: "br-int", userspace: true, kind: "dpdkvhostuser", externalIDs: map[string]string{"iface-id": "taken", "vigia-tenant": "red"}},
		"vhu2":  {bridge: "br-int", userspace: true, kind: "dpdkvhostuser"},
		"tap9":  {bridge: "br-int", userspace: true, externalIDs: ids},
		"vhu10": {bridge: "br-int", kind: "dpdkvhostuser", externalIDs: ids},
	}}
	got := deviceless([]rtnl.Link{{Index: 3, Name: "tap0"}}, f, []Port{{ID: "taken"}})
	slices.SortFunc(got, func(a, b Port) int { return strings.Compare(a.ID, b.ID) })
	port := Port{Tenant: "red", Up: true, Bridge: "br-int", DataPlane: OVSUserspace, Source: "ovsdb"}
	a, b := port, port
	a.ID, a.Device, b.ID, b.Device = "a", "vhu0", "taken@vhu1", "vhu1"
	if diff := cmp.Diff([]Port{a, b}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
