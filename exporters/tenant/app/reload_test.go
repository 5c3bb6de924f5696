package app

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"vigia/internal/config"
	"vigia/internal/testutil"
)

// leaf is a key of the configuration file and where its value is.
type leaf struct {
	key   string
	value reflect.Value
}

// leaves returns the keys below a section by their paths.
func leaves(v reflect.Value, prefix string) (out []leaf) {
	for i := range v.NumField() {
		key, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		at := strings.TrimPrefix(prefix+"."+key, ".")
		if strings.Contains(options, "inline") {
			at = prefix
		}
		if f := v.Field(i); f.Kind() == reflect.Struct {
			out = append(out, leaves(f, at)...)
		} else {
			out = append(out, leaf{at, f})
		}
	}
	return out
}

// alter gives a key another value.
func alter(t *testing.T, l leaf) {
	t.Helper()
	switch v := l.value; v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint32:
		v.SetUint(v.Uint() + 1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), v.Len()+1, v.Len()+1))
	default:
		t.Fatalf("%s is a %s, which this test cannot alter", l.key, v.Kind())
	}
}

// TestEveryKeyIsFixedOrLive alters every key of the configuration, one by one: a running
// exporter refuses it by its name, or takes it up. Config has nothing beside the two.
func TestEveryKeyIsFixedOrLive(t *testing.T) {
	if n := reflect.TypeOf(Config{}).NumField(); n != 2 {
		t.Fatalf("Config has %d parts, not Fixed and Live alone", n)
	}
	running := defaults()
	fixed, live := 0, 0
	for i := range leaves(reflect.ValueOf(&running).Elem(), "") {
		wanted := defaults()
		l := leaves(reflect.ValueOf(&wanted).Elem(), "")[i]
		alter(t, l)
		err := config.Unchanged("vigia-exporter", running.Fixed, wanted.Fixed)
		switch isLive := !reflect.DeepEqual(running.Live, wanted.Live); {
		case isLive && err != nil:
			t.Errorf("%s is live, and refused: %v", l.key, err)
		case isLive:
			live++
		case err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.HasPrefix(err.Error(), l.key+": ") || !strings.Contains(err.Error(), "restart"):
			t.Errorf("%s is fixed: %v", l.key, err)
		default:
			fixed++
		}
	}
	if fixed < 15 || live < 5 {
		t.Errorf("%d fixed and %d live keys are fewer than there are", fixed, live)
	}
}

// TestAReloadTakesUpWhatIsLiveAndRefusesWhatIsFixed changes each section of a running
// exporter's file.
func TestAReloadTakesUpWhatIsLiveAndRefusesWhatIsFixed(t *testing.T) {
	r := newRig(t, "flood: {packets: 321}\n")
	content, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	d := r.start()
	authority := testutil.NewAuthority(t)
	certificate, key := authority.Issue("exporter", net.IPv4(127, 0, 0, 1))
	ovn := fmt.Sprintf("ovsdb: unix:/run/x.sock\novn_southbound: ssl:127.0.0.1:6642\novn_tls: {ca_file: %s, cert_file: %s, key_file: %s}\n", authority.File, certificate, key)
	ports := filepath.Join(r.dir, "ports.yaml")
	other := r.write("other.yaml", "version: 1\nports: []\n")
	changes := map[string]struct {
		old, new string // old empty: new is added
		live     bool
	}{
		"node":            {"node: n1", "node: n2", false},
		"netns":           {"netns: " + r.node, "netns: " + r.tenant, false},
		"ovsdb":           {"", "ovsdb: unix:/run/x.sock\n", false},
		"ovn_southbound":  {"", ovn, false},
		"ovn_tls":         {"", ovn, false},
		"libvirt_dir":     {"", "libvirt_dir: /run/libvirt/qemu\n", false},
		"cni_results_dir": {"", "cni_results_dir: /run/cni\n", false},
		"ports_file":      {ports, other, false},
		"bpf":             {"max_ports: 8", "max_ports: 16", false},
		"tenants_file":    {"", "tenants_file: /run/x.yaml\n", false},
		"kubelet_socket":  {"", "kubelet_socket: /run/x.sock\n", false},
		"ovs_rundir":      {"", "ovs_rundir: /run/x\n", false},
		"openflow":        {"", "openflow: {every: 20s}\n", false},
		"limits":          {"", "limits: {gone: 40s}\n", false},
		"tenants":         {"Red Team", "Crimson", true},
		"flood":           {"packets: 321", "packets: 4321", true},
	}
	var c Config
	for _, l := range leaves(reflect.ValueOf(&c).Elem(), "") {
		section, _, _ := strings.Cut(l.key, ".")
		if _, ok := changes[section]; !ok {
			t.Errorf("no change of %s is tried", section)
		}
	}
	threshold := func() uint32 {
		m, err := ebpf.LoadPinnedMap(filepath.Join(r.pins, "maps", "vport_set"), &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		var packets uint32
		raw, err := m.LookupBytes(uint32(0))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			packets |= uint32(raw[i]) << (8 * i) // struct vport_settings begins with it
		}
		return packets
	}
	if got := threshold(); got != 321 {
		t.Fatalf("the threshold at the start is %d", got)
	}
	for section, change := range changes {
		changed := string(content) + change.new
		if change.old != "" {
			changed = strings.Replace(string(content), change.old, change.new, 1)
		}
		r.write("exporter.yaml", changed)
		code, body := d.Do("POST", "/-/reload", "", "")
		switch {
		case change.live && code != 200:
			t.Errorf("%s is live: %d %s", section, code, body)
		case !change.live && (code != 500 || !strings.Contains(body, "restart") || !slices.ContainsFunc(strings.Split(body, "\n"), func(line string) bool {
			return strings.Contains(line, " "+section+":") || strings.HasPrefix(line, section+":") || strings.Contains(line, section+".")
		})):
			t.Errorf("%s is fixed: %d %s", section, code, body)
		}
		r.write("exporter.yaml", string(content))
		if section == "flood" && threshold() != 4321 {
			t.Errorf("the threshold is %d after the reload", threshold())
		}
		if section == "tenants" && d.Metrics()[`vigia_tenant_info{tenant="red",tenant_name="Crimson"}`] != 1 {
			t.Error("the tenant's new name is not exported")
		}
		if code, body := d.Do("POST", "/-/reload", "", ""); code != 200 {
			t.Fatalf("back to what it was: %d %s", code, body)
		}
	}
	if got := threshold(); got != 321 || d.Metrics()[`vigia_tenant_info{tenant="red",tenant_name="Red Team"}`] != 1 {
		t.Errorf("the first configuration is not back: the threshold is %d", got)
	}
}
