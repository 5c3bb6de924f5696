package ports

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// novaDomain is laid out by hand as Nova lays out a domain's metadata.
const novaDomain = `<domain type='kvm' id='3'>
  <name>instance-00000001</name>
  <uuid>72322a80-0c1d-4e2f-9a3b-4c5d6e7f8091</uuid>
  <metadata>
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:name>acme-vm1</nova:name>
      <nova:flavor name="tiny"><nova:memory>64</nova:memory></nova:flavor>
      <nova:owner>
        <nova:user uuid="aaaa">admin</nova:user>
        <nova:project uuid="d0bd5c28a1f04a8f9d0c4e5f6a7b8c9d">acme</nova:project>
      </nova:owner>
      <nova:ports>
        <nova:port uuid="90a91b8c-5a0e-4a5f-8c0d-0f1e2d3c4b5a"><nova:ip type="fixed" address="192.168.10.120" ipVersion="4"/></nova:port>
        <nova:port uuid="eedb8ee2-6c1d-4b7e-9f00-1a2b3c4d5e6f"><nova:ip type="fixed" address="192.168.11.9" ipVersion="4"/></nova:port>
      </nova:ports>
    </nova:instance>
  </metadata>
  <devices>
    <interface type='bridge'>
      <mac address='fa:16:3e:00:00:01'/><source bridge='br-int'/>
      <virtualport type='openvswitch'><parameters interfaceid='90a91b8c-5a0e-4a5f-8c0d-0f1e2d3c4b5a'/></virtualport>
      <target dev='tap90a91b8c-5a'/><model type='virtio'/>
    </interface>
    <interface type='bridge'>
      <mac address='fa:16:3e:00:00:02'/><source bridge='brq05f17693-1b'/><target dev='tapeedb8ee2-6c'/>
    </interface>
    <interface type='hostdev' managed='yes'>
      <mac address='fa:16:3e:00:00:03'/><source><address type='pci' domain='0x0000' bus='0x05' slot='0x00' function='0x2'/></source>
    </interface>
  </devices>
</domain>`

const oneDomain = `<domain type='kvm'><name>one-12</name><uuid>1c2d3e4f-0000-4000-8000-000000000012</uuid>
  <metadata><one:vm xmlns:one="http://opennebula.org/xmlns/libvirt/1.0">
    <one:uid>4</one:uid><one:gid>103</one:gid><one:uname>ann</one:uname><one:gname>acme</one:gname></one:vm></metadata>
  <devices><interface type='bridge'><source bridge='onebr7'/><target dev='one-12-0'/></interface></devices></domain>`

func TestDomainsTellWhoseTheirDevicesAre(t *testing.T) {
	nova := map[string]identity{
		"tap90a91b8c-5a": {Port: "90a91b8c-5a0e-4a5f-8c0d-0f1e2d3c4b5a", Tenant: project, Workload: vmID, Source: "libvirt"},
		"tapeedb8ee2-6c": {Port: portID, Tenant: project, Workload: vmID, Source: "libvirt"},
	}
	for _, tc := range []struct {
		name, xml string
		want      map[string]identity
		failure   string
	}{
		{"a definition", novaDomain, nova, ""},
		{"a status file", "<domstatus state='running' pid='1'><monitor path='x'/>" + novaDomain + "</domstatus>", nova, ""},
		{"OpenNebula", oneDomain, map[string]identity{"one-12-0": {Tenant: "103", Workload: "1c2d3e4f-0000-4000-8000-000000000012", Source: "libvirt"}}, ""},
		{"no interfaces", "<domain/>", map[string]identity{}, ""},
		{"another document", "<network/>", nil, "the root is <network>"},
		{"cut off", novaDomain[:len(novaDomain)-20], nil, "XML syntax error"},
		{"too long", "<domain><!--" + strings.Repeat("x", maxDomainXML) + "--></domain>", nil, "XML syntax error"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseDomain(strings.NewReader(tc.xml))
			if tc.failure != "" {
				if err == nil || !strings.Contains(err.Error(), tc.failure) {
					t.Errorf("got %v, want %q", err, tc.failure)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestDomainFilesAreFollowed(t *testing.T) {
	dir := t.TempDir()
	l := libvirtDomains(dir)
	expect := func(what string, wantErr string, devices ...string) {
		t.Helper()
		got, err := l.read()
		if wantErr == "" && err != nil || wantErr != "" && (err == nil || !strings.Contains(err.Error(), wantErr)) {
			t.Errorf("%s: error %v, want %q", what, err, wantErr)
		}
		if len(got) != len(devices) {
			t.Errorf("%s: got %v, want %v", what, got, devices)
		}
		for _, d := range devices {
			if _, ok := got[d]; !ok {
				t.Errorf("%s: no %s in %v", what, d, got)
			}
		}
	}
	expect("nothing", "")
	path := filepath.Join(dir, "one-12.xml")
	write(t, path, oneDomain)
	write(t, filepath.Join(dir, "one-12.pid"), "77")
	if err := os.Mkdir(filepath.Join(dir, "dump.xml"), 0o700); err != nil {
		t.Fatal(err)
	}
	expect("one domain", "", "one-12-0")
	write(t, filepath.Join(dir, "instance-00000001.xml"), novaDomain)
	expect("two domains", "", "one-12-0", "tap90a91b8c-5a", "tapeedb8ee2-6c")
	later := time.Now().Add(time.Minute)
	write(t, path, "<domain")
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	expect("a file turns bad", "libvirt domain one-12.xml", "one-12-0", "tap90a91b8c-5a", "tapeedb8ee2-6c")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("a domain ends", "", "tap90a91b8c-5a", "tapeedb8ee2-6c")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	expect("libvirt is removed", "does not exist; write /run/libvirt/qemu", "tap90a91b8c-5a", "tapeedb8ee2-6c")
}
