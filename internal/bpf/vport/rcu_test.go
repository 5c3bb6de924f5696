package vport

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// expediter returns a manager whose switch is a file.
func expediter(t *testing.T, value string) (m *Manager, knob func() string) {
	t.Helper()
	dir := t.TempDir()
	m = &Manager{pinDir: dir, rcuExpedited: filepath.Join(dir, "rcu_expedited")}
	if err := os.WriteFile(m.rcuExpedited, []byte(value+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return m, func() string {
		raw, err := os.ReadFile(m.rcuExpedited)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(raw))
	}
}

func TestExpeditedGracePeriodsEnd(t *testing.T) {
	for _, tc := range []struct {
		name, before, during string
		interfaces           int
	}{
		{"many", "0", "1", expediteFrom},
		{"few", "0", "0", expediteFrom - 1},
		{"on already", "1", "1", expediteFrom},
	} {
		m, knob := expediter(t, tc.before)
		done := m.ExpediteRCU(tc.interfaces)
		if got := knob(); got != tc.during {
			t.Errorf("%s: meanwhile %s, want %s", tc.name, got, tc.during)
		}
		second := m.ExpediteRCU(tc.interfaces) // of the other program that keeps ports
		if err := second(); err != nil || knob() != tc.during {
			t.Errorf("%s: the second's end: %v, switch %s", tc.name, err, knob())
		}
		if err := done(); err != nil || knob() != tc.before {
			t.Errorf("%s: after that %s, want %s; %v", tc.name, knob(), tc.before, err)
		}
		if _, err := os.Stat(m.expeditedMark()); err == nil {
			t.Errorf("%s: the mark is left", tc.name)
		}
	}
}

func TestWhatADeadProcessLeftExpeditedEnds(t *testing.T) {
	m, knob := expediter(t, "0")
	m.ExpediteRCU(1000) // and never ends it
	next := &Manager{pinDir: m.pinDir, rcuExpedited: m.rcuExpedited}
	if err := next.endLeftExpedited(); err != nil || knob() != "0" {
		t.Errorf("switch %s, %v", knob(), err)
	}
	if err := next.endLeftExpedited(); err != nil {
		t.Errorf("with nothing to do: %v", err)
	}
}

func TestWithoutTheRightNothingIsExpedited(t *testing.T) {
	m := &Manager{pinDir: t.TempDir(), rcuExpedited: "/proc/version"} // exists and cannot be written
	if err := m.ExpediteRCU(1000)(); err != nil {
		t.Error(err)
	}
	m.rcuExpedited = filepath.Join(m.pinDir, "absent")
	if err := m.ExpediteRCU(1000)(); err != nil {
		t.Error(err)
	}
}

func ifindex(t *testing.T, ns, name string) (index int) {
	t.Helper()
	err := netns.Do(ns, func() error {
		ifi, err := net.InterfaceByName(name)
		if err == nil {
			index = ifi.Index
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// TestManyPortsAreAttachedExpedited switches the kernel itself.
func TestManyPortsAreAttachedExpedited(t *testing.T) {
	before, err := os.ReadFile(rcuExpedited)
	if err != nil {
		t.Skipf("the kernel has no %s: %v", rcuExpedited, err)
	}
	ns := testutil.NewNetNS(t)
	var wanted []Want
	for i := range expediteFrom {
		name := fmt.Sprintf("tap%d", i)
		testutil.IP(t, "-n", ns, "tuntap", "add", "dev", name, "mode", "tap")
		wanted = append(wanted, Want{Index: ifindex(t, ns, name), Hook: TCX})
	}
	m, err := Open(Options{PinDir: testutil.NewBPFFS(t), NetNS: ns, MaxPorts: 32})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if failed, err := m.AttachAll(append(wanted, Want{Index: 99999, Hook: TCX})); len(failed) != 1 || failed[99999] == nil || err != nil {
		t.Errorf("failed: %v, %v; want the interface that does not exist", failed, err)
	}
	attached, err := m.Attached()
	if err != nil || len(attached) != expediteFrom {
		t.Errorf("%d interfaces are attached, %v", len(attached), err)
	}
	if _, err := os.Stat(m.expeditedMark()); err == nil {
		t.Error("the switch is still marked as on")
	}
	if err := m.Uninstall(); err != nil {
		t.Error(err)
	}
	t.Logf("%s was %s", rcuExpedited, strings.TrimSpace(string(before)))
}
