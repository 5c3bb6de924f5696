package vport_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"vigia/internal/bpf/vport"
	"vigia/internal/netns"
)

// What a program says of a packet in a chain of TCX.
const (
	chainNext = -1
	chainPass = 0 // and no further program is asked
)

// counting is a program of somebody else's on the vport, as CNIs have them: it counts packets.
type counting struct {
	t    *testing.T
	seen *ebpf.Map
	link link.Link
}

// foreign attaches a program to what the guest sends, before or after all that are there.
func (r *rig) foreign(verdict int32, anchor link.Anchor) *counting {
	r.t.Helper()
	seen, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { seen.Close() })
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1), // the packet
			asm.Mov.Imm(asm.R0, 0), asm.StoreMem(asm.RFP, -4, asm.R0, asm.Word),
			asm.LoadMem(asm.R7, asm.R6, 16, asm.Word), // skb->protocol
			asm.JNE.Imm(asm.R7, 0x0008, "verdict"),    // IPv4 alone is counted
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, seen.FD()), asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "verdict"),
			asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, verdict).WithSymbol("verdict"), asm.Return(),
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { program.Close() })
	c := &counting{t: r.t, seen: seen}
	err = netns.Do(r.Node, func() (err error) {
		c.link, err = link.AttachTCX(link.TCXOptions{Program: program, Interface: r.Index, Attach: ebpf.AttachTCXIngress, Anchor: anchor})
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.link.Close() })
	return c
}

func (c *counting) count() (n uint64) {
	c.t.Helper()
	if err := c.seen.Lookup(uint32(0), &n); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// chain returns the programs on what the guest sends, in their order.
func (r *rig) chain() (ids []ebpf.ProgramID) {
	r.t.Helper()
	err := netns.Do(r.Node, func() error {
		res, err := link.QueryPrograms(link.QueryOptions{Target: r.Index, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return fmt.Errorf("query: %w", err)
		}
		for _, p := range res.Programs {
			ids = append(ids, p.ID)
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return ids
}

// TestForeignTCXProgramsGoOn puts programs of somebody else's before and after ours, as a CNI may when either of the two
// starts again: both see every packet, what we drop they do not see behind us, and theirs stay when ours go.
func TestForeignTCXProgramsGoOn(t *testing.T) {
	for name, c := range map[string]struct {
		earlier bool        // there before ours
		anchor  link.Anchor // where it goes
		verdict int32
		before  bool // ours is asked first
	}{
		"theirs was there, and ends the chain": {earlier: true, anchor: link.Tail(), verdict: chainPass, before: true},
		"theirs was there, and goes on":        {earlier: true, anchor: link.Head(), verdict: chainNext, before: true},
		"theirs came behind, and ends":         {anchor: link.Tail(), verdict: chainPass, before: true},
		"theirs came before, and goes on":      {anchor: link.Head(), verdict: chainNext},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			m := r.open()
			attach := func() {
				t.Helper()
				if err := m.Attach(r.Index, vport.TCX); err != nil {
					t.Fatal(err)
				}
			}
			if !c.earlier {
				attach()
			}
			theirs := r.foreign(c.verdict, c.anchor)
			attach() // as every look does
			if got := len(r.chain()); got != 2 {
				t.Fatalf("%d programs in the chain, want theirs and ours", got)
			}
			if got := r.Send(10, 100); got != 10 {
				t.Fatalf("%d of 10 arrived", got)
			}
			ours := func() uint64 { return r.counters(m).Packets[vport.FromTenant][udp] }
			if ours() != 10 || theirs.count() != 10 {
				t.Errorf("we counted %d, they counted %d, want 10 each", ours(), theirs.count())
			}
			if err := m.SetLimit(r.Index, vport.LimitRequest{ID: [16]byte{1}, Rate: 1, Burst: 5 * 142, TTL: time.Minute}); err != nil {
				t.Fatal(err)
			}
			arrived := r.Send(10, 100)
			if arrived == 0 || arrived > 5 {
				t.Errorf("%d of 10 arrived under a limit of 5", arrived)
			}
			want := uint64(20)
			if c.before {
				want = uint64(10 + arrived)
			}
			if theirs.count() != want {
				t.Errorf("they counted %d, want %d", theirs.count(), want)
			}
			if err := m.Uninstall(); err != nil {
				t.Fatal(err)
			}
			if got := len(r.chain()); got != 1 {
				t.Errorf("%d programs are left, want theirs alone", got)
			}
			if got := r.Send(10, 100); got != 10 {
				t.Errorf("%d of 10 arrived without us", got)
			}
			if theirs.count() != want+10 {
				t.Errorf("without us they counted %d, want %d", theirs.count(), want+10)
			}
		})
	}
}
