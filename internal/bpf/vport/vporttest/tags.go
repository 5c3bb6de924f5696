package vporttest

import (
	"io"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"vigia/internal/netns"
)

// PushTags has a device put VLAN tags of these ethertypes, the innermost first, on whatever
// goes out, and take as many off what comes in, as devices of VLANs do: the outermost tag
// stays beside the frame.
func PushTags(t testing.TB, ns, device string, tags ...uint16) (remove func()) {
	t.Helper()
	push := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	pop := slices.Clone(push)
	for i, kind := range tags {
		push = append(push, asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, int32(kind>>8|kind<<8)), asm.Mov.Imm(asm.R3, int32(100+i)), asm.FnSkbVlanPush.Call())
		pop = append(pop, asm.Mov.Reg(asm.R1, asm.R6), asm.FnSkbVlanPop.Call())
	}
	var links []io.Closer
	index := Index(t, ns, device)
	for _, at := range []struct {
		code  asm.Instructions
		where ebpf.AttachType
	}{{push, ebpf.AttachTCXEgress}, {pop, ebpf.AttachTCXIngress}} {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "tags", Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: append(at.code, asm.Mov.Imm(asm.R0, -1), asm.Return()),
		})
		if err != nil {
			t.Fatal(err)
		}
		err = netns.Do(ns, func() error {
			l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: index, Attach: at.where})
			if err == nil {
				links = append(links, l)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		links = append(links, p)
	}
	return func() {
		for _, l := range links {
			l.Close()
		}
	}
}
