package vf

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigia/exporters/tenant/source/sourcetest"
	"vigia/internal/exposition"
	"vigia/internal/rtnl"
)

func newSource(t *testing.T) *Source {
	t.Helper()
	conn, err := rtnl.Dial("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	held := map[string]Owner{"0000:3b:02.0": {Tenant: "red", Workload: "web-0", Source: "kubelet"}}
	return New(sourcetest.Families(t), conn, func() map[string]Owner { return held })
}

// page scrapes; half a minute passes from one scrape to the next.
func page(t *testing.T, s *Source, now *time.Time) (string, error) {
	t.Helper()
	p := exposition.NewPage(nil)
	err := s.Collect(sourcetest.View(nil, nil, nil, *now), p)
	*now = now.Add(rescan)
	var out strings.Builder
	if _, err := p.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.String(), err
}

// device makes a device of sysfs.
func device(t *testing.T, sys, name, vfs, index string) {
	t.Helper()
	dir := filepath.Join(sys, name, "device")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{filepath.Join(dir, "sriov_numvfs"): vfs, filepath.Join(sys, name, "ifindex"): index} {
		if err := os.WriteFile(path, []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestVFsAreSeenFromTheTenant(t *testing.T) {
	s, now := newSource(t), time.Unix(1000, 0)
	s.sys = t.TempDir()
	device(t, s.sys, "pf0", "2", "7")
	device(t, s.sys, "idle0", "0", "8")
	if err := os.Symlink("../0000:3b:02.0", filepath.Join(s.sys, "pf0", "device", "virtfn0")); err != nil {
		t.Fatal(err)
	}
	device(t, s.sys, "bad0", "1", "9")
	s.query = func(index int) ([]rtnl.VF, error) {
		if index != 7 {
			return nil, errors.New("no such device")
		}
		return []rtnl.VF{
			{
				Index: 0, MAC: []byte{2, 0, 0, 0, 0, 1}, VLAN: 100, SpoofCheck: rtnl.On, Trust: rtnl.Off, LinkState: rtnl.Auto, MaxRate: 1e6,
				HasStats: true, RxBytes: 1000, TxBytes: 20, RxPackets: 10, TxPackets: 2, RxDropped: 1, TxDropped: 5,
			},
			{Index: 1, SpoofCheck: rtnl.Unknown, Trust: rtnl.Unknown},
		}, nil
	}
	out, err := page(t, s, &now)
	if err == nil || !strings.Contains(err.Error(), "bad0: no such device") {
		t.Errorf("error %v", err)
	}
	for _, want := range []string{
		`vigia_vf_bytes_total{pf="pf0",vf="0",direction="to_tenant"} 1000`, // what a VF receives goes to its tenant
		`vigia_vf_packets_total{pf="pf0",vf="0",direction="from_tenant"} 2`,
		`vigia_vf_drops_total{pf="pf0",vf="0",direction="from_tenant"} 5`,
		`vigia_vf_config_info{pf="pf0",vf="0",mac="02:00:00:00:00:01",vlan="100",spoof_check="on",trust="off",link_state="auto"} 1`,
		`vigia_vf_rate_limit_bytes_per_second{pf="pf0",vf="0",bound="ceiling"} 1000000`,
		`vigia_vf_info{pf="pf0",vf="0",pci_address="0000:3b:02.0",tenant="red",workload="web-0",source="kubelet"} 1`,
		`vigia_vf_info{pf="pf0",vf="1",pci_address="",tenant="_unresolved",workload="",source=""} 1`,
		`vigia_vf_config_info{pf="pf0",vf="1",mac="",vlan="0",spoof_check="unknown",trust="unknown",link_state=""} 1`,
	} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, `vigia_vf_bytes_total{pf="pf0",vf="1"`) || strings.Contains(out, "idle0") {
		t.Errorf("what is not counted has counters:\n%s", out)
	}
}

func TestANodeWithoutSRIOV(t *testing.T) {
	s, now := newSource(t), time.Unix(1000, 0)
	s.sys = t.TempDir()
	if out, err := page(t, s, &now); out != "" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	device(t, s.sys, "pf0", "many", "7")
	if _, err := page(t, s, &now); err == nil {
		t.Error("words were taken for a number")
	}
}
