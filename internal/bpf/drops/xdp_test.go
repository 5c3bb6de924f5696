package drops

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"vigia/internal/netns"
)

// dropAll attaches a program that drops all that comes in by the port, before the
// kernel has a packet of it.
func (r *rig) dropAll(flags link.XDPAttachFlags) {
	r.t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}, // XDP_DROP
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { program.Close() })
	var l link.Link
	err = netns.Do(r.Node, func() (err error) {
		l, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: r.Index, Flags: flags})
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { l.Close() })
}

// TestWhatXDPDropsHasNoReason shows by what packets that a program at XDP drops are known,
// which readers of the counts rely on: a driver frees them before they have an
// interface of arrival, and without a reason.
func TestWhatXDPDropsHasNoReason(t *testing.T) {
	r := newRig(t)
	c := r.open()
	r.udp(1, 100, 9) // the neighbours know each other
	r.dropAll(link.XDPDriverMode)
	r.udp(50, 100, 9)
	dropped := counted(t, 50, func() (sum uint64) {
		for e, n := range read(t, c) {
			switch {
			case e.Device != r.Index || e.Protocol != "udp" || e.Reason == "NO_SOCKET":
			case e.Reason == "XDP":
				sum += n // of newer kernels
			case e.Reason == "NOT_SPECIFIED" && e.Arrival == 0:
				sum += n
			default:
				t.Fatalf("%d of %+v", n, e)
			}
		}
		return sum
	})
	if dropped != 50 {
		t.Errorf("%d dropped of 50 sent; all: %v", dropped, read(t, c))
	}
}
