package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"vigia/probes/health"
	"vigia/probes/moment"
	"vigia/probes/pathmtu"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/reflector"
	"vigia/probes/sender"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
)

const good = `node: lb1
reflector:
  listeners:
    - {netns: vigia-demo-lb1, address: "10.99.1.1:862"}
    - {address: "[fd00::1]:862"}
  allow: [10.99.1.0/24, "fd00::/64"]
  max_rate: 500
paths:
  - {name: direct, dataplane: none, encap: none, mode: normal, security: none, layer: underlay, placement: remote}
  - {name: ovs-vxlan, dataplane: ovs, encap: vxlan, mode: normal, security: none, layer: overlay, placement: remote}
classes:
  - {name: stamp-64, protocol: stamp, size: 64, interval: 50ms, deadline: 1s}
  - {name: big, protocol: stamp, size: 1400, interval: 1s, dscp: 46}
targets:
  - {dst: lb2, path: direct, tenant: _infra, probe: stamp-64, netns: vigia-demo-lb1, source: "10.99.1.1", address: "10.99.1.2:862"}
  - {dst: lb2, path: ovs-vxlan, tenant: red, probe: big, netns: /run/netns/x, source: "[fd00::1]:40000", address: "[fd00::2]:862"}
  - {dst: lb3, path: direct, tenant: _infra, probe: stamp-64, address: "lb3.example.net:8620"}
`

// TestFoundPaths: what finds a path is a file, and has something to find.
func TestFoundPaths(t *testing.T) {
	for change, want := range map[string]string{
		`dataplane: auto, encap: vxlan, found_by: [/pods.json], mode`: "",
		`dataplane: auto, encap: auto, mode`:                          "",
		`dataplane: auto, encap: auto, found_by: [pods.json], mode`:   `paths[0].found_by[0]: "pods.json": is not an absolute path; write for example /`,
		`dataplane: none, encap: vxlan, found_by: [/pods.json], mode`: "paths[0].found_by: has nothing to find; write dataplane: auto or encap: auto, or remove it",
	} {
		_, err := Parse("f.yaml", []byte(strings.Replace(goodDiscovery, "dataplane: none, encap: none, mode", change, 1)))
		found := err != nil && strings.Contains(err.Error(), "found_by")
		if found != (want != "") || found && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", change, err)
		}
	}
}

func TestGoodFile(t *testing.T) {
	got, err := Parse("f.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	want := &Settings{Live: Live{
		Node: "lb1", MaxOnewayError: time.Millisecond, PairSeries: defaultPairSeries,
		Moments: moment.Config{Interval: 5 * time.Minute, GoodInterval: time.Hour, Keep: 100},
		Health:  health.Limits{CPUPressure: 1, Steal: 0.1, ScheduleLag: 100 * time.Millisecond},
		Reflector: reflector.Config{
			Listeners: []sockets.Key{
				{Netns: "vigia-demo-lb1", Local: netip.MustParseAddrPort("10.99.1.1:862")},
				{Local: netip.MustParseAddrPort("[fd00::1]:862")},
			},
			Allow:   []netip.Prefix{netip.MustParsePrefix("10.99.1.0/24"), netip.MustParsePrefix("fd00::/64")},
			MaxRate: 500,
		},
		Targets: []sender.Target{
			{
				Labels: sender.Labels{Src: "lb1", Dst: "lb2", Path: "direct", Tenant: "_infra", Probe: "stamp-64"},
				Netns:  "vigia-demo-lb1", Source: netip.MustParseAddrPort("10.99.1.1:0"), Host: "10.99.1.2", Port: 862,
				Protocol: stampprobe.Protocol{}, Size: 64, Interval: 50 * time.Millisecond, Deadline: time.Second,
			},
			{
				Labels: sender.Labels{Src: "lb1", Dst: "lb2", Path: "ovs-vxlan", Tenant: "red", Probe: "big"},
				Netns:  "/run/netns/x", Source: netip.MustParseAddrPort("[fd00::1]:40000"), Host: "fd00::2", Port: 862,
				Protocol: stampprobe.Protocol{}, Size: 1400, DSCP: 46, Interval: time.Second, Deadline: time.Second,
			},
			{
				Labels: sender.Labels{Src: "lb1", Dst: "lb3", Path: "direct", Tenant: "_infra", Probe: "stamp-64"},
				Host:   "lb3.example.net", Port: 8620, Protocol: stampprobe.Protocol{}, Size: 64, Interval: 50 * time.Millisecond, Deadline: time.Second,
			},
		},
	}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{}, netip.Prefix{}), cmpopts.IgnoreFields(Live{}, "Paths"), cmpopts.IgnoreUnexported(Settings{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(got.Paths) != 2 || got.Paths[1].Encap != "vxlan" {
		t.Errorf("paths %+v", got.Paths)
	}
	if s := got.Summary(); s != "node lb1: 3 targets, 41 probes/s, 2 reflector listeners" {
		t.Errorf("summary %q", s)
	}
}

func TestDefaults(t *testing.T) {
	got, err := Parse("f.yaml", []byte("node: a\nreflector: {listeners: [{address: \"127.0.0.1:862\"}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Reflector.MaxRate != 10000 || len(got.Reflector.Allow) != 2 || !got.Reflector.Allow[0].Contains(netip.MustParseAddr("127.9.9.9")) || got.Reflector.Allow[0].Contains(netip.MustParseAddr("10.0.0.1")) {
		t.Errorf("%+v, want loopback only and 10000 packets per second", got.Reflector)
	}
}

const class0 = `  - {name: stamp-64, protocol: stamp, size: 64, interval: 50ms, deadline: 1s}`

// mistakes are changes to the good file, and what the error says of each.
var mistakes = []struct{ name, old, new, want string }{
	{"unknown key", "node: lb1", "node: lb1\nnodes: x", `f.yaml:2: unknown key "nodes"; known here: bulk, classes, clock, discovery, health, mesh, moments, node, objectives, objectives_state, paths, reflector, series, targets`},
	{"unknown key of a target", "tenant: red, ", "tenant: red, dest: x, ", `unknown key "dest"; known here: address, device, dst, key_file, netns, path, probe, source, tenant, twin`},
	{"no node", "node: lb1", "node: ''", "f.yaml:1: node: is missing; add it, for example node: compute1"},
	{"node is free text", "node: lb1", "node: the first", `f.yaml:1: node: "the first": cannot be a label; write letters`},
	{"listener without port", `"10.99.1.1:862"}`, `"10.99.1.1"}`, `f.yaml:4: reflector.listeners[0].address: "10.99.1.1": is not an IP address with a port; write IP:port, for example 10.0.0.1:862`},
	{"listener by name", `"10.99.1.1:862"}`, `"lb1:862"}`, `"lb1:862": is not an IP address with a port`},
	{"listener on port 0", `"10.99.1.1:862"}`, `"10.99.1.1:0"}`, `has no port from 1 to 65535`},
	{"listener on multicast", `"10.99.1.1:862"}`, `"224.0.0.1:862"}`, `is a multicast or broadcast address`},
	{"listener without address", `{address: "[fd00::1]:862"}`, `{netns: x}`, `f.yaml:5: reflector.listeners[1].address: "": is missing`},
	{"listener twice", `{address: "[fd00::1]:862"}`, `{netns: vigia-demo-lb1, address: "10.99.1.1:862"}`, "f.yaml:5: reflector.listeners[1]: is the same as reflector.listeners[0]; remove one"},
	{"listener's namespace", "netns: vigia-demo-lb1, address", "netns: ../x, address", `f.yaml:4: reflector.listeners[0].netns: "../x": is not a network namespace; write a name in /run/netns, an absolute path, or neutron: and the id of a network`},
	{"allow no range", "[10.99.1.0/24,", "[10.99.1.0,", `f.yaml:6: reflector.allow[0]: "10.99.1.0": is not a range of addresses; write for example 10.0.0.0/24`},
	{"allow host bits", "[10.99.1.0/24,", "[10.99.1.7/24,", `"10.99.1.7/24": has bits set beyond its length; write 10.99.1.0/24`},
	{"rate", "max_rate: 500", "max_rate: -1", `f.yaml:7: reflector.max_rate: "-1": is out of bounds; write 1 to 1000000`},
	{"path without attribute", "encap: vxlan, ", "", "f.yaml:10: paths[1].encap: is missing"},
	{"path twice", "name: ovs-vxlan", "name: direct", `f.yaml:10: paths[1].name: "direct": is the name of another path; choose another`},
	{"class twice", "name: big", "name: stamp-64", `f.yaml:13: classes[1].name: "stamp-64": is the name of another class`},
	{"no protocol", "name: big, protocol: stamp", "name: big", "f.yaml:13: classes[1].protocol: is missing; add protocol: stamp"},
	{"other protocol", "name: big, protocol: stamp", "name: big, protocol: sctp", `classes[1].protocol: "sctp": is not a protocol of probes; write stamp, icmp`},
	{"echo too small", "protocol: stamp, size: 1400", "protocol: icmp, size: 15", `classes[1].size: "15": is not a possible size of an ICMP probe; write 16 to 65507 bytes of payload`},
	{"echo with port", "protocol: stamp, size: 1400", "protocol: icmp, size: 1400", `targets[1].address: "[fd00::2]:862": has a port, which ICMP does not have; write IP or name, for example 10.0.0.2`},
	{"echo from a port", "protocol: stamp, size: 1400", "protocol: icmp, size: 1400", `targets[1].source: "[fd00::1]:40000": has a port, and the class chooses ports itself`},
	{"cold echo", "protocol: stamp, size: 1400", "protocol: icmp, flow: cold, size: 1400", `classes[1].flow: "cold": needs ports, which ICMP does not have`},
	{"connection with size", "protocol: stamp, size: 1400", "protocol: tcp-connect, size: 1400", `classes[1].size: "1400": means nothing to a connection; remove it`},
	{"connections overlap", "protocol: stamp, size: 1400, interval: 1s", "protocol: tcp-connect, interval: 1s, deadline: 2s", `classes[1].deadline: "2s": is longer than the interval, and there is one probe at a time; at most 1s`},
	{"warm connection", "protocol: stamp, size: 1400", "protocol: tcp-connect, flow: warm", `classes[1].flow: "warm": cannot be: a connection is a new flow each time`},
	{"connection in fragments", "protocol: stamp, size: 1400", "protocol: tcp-connect, dont_fragment: true", `classes[1].dont_fragment: "true": means nothing`},
	{"age of a flow", "dscp: 46", "flow: lukewarm", `f.yaml:13: classes[1].flow: "lukewarm": is not an age of a flow; write warm or cold`},
	{"cold too fast", "interval: 50ms, deadline: 1s", "interval: 50ms, flow: cold", `classes[0].interval: "50ms": is too short for cold flows, which rest for 1m0s; write 60ms or more`},
	{"cold with ports", "dscp: 46", "flow: cold, source_ports: 3", `classes[1].source_ports: "3": is beside flow: cold`},
	{"too many source ports", "dscp: 46", "source_ports: 1025", `classes[1].source_ports: "1025": is out of bounds; write 1 to 1024`},
	{"ports of an echo", "protocol: stamp, size: 1400", "protocol: icmp, source_ports: 4, size: 1400", `classes[1].source_ports: "4": needs protocol: stamp`},
	{"equal-cost paths", "dscp: 46", "ecmp_paths: -1", `classes[1].ecmp_paths: "-1": is out of bounds; write 1 to 1024`},
	{"priority", "dscp: 46", "priority: 8", `classes[1].priority: "8": is out of bounds; write 0 to 7`},
	{"mark", "dscp: 46", "mark: 4294967296", `classes[1].mark: "4294967296": is out of bounds; write 0 to 4294967295`},
	{"source port of a set", "dscp: 46", "source_ports: 4", `targets[1].source: "[fd00::1]:40000": has a port, and the class chooses ports itself; write the address alone`},
	{"device", "tenant: red, ", "tenant: red, device: bond0.1234567890, ", `targets[1].device: "bond0.1234567890": is not the name of a device; write a name of at most 15 letters`},
	{"twin of itself", "tenant: red, ", "tenant: red, twin: ovs-vxlan, ", `targets[1].twin: "ovs-vxlan": is the target's own path; write the path to compare with`},
	{"twin that is not there", "tenant: red, ", "tenant: red, twin: direct, ", `f.yaml:16: targets[1].twin: "direct": is not the path of a target with dst lb2 and probe big; add that target or correct it`},
	{"too small", "size: 64", "size: 43", `f.yaml:12: classes[0].size: "43": is not a possible size of a STAMP packet; write 44 to 65507 bytes`},
	{"too large", "size: 64", "size: 65508", `"65508": is not a possible size of a STAMP packet`},
	{"no size", "size: 64, ", "", `classes[0].size: "0": is not a possible size`},
	{"between TLVs", "size: 64", "size: 46", `"46": cannot be made up of whole TLVs (RFC 8972); write 48`},
	{"between TLVs again", "size: 64", "size: 65", `"65": cannot be made up of whole TLVs (RFC 8972); write 68`},
	{"no interval", "interval: 50ms, ", "", "f.yaml:12: classes[0].interval: is missing; add it, for example interval: 100ms"},
	{"interval no duration", "interval: 50ms", "interval: 50", `f.yaml:12: "50" is not a duration`},
	{"interval too short", "interval: 50ms", "interval: 99us", `"99µs": is out of bounds; write 100µs to 1h0m0s`},
	{"interval too long", "interval: 1s", "interval: 2h", `classes[1].interval: "2h0m0s": is out of bounds`},
	{"negative interval", "interval: 50ms", "interval: -1s", `is out of bounds`},
	{"deadline too short", "deadline: 1s", "deadline: 10us", `f.yaml:12: classes[0].deadline: "10µs": is out of bounds; write 1ms to 1m0s`},
	{"deadline too long", "deadline: 1s", "deadline: 2m", `"2m0s": is out of bounds`},
	{"too many in flight", "interval: 50ms, deadline: 1s", "interval: 100us, deadline: 1m", `leaves too many probes in flight at this interval; at most 6.5536s, or a longer interval`},
	{"dscp", "dscp: 46", "dscp: 64", `classes[1].dscp: "64": is out of bounds; write 0 to 63`},
	{"unknown class", "probe: big", "probe: biggest", `f.yaml:16: targets[1].probe: "biggest": is not declared under classes; declare it there or correct it`},
	{"unknown path", "dst: lb2, path: direct", "dst: lb2, path: indirect", `f.yaml:15: targets[0].path: "indirect": is not declared under paths`},
	{"no dst", "dst: lb3, ", "", "f.yaml:17: targets[2].dst: is missing"},
	{"no tenant", "tenant: red, ", "", "f.yaml:16: targets[1].tenant: is missing; add it, for example tenant: _infra"},
	{"target twice", "dst: lb3", "dst: lb2", "f.yaml:17: targets[2]: has the same dst, path, tenant and probe as targets[0]; remove one, or make one of the four differ"},
	{"target's namespace", "netns: /run/netns/x", "netns: a/b", `targets[1].netns: "a/b": is not a network namespace`},
	{"source is no address", `source: "10.99.1.1"`, `source: eth0`, `f.yaml:15: targets[0].source: "eth0": is not an IP address, with or without a port; write IP or IP:port`},
	{"source of the other family", `source: "10.99.1.1"`, `source: "fd00::1"`, `targets[0].source: "fd00::1": is of another family than the target's address; write both as IPv4 or both as IPv6`},
	{"source is multicast", `source: "10.99.1.1"`, `source: "239.1.1.1"`, `is a multicast or broadcast address`},
	{"source with zone", `source: "[fd00::1]:40000"`, `source: "fe80::1%eth0"`, `has a zone, which is not supported`},
	{"no address", `, address: "10.99.1.2:862"}`, `}`, "f.yaml:15: targets[0].address: is missing; add it, for example address: 10.0.0.2:862"},
	{"address without port", `"10.99.1.2:862"`, `"10.99.1.2"`, `f.yaml:15: targets[0].address: "10.99.1.2": is not an address with a port; write IP:port or name:port`},
	{"port 0", `"10.99.1.2:862"`, `"10.99.1.2:0"`, "has no port from 1 to 65535"},
	{"port too large", `"10.99.1.2:862"`, `"10.99.1.2:65536"`, "has no port from 1 to 65535"},
	{"port by name", `"10.99.1.2:862"`, `"10.99.1.2:stamp"`, "has no port from 1 to 65535"},
	{"mistyped address", `"10.99.1.2:862"`, `"10.99.1.256:862"`, "has neither an IP address nor a host name"},
	{"bad name", `"lb3.example.net:8620"`, `"lb3..net:8620"`, "has neither an IP address nor a host name"},
	{"name too long", "lb3.example.net", strings.Repeat("a.", 130) + "net", "has neither an IP address nor a host name"},
	{"broadcast", `"10.99.1.2:862"`, `"255.255.255.255:862"`, "is a multicast or broadcast address"},
	{"any address", `"10.99.1.2:862"`, `"0.0.0.0:862"`, "is not the address of a host"},
	{"mapped address", `"[fd00::2]:862"`, `"[::ffff:10.0.0.1]:862"`, "is an IPv4 address written as IPv6"},
	{"moments too often", "node: lb1", "node: lb1\nmoments: {interval: 9s}", `f.yaml:2: moments.interval: "9s": is out of bounds; write 10s to 24h0m0s`},
	{"a state of moments that is nowhere", "node: lb1", "node: lb1\nmoments: {state: moments.json}", `f.yaml:2: moments.state: "moments.json": is not an absolute path; write for example /var/lib/vigia-probe/moments.json`},
	{"good moments too often", "node: lb1", "node: lb1\nmoments: {good_interval: 59s}", `f.yaml:2: moments.good_interval: "59s": is out of bounds; write 1m0s to 24h0m0s`},
	{"moments too rare", "node: lb1", "node: lb1\nmoments: {interval: 25h}", `moments.interval: "25h0m0s": is out of bounds`},
	{"too many moments", "node: lb1", "node: lb1\nmoments: {keep: 1001}", `f.yaml:2: moments.keep: "1001": is out of bounds; write 1 to 1000`},
	{"negative moments", "node: lb1", "node: lb1\nmoments: {keep: -1}", `moments.keep: "-1": is out of bounds`},
	{"clock source", "node: lb1", "node: lb1\nclock: {source: ntpd}", `f.yaml:2: clock.source: "ntpd": does not know the error of a clock; write auto, chrony, ptp4l or kernel`},
	{"clock source beside error", "node: lb1", "node: lb1\nclock: {source: chrony, error_bound: 1ms}", `f.yaml:2: clock.source: "chrony": is not asked where clock.error_bound states the error`},
	{"clock socket", "node: lb1", "node: lb1\nclock: {chrony: localhost}", `f.yaml:2: clock.chrony: "localhost": is neither IP:port nor the absolute path of a unix socket`},
	{"hardware stamps", "node: lb1", "node: lb1\ntimestamps: {hardware: yes}", `f.yaml:2: timestamps.hardware: "yes": is no way to use hardware stamps; write auto, off or enable`},
	{"clock", "node: lb1", "node: lb1\nclock: {error_bound: 2s}", `f.yaml:2: clock.error_bound: "2s": is out of bounds; write 1ns to 1s`},
	{"pressure", "node: lb1", "node: lb1\nhealth: {cpu_pressure: 50}", `f.yaml:2: health.cpu_pressure: "50": is no share of time; write a number above 0 and up to 1`},
	{"steal", "node: lb1", "node: lb1\nhealth: {steal: 0}", `health.steal: "0": is no share of time`},
	{"series", "node: lb1", "node: lb1\nseries: few", `series: "few": is no choice of series; write usual or all`},
	{"lag", "node: lb1", "node: lb1\nhealth: {schedule_lag: -1s}", `health.schedule_lag: "-1s": is out of bounds`},
	{"path MTU of connections", "protocol: stamp, size: 1400", "protocol: tcp-connect, path_mtu: {}", `f.yaml:13: classes[1].path_mtu: means nothing to a connection; remove it, or write protocol: stamp or icmp`},
	{"path MTU too often", "dscp: 46", "path_mtu: {interval: 1s}", `f.yaml:13: classes[1].path_mtu.interval: "1s": is out of bounds; write 10s to 24h0m0s`},
	{"path MTU from too small", "dscp: 46", "path_mtu: {min: 100}", `f.yaml:13: classes[1].path_mtu.min: "100": is not a possible size of a packet; write 256 to 65535 bytes, IP header included`},
	{"path MTU to too large", "dscp: 46", "path_mtu: {max: 65536}", `f.yaml:13: classes[1].path_mtu.max: "65536": is not a possible size of a packet`},
	{"path MTU backwards", "dscp: 46", "path_mtu: {min: 1500, max: 1500}", `f.yaml:13: classes[1].path_mtu.max: "1500": is not above min, 1500; write 1501 to 65535`},
	{"path MTU with another key", "dscp: 46", "path_mtu: {most: 1500}", `f.yaml:13: unknown key "most"; known here: interval, max, min`},
	{"no classes", class0, "", "targets[0].probe"},
}

// TestEveryMistakeIsNamed changes one thing of the good file at a time.
func TestEveryMistakeIsNamed(t *testing.T) {
	for _, tc := range mistakes {
		t.Run(tc.name, func(t *testing.T) {
			if !strings.Contains(good, tc.old) {
				t.Fatalf("the good file has no %q", tc.old)
			}
			_, err := Parse("f.yaml", []byte(strings.Replace(good, tc.old, tc.new, 1)))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v\nwant an error that says %q", err, tc.want)
			}
		})
	}
}

func TestPathMTU(t *testing.T) {
	for written, want := range map[string]pathmtu.Plan{
		"{}":                                    {Interval: 10 * time.Minute, Limits: pathmtu.Limits{Min: 576, Max: 9216}},
		"{interval: 10s, min: 256, max: 65535}": {Interval: 10 * time.Second, Limits: pathmtu.Limits{Min: 256, Max: 65535}},
	} {
		got, err := Parse("f.yaml", []byte(strings.Replace(good, "dscp: 46", "path_mtu: "+written, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]pathmtu.Plan{"big": want}, got.PathMTU); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", written, diff)
		}
	}
}

func TestNothingToDo(t *testing.T) {
	for _, raw := range []string{"node: a\n", "node: a\nreflector: {allow: [10.0.0.0/8]}\n"} {
		if _, err := Parse("f.yaml", []byte(raw)); err == nil || !strings.Contains(err.Error(), "there is nothing to do; add one of them") {
			t.Errorf("%q: got %v", raw, err)
		}
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	raw := "node: a\nclasses: [{name: c, protocol: stamp, size: 1, interval: 1s, dscp: 99}]\npaths: []\ntargets: [{dst: b, path: p, tenant: t, probe: c, address: x}]\n"
	_, err := Parse("f.yaml", []byte(raw))
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("want four lines, got\n%v", err)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "probe.yaml")
	if err := os.WriteFile(path, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err != nil {
		t.Error(err)
	}
	if _, err := Load(path + ".absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
}

func TestReportIsBounded(t *testing.T) {
	raw := "node: a\npaths: []\nclasses: []\ntargets:\n" + strings.Repeat("  - {dst: b}\n", 1000)
	_, err := Parse("f.yaml", []byte(raw))
	if err == nil || strings.Count(err.Error(), "\n") != maxFaults || !strings.Contains(err.Error(), "further mistakes") {
		t.Errorf("want %d lines and one that counts the rest, got %d", maxFaults, strings.Count(err.Error(), "\n"))
	}
}

func TestTooManyTargets(t *testing.T) {
	f := File{Node: "a", Targets: make([]Target, maxTargets+1)}
	if err := f.Validate(); err == nil || !strings.Contains(err.Error(), `targets: "50001": are too many; at most 50000`) {
		t.Errorf("got %v", err)
	}
}

// TestKeyFiles configures authenticated mode, right and wrong.
func TestKeyFiles(t *testing.T) {
	const key = "000102030405060708090a0b0c0d0e0f"
	path := filepath.Join(t.TempDir(), "stamp.key")
	if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := func(size int, keyFile string) string {
		return fmt.Sprintf(`node: a
reflector: {listeners: [{address: "127.0.0.1:862"}, {address: "127.0.0.1:863", key_file: %[2]s}]}
paths: [{name: p, dataplane: d, encap: none, mode: m, security: none, layer: underlay, placement: local}]
classes: [{name: c, protocol: stamp, size: %[1]d, interval: 1s}]
targets:
  - {dst: b, path: p, tenant: t, probe: c, address: "127.0.0.1:863", key_file: %[2]s}
  - {dst: c, path: p, tenant: t, probe: c, address: "127.0.0.1:862"}
`, size, keyFile)
	}
	got, err := Parse("f.yaml", []byte(file(256, path)))
	if err != nil {
		t.Fatal(err)
	}
	secured, plain := got.Targets[0].Protocol.(stampprobe.Protocol), got.Targets[1].Protocol.(stampprobe.Protocol)
	if secured.Keys.Mode() != stamp.Authenticated || plain.Keys.Mode() != stamp.Unauthenticated {
		t.Errorf("%v, %v", secured, plain)
	}
	open, secure := got.Reflector.Listeners[0], got.Reflector.Listeners[1]
	if got.Reflector.Keys[open] != "" || got.Reflector.Keys[secure] != secured.Keys {
		t.Errorf("%v", got.Reflector.Keys)
	}
	loose := filepath.Join(t.TempDir(), "loose.key")
	if err := os.WriteFile(loose, []byte(key), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ raw, want string }{
		{file(64, path), "f.yaml:6: targets[0].key_file: \"" + path + "\": needs larger packets than class c has: size 64 is not a possible size of a STAMP packet; write 112 to 65507"},
		{file(153, path), "cannot be made up of whole TLVs (RFC 8972); write 156"},
		{file(256, path+"x"), "f.yaml:2: reflector.listeners[1].key_file: \"" + path + "x\": cannot be used: read key file"},
		{file(256, "stamp.key"), "is not an absolute path; write for example /etc/vigia/stamp.key"},
		{file(256, loose), "chmod 0600 it"},
	} {
		_, err := Parse("f.yaml", []byte(tc.raw))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v\nwant %q", err, tc.want)
		} else if strings.Contains(err.Error(), key) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}
