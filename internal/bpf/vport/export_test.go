package vport

import (
	"github.com/cilium/ebpf"

	"vigia/internal/tc"
)

// What tests outside of the package need of its inside.

// HasHighSlot tells whether the programs know a slot of an interface with a high number.
func (m *Manager) HasHighSlot(ifindex int) (bool, error) {
	var slot uint32
	err := m.objects.VportHigh.Lookup(uint32(ifindex), &slot)
	return err == nil, ignoreAbsent(err)
}

// PretendOtherBuild puts a program with other code where the ingress filter of an
// interface and its pin are, as another build would leave them.
func (m *Manager) PretendOtherBuild(conn *tc.Conn, ifindex int) error {
	other := m.objects.VportTcxTo
	if err := pinCopy(other, m.linkPin(ifindex, linkIngress)); err != nil {
		return err
	}
	f := m.filter(ifindex, linkIngress, 1)
	f.FD = other.FD()
	return conn.ReplaceFilter(f)
}

// Programs returns the programs by name.
func (m *Manager) Programs() map[string]*ebpf.Program {
	return map[string]*ebpf.Program{
		"from": m.objects.VportTcxFrom, "to": m.objects.VportTcxTo, "xdp": m.objects.VportXdpFrom, "passed": m.objects.VportTcxPassed,
	}
}
