package ovskernel

import (
	"errors"
	"strings"
	"testing"
	"time"

	"vigia/exporters/tenant/source"
	"vigia/exporters/tenant/source/sourcetest"
	"vigia/internal/exposition"
	"vigia/internal/ovskernel"
	"vigia/internal/ports"
	"vigia/internal/testutil"
)

func TestUpcallsAreLaidAtPorts(t *testing.T) {
	s, err := New(sourcetest.Families(t), testutil.NewNetNS(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	v := sourcetest.View([]ports.Port{{ID: "p", Tenant: "red", Index: 42}, {ID: "vhost", Tenant: "red"}}, nil, nil, time.Now())
	page := exposition.NewPage(nil)
	if err := s.Collect(v, page); err != nil || page.Series() != 0 {
		t.Errorf("this kernel: %d series, %v", page.Series(), err)
	}
	s.list = func() ([]ovskernel.Vport, error) {
		return []ovskernel.Vport{
			{Index: 42, Name: "tap0", HasUpcalls: true, Upcalls: 70, LostUpcalls: 7},
			{Index: 43, Name: "vxlan_sys_4789", HasUpcalls: true, Upcalls: 9},
			{Index: 0, Name: "old", HasUpcalls: true},
		}, nil
	}
	if err := s.Collect(v, page); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := page.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`vigia_port_upcalls_total{port="p",tenant="red",result="success"} 70`,
		`vigia_port_upcalls_total{port="p",tenant="red",result="lost"} 7`,
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if page.Series() != 2 {
		t.Errorf("%d series, want 2", page.Series())
	}
	if got := v.Drops.Counts[source.DropKey{Port: "p", Tenant: "red", Direction: source.FromTenant, Reason: source.UpcallLost}]; got != 7 {
		t.Errorf("%d drops, want 7", got)
	}
	s.list = func() ([]ovskernel.Vport, error) { return nil, errors.New("broken") }
	if err := s.Collect(v, page); err == nil {
		t.Error("a failure went unseen")
	}
}
