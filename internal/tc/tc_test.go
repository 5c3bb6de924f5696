package tc

import (
	"errors"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

const ours = 0x1150

// bed is a namespace with a veth device to work on.
func bed(t *testing.T) (c *Conn, ns string, link int) {
	t.Helper()
	ns = testutil.NewNetNS(t)
	testutil.DisableIPv6(t, ns) // nothing is sent that the test does not send
	testutil.NewVethPair(t, ns, "up0", ns, "up1")
	c, err := Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if link, err = c.LinkIndex("up0"); err != nil {
		t.Fatal(err)
	}
	return c, ns, link
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestHTBIsWrittenChangedAndReadBack(t *testing.T) {
	c, _, link := bed(t)
	root := MakeHandle(ours, 0)
	must(t, c.AddQdisc(Qdisc{Link: link, Handle: root, Parent: Root, Kind: "htb", Default: 2}))
	class := Class{
		Link: link, Handle: MakeHandle(ours, 0x10), Parent: root, Kind: "htb",
		Rate: 6_000_000_000, Ceil: 7_000_000_000, Burst: 300_000, Quantum: 20_000, Prio: 3,
	}
	must(t, c.ReplaceClass(class))
	class.Rate, class.Quantum = 1_000_000, 30_000
	must(t, c.ReplaceClass(class))
	must(t, c.AddQdisc(Qdisc{Link: link, Handle: MakeHandle(0x10, 0), Parent: class.Handle, Kind: "pfifo", Limit: 32}))
	must(t, c.ReplaceQdisc(Qdisc{Link: link, Handle: MakeHandle(0x10, 0), Parent: class.Handle, Kind: "pfifo", Limit: 77}))

	classes, err := c.Classes(link, nil)
	must(t, err)
	class.Leaf, class.Parent = MakeHandle(0x10, 0), Root // the kernel shows a class below the qdisc so
	if len(classes) != 1 {
		t.Fatalf("classes %+v", classes)
	}
	if got := classes[0].Burst; got < 299_000 || got > 301_000 { // it is kept in ticks of 64 ns
		t.Errorf("burst reads back as %d", got)
	}
	classes[0].Burst = class.Burst
	if diff := cmp.Diff([]Class{class}, classes); diff != "" {
		t.Errorf("class (-want +got):\n%s", diff)
	}
	qdiscs, err := c.Qdiscs(link)
	must(t, err)
	want := []Qdisc{
		{Link: link, Handle: root, Parent: Root, Kind: "htb", Default: 2},
		{Link: link, Handle: MakeHandle(0x10, 0), Parent: class.Handle, Kind: "pfifo", Limit: 77},
	}
	if diff := cmp.Diff(want, qdiscs); diff != "" {
		t.Errorf("qdiscs (-want +got):\n%s", diff)
	}
	if one, err := c.Class(link, class.Handle); err != nil || one.Rate != class.Rate || one.Ceil != class.Ceil {
		t.Errorf("one class: %+v %v", one, err)
	}
	must(t, c.DeleteClass(link, class.Handle))
	must(t, c.DeleteClass(link, class.Handle))
	if _, err := c.Class(link, class.Handle); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a class that is gone: %v", err)
	}
	if classes, err = c.Classes(link, nil); err != nil || len(classes) != 0 {
		t.Errorf("after deletion: %v %v", classes, err)
	}
}

func TestAForeignRootQdiscIsRefusedAndStays(t *testing.T) {
	c, ns, link := bed(t)
	testutil.Run(t, "tc", "-n", ns, "qdisc", "add", "dev", "up0", "root", "handle", "1:", "tbf", "rate", "10mbit", "burst", "20k", "limit", "30k")
	before := testutil.Run(t, "tc", "-n", ns, "qdisc", "show", "dev", "up0")
	err := c.AddQdisc(Qdisc{Link: link, Handle: MakeHandle(ours, 0), Parent: Root, Kind: "htb", Default: 2})
	if !errors.Is(err, unix.EEXIST) {
		t.Errorf("error %v, want EEXIST", err)
	}
	if after := testutil.Run(t, "tc", "-n", ns, "qdisc", "show", "dev", "up0"); after != before {
		t.Errorf("the foreign qdisc was %q and is %q", before, after)
	}
}

// constant returns a classifier that always gives the same answer.
func constant(t *testing.T, answer int32) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, answer), asm.Return()},
	})
	must(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

func TestIngressIsRedirectedThroughAnIFBDevice(t *testing.T) {
	c, ns, link := bed(t)
	ifb, err := c.EnsureIFB("vt-ifb0")
	must(t, err)
	if again, err := c.EnsureIFB("vt-ifb0"); err != nil || again != ifb {
		t.Fatalf("made again: %d %v, want %d", again, err, ifb)
	}
	must(t, c.AddQdisc(Qdisc{Link: ifb, Handle: MakeHandle(ours, 0), Parent: Root, Kind: "htb", Default: 2}))
	must(t, c.ReplaceClass(Class{Link: ifb, Handle: MakeHandle(ours, 2), Parent: MakeHandle(ours, 0), Rate: 1e8, Ceil: 1e8, Burst: 100_000, Quantum: 10_000}))
	must(t, c.AddQdisc(Qdisc{Link: link, Handle: MakeHandle(0xffff, 0), Parent: Clsact, Kind: "clsact"}))
	all := constant(t, -1)
	info, err := all.Info()
	must(t, err)
	id, _ := info.ID()
	want := Filter{
		Link: link, Parent: ClsactIngress, Priority: 0xA150, Handle: 1, Kind: "bpf", Name: "vigia", Program: uint32(id), Redirect: ifb,
	}
	for range 2 { // again is the same filter, not another
		f := want
		f.FD = all.FD()
		must(t, c.ReplaceFilter(f))
	}
	filters, err := c.Filters(link, ClsactIngress)
	must(t, err)
	if diff := cmp.Diff([]Filter{want}, filters); diff != "" {
		t.Errorf("filters (-want +got):\n%s", diff)
	}
	testutil.IP(t, "-n", ns, "addr", "add", "10.9.9.1/24", "dev", "up1")
	testutil.IP(t, "-n", ns, "neigh", "add", "10.9.9.9", "lladdr", "02:00:00:00:00:09", "dev", "up1")
	testutil.Run(t, "sh", "-c", "ip netns exec "+ns+" ping -c 5 -i 0.05 -W 1 10.9.9.9 >/dev/null; true")
	testutil.WaitFor(t, "the pings in the class of the IFB device", func() bool {
		classes, err := c.Classes(ifb, nil)
		must(t, err)
		return slices.ContainsFunc(classes, func(k Class) bool { return k.Stats.Packets >= 5 && k.Stats.Bytes >= 5*98 })
	})
	must(t, c.DeleteFilter(link, ClsactIngress, 0xA150))
	must(t, c.DeleteFilter(link, ClsactIngress, 0xA150))
	if filters, err = c.Filters(link, ClsactIngress); err != nil || len(filters) != 0 {
		t.Errorf("after deletion: %v %v", filters, err)
	}
	must(t, c.DeleteIFB("vt-ifb0"))
	must(t, c.DeleteIFB("vt-ifb0"))
}

func TestADeviceOfAnotherKindIsNoIFB(t *testing.T) {
	c, _, _ := bed(t)
	if _, err := c.EnsureIFB("up0"); err == nil {
		t.Error("a veth device was taken for an IFB device")
	}
	must(t, c.DeleteIFB("up0"))
	if _, err := c.LinkIndex("up0"); err != nil {
		t.Errorf("the veth device was deleted: %v", err)
	}
	if _, err := c.LinkIndex("none"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("missing interface: %v", err)
	}
}

func FuzzMessagesFromTheKernel(f *testing.F) {
	f.Add(make([]byte, 40))
	f.Add(append(make([]byte, sizeofTcmsg), 8, 0, 1, 0, 'h', 't', 'b', 0))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if len(b) < sizeofTcmsg {
			return
		}
		_, _ = parseQdisc(b)
		_, _ = parseClass(b)
		_, _ = parseFilter(b)
	})
}
