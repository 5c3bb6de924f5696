package plug

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vigia/internal/config"
	"vigia/internal/daemon"
)

func parse(endpoints string) error {
	return config.Parse("HOST.yaml", []byte("version: 1\nendpoints:\n"+endpoints), &content{})
}

func TestFilesOfEndpoints(t *testing.T) {
	good := endpoint("vxlan", portA, 1, ovs)
	if err := parse(good + endpoint("gre", portB, 2, "switch: linuxbridge") + endpoint("geneve", portC, 3, "switch: linuxbridge, bridge: brq11111111-11")); err != nil {
		t.Error(err)
	}
	for name, tc := range map[string]struct{ old, new, field, fix string }{
		"network":      {"network: vxlan", "network: ../x", "endpoints[0].network", "small letters"},
		"port":         {portA, "port", "endpoints[0].port", "36 characters"},
		"mac":          {"fa:16:3e:00:00:01", "01:00:5e:00:00:01", "endpoints[0].mac", "mac_address"},
		"long mac":     {"fa:16:3e:00:00:01", "fa:16:3e:00:00:01:00:00", "endpoints[0].mac", "mac_address"},
		"mtu":          {"1442", "0", "endpoints[0].mtu", "576 to 65535"},
		"no prefix":    {"10.9.0.1/24", "10.9.0.1", "endpoints[0].addresses", "10.40.0.5/24"},
		"multicast":    {"10.9.0.1/24", "224.0.0.1/24", "endpoints[0].addresses", "10.40.0.5/24"},
		"loopback":     {"fd00:9::1/64", "::1/128", "endpoints[0].addresses", "10.40.0.5/24"},
		"no addresses": {`10.9.0.1/24, "fd00:9::1/64"`, "", "endpoints[0].addresses", "1 to 16"},
		"switch":       {"openvswitch", "vpp", "endpoints[0].switch", "openvswitch or linuxbridge"},
		"bridge":       {"br-int", "'br int'", "endpoints[0].bridge", "br-int"},
		"linux bridge": {"switch: openvswitch, bridge: br-int", "switch: linuxbridge, bridge: brq1234567890-123", "endpoints[0].bridge", "brq and the first 11"},
		"unknown key":  {"mtu: 1442", "mtu: 1442, color: red", "color", ""},
	} {
		text := strings.Replace(good, tc.old, tc.new, 1)
		if text == good {
			t.Fatalf("%s: nothing to replace", name)
		}
		err := parse(text)
		if err == nil || !strings.Contains(err.Error(), tc.field) || !strings.Contains(err.Error(), tc.fix) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEndpointsHaveNamesOfTheirOwn(t *testing.T) {
	twice := endpoint("vxlan", portA, 1, ovs) + endpoint("vxlan", portB, 2, ovs)
	if err := parse(twice); err == nil || !strings.Contains(err.Error(), "endpoints[1].network") {
		t.Errorf("two of one network: %v", err)
	}
	begins := strings.Replace(portA, "0f1e", "1f1e", 1)
	if err := parse(endpoint("vxlan", portA, 1, ovs) + endpoint("gre", begins, 2, ovs)); err == nil || !strings.Contains(err.Error(), "endpoints[1].port") {
		t.Errorf("two of one device: %v", err)
	}
	var many strings.Builder
	for i := range maxEndpoints + 1 {
		fmt.Fprintf(&many, "  - {network: n%d}\n", i)
	}
	if err := parse(many.String()); err == nil || !strings.Contains(err.Error(), "at most 64") {
		t.Errorf("many: %v", err)
	}
	if err := config.Parse("HOST.yaml", []byte("version: 2\nendpoints: []\n"), &content{}); err == nil || !strings.Contains(err.Error(), "version: 1") {
		t.Errorf("another version: %v", err)
	}
}

func TestMistakesInTheCommandLine(t *testing.T) {
	good := options{file: "/x/HOST.yaml", remote: defaultOVSDB, prefix: defaultPrefix, state: defaultState, every: minEvery}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*options){
		"--file is missing":     func(o *options) { o.file = "" },
		"--netns-prefix":        func(o *options) { o.prefix = "../x" },
		"--state":               func(o *options) { o.state = "state.json" },
		"--every":               func(o *options) { o.every = 0 },
		"--ovsdb":               func(o *options) { o.remote = "db.sock" },
		"ssl needs ca_file":     func(o *options) { o.remote = "ssl:127.0.0.1:6640" },
		"--every 2h0m0s is out": func(o *options) { o.every = 2 * maxEvery },
	} {
		o := good
		change(&o)
		err := o.check()
		var usage *daemon.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	good.file, good.remove = "", true
	if err := good.check(); err != nil {
		t.Errorf("what is removed needs no file: %v", err)
	}
}
