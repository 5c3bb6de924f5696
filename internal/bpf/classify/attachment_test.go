package classify

import (
	"io"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"vigia/internal/bpf/vport/vporttest"
	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// countOrigins counts what leaves a device: at 0 what the node sent itself, at 1 what came in by
// another interface.
func countOrigins(t *testing.T, ns, device string) (counts func() [2]uint64) {
	t.Helper()
	const ingressIndex = 36 // offset in struct __sk_buff
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 2})
	if err != nil {
		t.Fatal(err)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "origins", Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, ingressIndex, asm.Word), asm.JEq.Imm(asm.R2, 0, "local"), asm.Mov.Imm(asm.R2, 1),
			asm.StoreMem(asm.RFP, -4, asm.R2, asm.Word).WithSymbol("local"), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, m.FD()), asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord), asm.Mov.Imm(asm.R0, -1).WithSymbol("out"), asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	index := vporttest.Index(t, ns, device)
	var attached io.Closer
	if err := netns.Do(ns, func() (err error) {
		attached, err = link.AttachTCX(link.TCXOptions{Program: p, Interface: index, Attach: ebpf.AttachTCXEgress})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		attached.Close()
		p.Close()
		m.Close()
	})
	return func() (out [2]uint64) {
		for i := range out {
			if err := m.Lookup(uint32(i), &out[i]); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
}

// TestTheKernelTellsATunnelOfTheNodeFromAGuestsFrame: what a node's bridge sends into its tunnel
// of IPv4 leaves the uplink as the node's own, and what it forwards there does not.
func TestTheKernelTellsATunnelOfTheNodeFromAGuestsFrame(t *testing.T) {
	for _, tc := range []struct {
		name, tunnel string
		forwarded    bool
	}{
		{"VXLAN", "vxlan id 110 remote 10.9.0.2 dstport 4789", false},
		{"without a tunnel", "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node, guest, away := testutil.NewNetNS(t), testutil.NewNetNS(t), testutil.NewNetNS(t)
			for _, ns := range []string{node, guest, away} {
				testutil.DisableIPv6(t, ns)
			}
			testutil.NewVethPair(t, node, "up0", away, "eth0")
			testutil.NewVethPair(t, node, "tap0", guest, "eth0")
			testutil.IP(t, "-n", node, "link", "add", "br0", "type", "bridge")
			member := "up0"
			if tc.tunnel != "" {
				member = "tun0"
				testutil.IP(t, "-n", node, "addr", "add", "10.9.0.1/24", "dev", "up0")
				testutil.IP(t, "-n", node, "neigh", "add", "10.9.0.2", "lladdr", nodeB.String(), "dev", "up0")
				testutil.IP(t, append([]string{"-n", node, "link", "add", "tun0", "type"}, strings.Fields(tc.tunnel)...)...)
			}
			for _, device := range []string{member, "tap0"} {
				testutil.IP(t, "-n", node, "link", "set", device, "master", "br0", "up")
			}
			testutil.IP(t, "-n", node, "link", "set", "br0", "up")
			counts := countOrigins(t, node, "up0")
			const frames = 20
			send(t, guest, "eth0", inner(), frames)
			at, want := 0, uint64(0)
			if tc.forwarded {
				at, want = 1, frames
			}
			testutil.WaitFor(t, "the frames to leave", func() bool { return counts()[at] >= frames })
			if got := counts(); got[1] != want { // the bridge may have said something of its own
				t.Errorf("%d sent by the node and %d forwarded, want %d", got[0], got[1], want)
			}
		})
	}
}
