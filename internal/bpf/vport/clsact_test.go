package vport_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vigia/internal/bpf/vport"
	"vigia/internal/tc"
	"vigia/internal/testutil"
)

func (r *rig) tc(args ...string) string {
	r.t.Helper()
	return testutil.Run(r.t, "tc", append([]string{"-n", r.Node}, args...)...)
}

func dial(t *testing.T, ns string) *tc.Conn {
	t.Helper()
	conn, err := tc.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func clsactRig(t *testing.T) *rig {
	r := newRig(t)
	r.attachment = vport.ClsactFilters
	return r
}

func TestOurQdiscGoesWithOurFilters(t *testing.T) {
	r := clsactRig(t)
	before := r.tc("qdisc", "show", "dev", "tap0")
	m := r.open()
	if err := m.Attach(r.Index, vport.TCX); err != nil {
		t.Fatal(err)
	}
	if now := r.tc("qdisc", "show", "dev", "tap0"); !strings.Contains(now, "clsact") {
		t.Fatalf("no clsact qdisc: %s", now)
	}
	if err := m.Detach(r.Index); err != nil {
		t.Fatal(err)
	}
	if now := r.tc("qdisc", "show", "dev", "tap0"); now != before {
		t.Errorf("qdiscs were %q and are %q", before, now)
	}
}

func TestForeignFiltersAndQdiscsStay(t *testing.T) {
	r := clsactRig(t)
	r.tc("qdisc", "add", "dev", "tap0", "clsact")
	// Of another kind at our usual priority.
	r.tc("filter", "add", "dev", "tap0", "ingress", "prio", "1", "protocol", "all", "u32", "match", "u32", "0xffffffff", "0xffffffff", "flowid", "1:1")
	before := r.tc("filter", "show", "dev", "tap0", "ingress")
	m := r.open()
	if err := m.Attach(r.Index, vport.TCX); err != nil {
		t.Fatal(err)
	}
	if got := r.Send(10, 100); got != 10 {
		t.Fatalf("%d of 10 arrived", got)
	}
	if p := r.counters(m).Packets[vport.FromTenant][udp]; p != 10 {
		t.Errorf("%d packets counted behind the foreign filter, want 10", p)
	}
	if err := m.Uninstall(); err != nil {
		t.Fatal(err)
	}
	if now := r.tc("filter", "show", "dev", "tap0", "ingress"); now != before {
		t.Errorf("filters were %q and are %q", before, now)
	}
	if now := r.tc("qdisc", "show", "dev", "tap0"); !strings.Contains(now, "clsact") {
		t.Errorf("the qdisc of another owner is gone: %s", now)
	}
}

func TestOurQdiscStaysWhileAnotherUsesIt(t *testing.T) {
	r := clsactRig(t)
	m := r.open()
	if err := m.Attach(r.Index, vport.TCX); err != nil {
		t.Fatal(err)
	}
	r.tc("filter", "add", "dev", "tap0", "egress", "prio", "9", "protocol", "all", "u32", "match", "u32", "0xffffffff", "0xffffffff", "flowid", "1:1")
	if err := m.Uninstall(); err != nil {
		t.Fatal(err)
	}
	if now := r.tc("filter", "show", "dev", "tap0", "egress"); !strings.Contains(now, "u32") {
		t.Errorf("the filter of another owner is gone: %q", now)
	}
}

func TestAnIngressQdiscIsNamedAndStays(t *testing.T) {
	r := clsactRig(t)
	r.tc("qdisc", "add", "dev", "tap0", "ingress")
	m := r.open()
	err := m.Attach(r.Index, vport.TCX)
	if err == nil || !strings.Contains(err.Error(), "replace it by clsact") {
		t.Fatalf("got %v, want a refusal with the fix", err)
	}
	if now := r.tc("qdisc", "show", "dev", "tap0"); !strings.Contains(now, "ingress") {
		t.Errorf("the qdisc of another owner is gone: %s", now)
	}
	entries, err := os.ReadDir(filepath.Join(r.PinDir, "links"))
	if err != nil || len(entries) != 0 {
		t.Errorf("pins stayed: %v, %v", entries, err)
	}
}

func TestAFilterThatSomebodyRemovedIsPutBack(t *testing.T) {
	r := clsactRig(t)
	m := r.open()
	if err := m.Attach(r.Index, vport.TCX); err != nil {
		t.Fatal(err)
	}
	r.tc("filter", "del", "dev", "tap0", "ingress")
	if err := m.Attach(r.Index, vport.TCX); err != nil {
		t.Fatal(err)
	}
	if got := r.programs(); got != 2 {
		t.Errorf("%d programs, want 2", got)
	}
}

// A process of another build finds filters whose code is not its own.
func TestFiltersOfAnotherBuildAreBroughtUpToDate(t *testing.T) {
	r := clsactRig(t)
	m := r.open()
	if err := m.Attach(r.Index, vport.TCX); err != nil {
		t.Fatal(err)
	}
	if err := m.PretendOtherBuild(dial(t, r.Node), r.Index); err != nil {
		t.Fatal(err)
	}
	m = r.open()
	if got := r.programs(); got != 2 {
		t.Fatalf("%d programs, want 2", got)
	}
	before := r.counters(m).Packets[vport.FromTenant][udp]
	if got := r.Send(10, 100); got != 10 {
		t.Fatalf("%d of 10 arrived", got)
	}
	if p := r.counters(m).Packets[vport.FromTenant][udp] - before; p != 10 {
		t.Errorf("%d packets counted from the tenant, want 10", p)
	}
}

func TestAttachmentsAreChecked(t *testing.T) {
	for _, ok := range []vport.Attachment{"", vport.Auto, vport.TCXLinks, vport.ClsactFilters} {
		c := vport.Config{PinDir: "/sys/fs/bpf/vigia", Attachment: ok}
		if err := c.Validate(); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	c := vport.Config{PinDir: "/sys/fs/bpf/vigia", Attachment: "magic"}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "bpf.attachment") {
		t.Errorf("got %v", err)
	}
}
