package identity

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigia/exporters/tenant/source/sourcetest"
	"vigia/internal/exposition"
	"vigia/internal/ports"
)

// rig is a source with a file of names, on a node with a red and a gone blue port.
type rig struct {
	t    *testing.T
	path string
	s    *Source
}

func newRig(t *testing.T, tenants ...Tenant) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "tenants.yaml")}
	r.s = New(sourcetest.Families(t), tenants, r.path)
	return r
}

func (r *rig) write(content string) {
	r.t.Helper()
	next := r.path + ".next" // as vigia-identity does
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(next, r.path); err != nil {
		r.t.Fatal(err)
	}
}

// infos returns the series of vigia_tenant_info.
func (r *rig) infos() (infos []string, err error) {
	r.t.Helper()
	v := sourcetest.View([]ports.Port{{ID: "a", Tenant: "red", Index: 1, DataPlane: ports.NoSwitch}, {ID: "b", Tenant: "red", DataPlane: ports.NoSwitch}}, []ports.Port{{ID: "c", Tenant: "blue", DataPlane: ports.NoSwitch}}, nil, time.Now())
	p := exposition.NewPage(nil)
	err = r.s.Collect(v, p)
	var out strings.Builder
	if _, err := p.WriteTo(&out); err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "vigia_tenant_info{") {
			infos = append(infos, strings.TrimSpace(line))
		}
	}
	if !strings.Contains(out.String(), `vigia_port_up{port="a",tenant="red"} 0`) {
		r.t.Errorf("the ports are missing:\n%s", out.String())
	}
	return infos, err
}

func (r *rig) expect(what string, problem string, want ...string) {
	r.t.Helper()
	got, err := r.infos()
	if strings.Join(got, "\n") != strings.Join(want, "\n") || (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
		r.t.Errorf("%s: %q, %v; want %q, %q", what, got, err, want, problem)
	}
}

func TestNamesOfTheFileAreThoseOfTenantsThatAreHere(t *testing.T) {
	r := newRig(t, Tenant{ID: "red", Name: "Red Team"}, Tenant{ID: "green", Name: "Green"})
	red, green := `vigia_tenant_info{tenant="red",tenant_name="Red Team"} 1`, `vigia_tenant_info{tenant="green",tenant_name="Green"} 1`
	r.expect("without the file", "does not exist", red, green)
	r.write("version: 1\ntenants:\n  - {id: red, name: Other}\n  - {id: blue, name: Blue}\n  - {id: far, name: Away}\n")
	blue := `vigia_tenant_info{tenant="blue",tenant_name="Blue"} 1`
	r.expect("the configuration goes first, and who has no port here is left out", "", red, green, blue)
	r.write("version: 1\ntenants: [{id: blue}]\n")
	r.expect("a bad file", "tenants[0].name", red, green, blue)
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	r.expect("a lost file", "does not exist", red, green, blue)
	r.write("version: 2\ntenants: []\n")
	r.expect("another version", "version", red, green, blue)
	r.write("version: 1\ntenants: [{id: blue, name: Azure}]\n")
	r.expect("a new name", "", red, green, `vigia_tenant_info{tenant="blue",tenant_name="Azure"} 1`)
	r.s.SetTenants(nil)
	r.expect("a configuration without names", "", `vigia_tenant_info{tenant="blue",tenant_name="Azure"} 1`)
}

func TestPortsAreWrittenAsTheyAreNow(t *testing.T) {
	r := newRig(t)
	r.write("version: 1\ntenants: []\n")
	page, detail := exposition.NewPage(nil), false
	scrape := func(list, gone []ports.Port) string {
		t.Helper()
		page.Reset(nil)
		v := sourcetest.View(list, gone, nil, time.Now())
		v.Detail = detail
		if err := r.s.Collect(v, page); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if _, err := page.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	up := func(port string, value int) string {
		return fmt.Sprintf("vigia_port_up{port=%q,tenant=\"red\"} %d\n", port, value)
	}
	first := []ports.Port{{ID: "a", Tenant: "red", Index: 1, Up: true, DataPlane: ports.NoSwitch}, {ID: "b", Tenant: "red", Index: 2, DataPlane: ports.NoSwitch}}
	once := scrape(first, nil)
	if again := scrape(first, nil); again != once || strings.Contains(once, up("a", 1)) || !strings.Contains(once, up("b", 0)) {
		t.Errorf("the same ports, written twice:\n%s\n%s", once, again)
	}
	gone := []ports.Port{{ID: "z", Tenant: "red", DataPlane: ports.NoSwitch}}
	if got := scrape(first, gone); !strings.Contains(got, up("z", 0)) || strings.Contains(got, up("a", 1)) {
		t.Errorf("a port that is gone is missing:\n%s", got)
	}
	if got := scrape(first, nil); got != once {
		t.Errorf("a port that is gone for good is there:\n%s", got)
	}
	second := []ports.Port{{ID: "a", Tenant: "red", Index: 1, DataPlane: ports.NoSwitch}, {ID: "b", Tenant: "red", Index: 2, Up: true, DataPlane: ports.NoSwitch}}
	if got := scrape(second, nil); !strings.Contains(got, up("a", 0)) || strings.Contains(got, `vigia_port_up{port="b"`) {
		t.Errorf("ports as they were, not as they are:\n%s", got)
	}
	detail = true
	if got := scrape(first, gone); !strings.Contains(got, up("a", 1)) || !strings.Contains(got, up("b", 0)) || !strings.Contains(got, up("z", 0)) {
		t.Errorf("the tier detail says of each port whether it is up:\n%s", got)
	}
}
