package settings

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"vigia/probes/bulk"
	"vigia/probes/objective"
	"vigia/probes/timestamping"
)

const goodBulk = good + `bulk:
  listeners: [{netns: x, address: "10.99.1.1:9876", link: storage}]
  allow: [10.99.1.0/24]
  hourly_bytes: 5000000
  slot: 20s
  nodes: [lb1, lb2]
  classes:
    - {name: tcp, protocol: tcp, duration: 5s, dscp: 8, priority: 5, mark: 42}
    - {name: udp, protocol: udp, duration: 1s, rates: [100Mbit, 150Mbit, 200Mbit]}
  targets:
    - {dst: lb2, path: direct, tenant: _infra, probe: tcp, netns: x, source: 10.99.1.1, device: eth1, address: "10.99.1.2:9876"}
    - {dst: lb2, path: direct, tenant: _infra, probe: udp, address: "10.99.1.2:9876"}
objectives:
  - {tenant: red, ratio: 0.999, rtt: 5ms}
`

func TestBulk(t *testing.T) {
	s, err := Parse("f.yaml", []byte(goodBulk))
	if err != nil {
		t.Fatal(err)
	}
	if l := s.BulkServer.Listeners; len(l) != 1 || l[0].Link != "storage" || l[0].Address.Port() != 9876 || len(s.BulkServer.Allow) != 1 {
		t.Errorf("%+v", s.BulkServer)
	}
	p := s.Bulk
	if p.Node != "lb1" || p.Budget != 5_000_000 || p.Slots.Length != 20*time.Second || len(p.Slots.Nodes) != 2 || len(p.Groups) != 2 {
		t.Fatalf("%+v", p)
	}
	tcp, udp := p.Groups[0][0], p.Groups[1]
	if tcp.Protocol != bulk.TCP || tcp.MaxBytes != defaultMaxBytes || tcp.RateName != "unlimited" || tcp.Source != netip.MustParseAddr("10.99.1.1") || tcp.Channel != (timestamping.Channel{TOS: 32, Priority: 5, Mark: 42, Device: "eth1"}) || tcp.Link != "uplink" {
		t.Errorf("%+v", tcp)
	}
	if len(udp) != 3 || udp[1].RateName != "150Mbit" || udp[1].Rate != 18_750_000 || udp[1].Size != 1400 || udp[1].Source.IsValid() || udp[1].Channel.TOS != 1<<2 {
		t.Errorf("%+v", udp)
	}
	effort, err := Parse("f.yaml", []byte(strings.Replace(goodBulk, "dscp: 8", "dscp: 0", 1)))
	if err != nil || effort.Bulk.Groups[0][0].Channel.TOS != 0 {
		t.Errorf("best effort: %v, %+v", err, effort)
	}
	if len(s.Objectives) != 1 || s.Objectives[0] != (objective.Objective{Tenant: "red", Ratio: 0.999, RTT: 5 * time.Millisecond}) {
		t.Errorf("%+v", s.Objectives)
	}
	if s, err = Parse("f.yaml", []byte("node: a\nbulk: {listeners: [{address: \"10.0.0.1:9876\"}]}\n")); err != nil || s.Bulk.Budget != defaultHourlyBytes {
		t.Errorf("%v: %+v", err, s)
	}
}

// A test for each number of machines, those of few first; each has as many pairs as it needs.
func TestBulkMachines(t *testing.T) {
	more := strings.Replace(goodBulk, `probe: udp, address: "10.99.1.2:9876"}`, `probe: udp, address: "10.99.1.2:9876", machines: [2, 4, 8],
       pairs: [{address: "10.99.1.3:9876"}, {netns: y, source: 10.99.1.9, address: "10.99.1.4:9876"}, {address: "10.99.1.5:9876"}]}`, 1)
	s, err := Parse("f.yaml", []byte(more))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range s.Bulk.Groups {
		got = append(got, fmt.Sprintf("%s %d of %d", g[0].Protocol, len(g), g[0].Machines()))
	}
	if want := []string{"tcp 1 of 2", "udp 3 of 2", "udp 3 of 4", "udp 3 of 8"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	eight := s.Bulk.Groups[3][0]
	want := bulk.Pair{Netns: "y", Source: netip.MustParseAddr("10.99.1.9"), Address: netip.MustParseAddrPort("10.99.1.4:9876")}
	if eight.Others[1] != want || eight.Address.Addr() != netip.MustParseAddr("10.99.1.2") {
		t.Errorf("%+v", eight)
	}
	for old, tc := range map[string][2]string{
		"[2, 4, 8]":  {"[2, 6, 10]", `bulk.targets[1].machines[2]: "10": needs 5 pairs of machines and has 4; add the others to pairs, or write a smaller number`},
		"[2, 4":      {"[2, 3", `bulk.targets[1].machines[1]: "3": is no number of machines of a test; write an even number, 2 to 16`},
		"4, 8]":      {"2, 8]", `bulk.targets[1].machines[1]: "2": is there twice; remove one`},
		"8],":        {"18],", `bulk.targets[1].machines[2]: "18": is no number of machines of a test`},
		"10.99.1.4:": {"10.99.1.4.", `bulk.targets[1].pairs[1].address: "10.99.1.4.9876": is not an IP address with a port`},
		"netns: y":   {"netns: y/z", `bulk.targets[1].pairs[1].netns: "y/z"`},
		"10.99.1.9":  {"fd00::9", `bulk.targets[1].pairs[1].source: "fd00::9": is of another family`},
		"pairs: [{":  {"pairs: [" + strings.Repeat(`{address: "10.99.1.3:9876"}, `, 7) + "{", `bulk.targets[1].pairs: "10": are too many; write 7 at most`},
	} {
		if !strings.Contains(more, old) {
			t.Fatalf("the good file has no %q", old)
		}
		if _, err := Parse("f.yaml", []byte(strings.Replace(more, old, tc[0], 1))); err == nil || !strings.Contains(err.Error(), tc[1]) {
			t.Errorf("%s: got %v\nwant an error that says %q", tc[0], err, tc[1])
		}
	}
}

// The file that remembers the budget is the configured one, else systemd's.
func TestBulkState(t *testing.T) {
	for _, tc := range []struct{ configured, directory, want string }{
		{"", "", ""},
		{"", "/var/lib/vigia-probe", "/var/lib/vigia-probe/bulk.json"},
		{"", "/var/lib/a:/var/lib/b", ""},
		{"/srv/spent.json", "/var/lib/vigia-probe", "/srv/spent.json"},
	} {
		if got := stateFile((&Bulk{State: tc.configured}).state(), tc.directory, bulkState); got != tc.want {
			t.Errorf("%+v: %q", tc, got)
		}
	}
	// Also where there are no bulk tests yet: a reload may bring them.
	if got := stateFile((*Bulk)(nil).state(), "/var/lib/vigia-probe", bulkState); got != "/var/lib/vigia-probe/bulk.json" {
		t.Errorf("%q", got)
	}
}

func TestBulkMistakes(t *testing.T) {
	for _, tc := range []struct{ old, new, want string }{
		{`"10.99.1.1:9876"`, `"10.99.1.1"`, `f.yaml:19: bulk.listeners[0].address: "10.99.1.1": is not an IP address with a port; write IP:port, for example 10.0.0.1:9876`},
		{"allow: [10.99.1.0/24]\n  hourly", "allow: [10.99.1.1/24]\n  hourly", `bulk.allow[0]: "10.99.1.1/24": has bits set beyond its length`},
		{"hourly_bytes: 5000000", "state: bulk.json", `bulk.state: "bulk.json": is not an absolute path; write for example /var/lib/vigia-probe/bulk.json`},
		{"hourly_bytes: 5000000", "hourly_bytes: -1", `bulk.hourly_bytes: "-1": is out of bounds`},
		{"slot: 20s", "slot: 1s", `bulk.slot: "1s": is out of bounds; write 2s to 1h0m0s`},
		{"slot: 20s", "slot: 8s", `bulk.slot: "8s": is too short for class udp; write 9s or more`},
		{"nodes: [lb1, lb2]", "nodes: [lb1, lb3]", `bulk.targets[0].dst: "lb2": is not in bulk.nodes and would never have its turn`},
		{"nodes: [lb1, lb2]", "nodes: [lb1, lb2, lb2]", `bulk.nodes[2]: "lb2": is there twice`},
		{"nodes: [lb1, lb2]", "nodes: [lb2]", `bulk.nodes: does not have this node`},
		{"name: udp, protocol: udp", "name: udp, protocol: quic", `bulk.classes[1].protocol: "quic": is not a protocol of bulk tests; write tcp or udp`},
		{"duration: 5s", "duration: 2m", `bulk.classes[0].duration: "2m0s": is out of bounds; write 100ms to 1m0s`},
		{"dscp: 8", "dscp: 64", `bulk.classes[0].dscp: "64": is out of bounds`},
		{"priority: 5", "priority: 8", `bulk.classes[0].priority: "8": is out of bounds; write 0 to 7`},
		{"mark: 42", "mark: -1", `bulk.classes[0].mark: "-1": is out of bounds; write 0 to 4294967295`},
		{"device: eth1", "device: a/b", `bulk.targets[0].device: "a/b": is not the name of a device`},
		{"dscp: 8", "rates: [1Mbit]", `bulk.classes[0]: has rates or a size, which TCP finds itself`},
		{", rates: [100Mbit, 150Mbit, 200Mbit]", "", `bulk.classes[1].rates: "0": are not 1 to 16 rates; write for example`},
		{"200Mbit]", "200Gbit]", `bulk.classes[1].rates[2]: "200Gbit": is out of bounds`},
		{"200Mbit]", "100Gbit]", `bulk.classes[1].rates[2]: "100Gbit": makes more than 8388608 packets`},
		{"200Mbit]", "200Mbit], size: 20", `bulk.classes[1].size: "20": is out of bounds; write 64 to 65507 bytes`},
		{"200Mbit]", "200Mbit], max_bytes: 20", `bulk.classes[1].max_bytes: "20": means nothing to UDP`},
		{"name: udp", "name: tcp", `bulk.classes[1].name: "tcp": is the name of another class`},
		{"probe: udp", "probe: tcp", `bulk.targets[1]: has the same dst, path, tenant and probe as another`},
		{"probe: udp", "probe: sctp", `bulk.targets[1].probe: "sctp": is not declared under bulk.classes`},
		{"dst: lb2, path: direct, tenant: _infra, probe: udp", "dst: lb2, path: x, tenant: _infra, probe: udp", `bulk.targets[1].path: "x": is not declared under paths`},
		{`probe: udp, address: "10.99.1.2:9876"`, `probe: udp, address: "lb2:9876"`, `bulk.targets[1].address: "lb2:9876": is not an IP address with a port`},
		{"source: 10.99.1.1,", "source: fd00::1,", `bulk.targets[0].source: "fd00::1": is of another family`},
		{"source: 10.99.1.1,", "source: '10.99.1.1:7',", `bulk.targets[0].source: "10.99.1.1:7": has a port`},
		{"ratio: 0.999", "ratio: 99.9", `objectives[0].ratio: "99.9": is not a share between 0 and 1; write for example ratio: 0.999`},
		{"rtt: 5ms", "rtt: -5ms", `objectives[0].rtt: "-5ms": is out of bounds`},
		{"  - {tenant: red, ratio", "  - {tenant: red, ratio: 0.5}\n  - {tenant: red, ratio", `objectives[1].tenant: "red": has an objective already`},
	} {
		if !strings.Contains(goodBulk, tc.old) {
			t.Fatalf("the good file has no %q", tc.old)
		}
		_, err := Parse("f.yaml", []byte(strings.Replace(goodBulk, tc.old, tc.new, 1)))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v\nwant an error that says %q", tc.new, err, tc.want)
		}
	}
}
