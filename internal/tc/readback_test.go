package tc

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

// shown is what tc(8) says of a qdisc or class: another reader than this package.
type shown struct {
	Kind string `json:"kind"`
}

func showQdiscs(t *testing.T, ns, device string) (out []shown) {
	t.Helper()
	text := testutil.Run(t, "tc", "-n", ns, "-j", "qdisc", "show", "dev", device)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

// classRE is a class as tc(8) writes it.
var classRE = regexp.MustCompile(`(?m)^class htb (\S+) .*prio (\d+) rate (\d+)(G|M|K|)bit ceil (\d+)(G|M|K|)bit .*\n` +
	` Sent (\d+) bytes (\d+) pkt \(dropped (\d+), .*\n backlog (\d+)b (\d+)p`)

// toolClass is a class as tc(8) knows it. Rates are written in whole units, cut off.
type toolClass struct {
	prio       uint32
	rate, ceil [2]uint64 // bits per second: at least, and less than
	stats      Stats
}

func showClasses(t *testing.T, ns, device string) map[string]toolClass {
	t.Helper()
	out := make(map[string]toolClass)
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	between := func(n, unit string) [2]uint64 {
		factor := map[string]uint64{"": 1, "K": 1e3, "M": 1e6, "G": 1e9}[unit]
		return [2]uint64{number(n) * factor, (number(n) + 1) * factor}
	}
	for _, m := range classRE.FindAllStringSubmatch(testutil.Run(t, "tc", "-n", ns, "-s", "class", "show", "dev", device), -1) {
		out[m[1]] = toolClass{
			prio: uint32(number(m[2])), rate: between(m[3], m[4]), ceil: between(m[5], m[6]),
			stats: Stats{
				Bytes: number(m[7]), Packets: number(m[8]), Drops: uint32(number(m[9])), Backlog: uint32(number(m[10])), Queued: uint32(number(m[11])),
			},
		}
	}
	return out
}

// TestRandomClassesReadBackAsTheyWereWritten writes classes of random rates and reads
// them by this package and by tc(8).
func TestRandomClassesReadBackAsTheyWereWritten(t *testing.T) {
	c, ns, link := bed(t)
	root := MakeHandle(ours, 0)
	must(t, c.AddQdisc(Qdisc{Link: link, Handle: root, Parent: Root, Kind: "htb", Default: 2}))
	r := rand.New(rand.NewPCG(3, 4))
	want := make(map[Handle]Class)
	for i := range 120 { // more than one piece of a dump
		rate := 1 + r.Uint64N(1<<(10+uint(i)%26)) // up to 34 Gbit/s and more: rates of 32 and of 64 bits
		k := Class{
			Link: link, Handle: MakeHandle(ours, uint16(0x100+i)), Parent: root, Kind: "htb", Rate: rate, Ceil: rate + r.Uint64N(1<<30),
			Burst: 2000 + r.Uint32N(60_000), Quantum: 1000 + r.Uint32N(100_000), Prio: r.Uint32N(8),
		}
		must(t, c.ReplaceClass(k))
		k.Parent = Root // the kernel shows a class below the qdisc so
		want[k.Handle] = k
	}
	classes, err := c.Classes(link, nil)
	must(t, err)
	if len(classes) != len(want) {
		t.Fatalf("%d classes, want %d", len(classes), len(want))
	}
	byTool := showClasses(t, ns, "up0")
	within := func(bytes uint64, bounds [2]uint64) bool { return 8*bytes >= bounds[0] && 8*bytes < bounds[1] }
	for _, got := range classes {
		k := want[got.Handle]
		// A burst is kept as time, in ticks of 64 ns, of 32 bits: slow classes lose some.
		if got.Burst != k.KeptBurst() {
			t.Errorf("%s: a burst of %d reads %d, and should be kept as %d", got.Handle, k.Burst, got.Burst, k.KeptBurst())
		}
		got.Burst = k.Burst
		if got != k {
			t.Errorf("%s reads %+v, want %+v", got.Handle, got, k)
		}
		if tool := byTool[got.Handle.String()]; !within(k.Rate, tool.rate) || !within(k.Ceil, tool.ceil) || tool.prio != k.Prio {
			t.Errorf("%s is %+v to tc(8), want %+v", got.Handle, tool, k)
		}
		one, err := c.Class(link, got.Handle)
		one.Burst = k.Burst
		if err != nil || one != k {
			t.Errorf("%s alone reads %+v, %v", got.Handle, one, err)
		}
	}
	// What is read again goes into the same memory.
	again, err := c.Classes(link, classes[:0])
	if err != nil || &again[0] != &classes[0] || len(again) != len(want) {
		t.Errorf("%d classes into the memory of the first time, %v", len(again), err)
	}
}

func TestReadingClassesCostsNoMemory(t *testing.T) {
	c, _, link := bed(t)
	root := MakeHandle(ours, 0)
	must(t, c.AddQdisc(Qdisc{Link: link, Handle: root, Parent: Root, Kind: "htb", Default: 2}))
	for i := range 50 {
		must(t, c.ReplaceClass(Class{Link: link, Handle: MakeHandle(ours, uint16(0x10+i)), Parent: root, Rate: 1e6, Ceil: 1e6, Burst: 1e5, Quantum: 1e4}))
	}
	classes, err := c.Classes(link, nil)
	must(t, err)
	qdiscs, err := c.AllQdiscs(nil)
	must(t, err)
	for name, read := range map[string]func(){
		"50 classes": func() { classes, err = c.Classes(link, classes[:0]); must(t, err) },
		"qdiscs":     func() { qdiscs, err = c.AllQdiscs(qdiscs[:0]); must(t, err) },
		"one class":  func() { _, err = c.Class(link, MakeHandle(ours, 0x20)); must(t, err) },
	} {
		if n := testing.AllocsPerRun(20, read); n > 6 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestQdiscsAreWhatTheToolShows(t *testing.T) {
	c, ns, link := bed(t)
	testutil.IP(t, "-n", ns, "link", "add", "other0", "type", "ifb")
	testutil.IP(t, "-n", ns, "link", "set", "other0", "up")
	testutil.Run(t, "tc", "-n", ns, "qdisc", "add", "dev", "other0", "root", "handle", "7:", "tbf", "rate", "10mbit", "burst", "20k", "limit", "30k")
	must(t, c.AddQdisc(Qdisc{Link: link, Handle: MakeHandle(ours, 0), Parent: Root, Kind: "htb", Default: 0x22}))
	must(t, c.ReplaceClass(Class{Link: link, Handle: MakeHandle(ours, 0x22), Parent: MakeHandle(ours, 0), Rate: 1e9, Ceil: 1e9, Burst: 1e5, Quantum: 1e4}))
	must(t, c.AddQdisc(Qdisc{Link: link, Handle: MakeHandle(0x33, 0), Parent: MakeHandle(ours, 0x22), Kind: "bfifo", Limit: 123456}))
	must(t, c.AddQdisc(Qdisc{Link: link, Handle: MakeHandle(0xffff, 0), Parent: Clsact, Kind: "clsact"}))
	all, err := c.AllQdiscs(nil)
	must(t, err)
	byLink := make(map[int][]string)
	for _, q := range all {
		byLink[q.Link] = append(byLink[q.Link], q.Kind)
	}
	listed := 0
	for _, device := range []string{"up0", "up1", "other0", "lo"} {
		index, err := c.LinkIndex(device)
		must(t, err)
		for _, q := range showQdiscs(t, ns, device) {
			listed++
			if !slices.Contains(byLink[index], q.Kind) {
				t.Errorf("tc(8) shows the qdisc %s of %s, which is not among %v", q.Kind, device, byLink[index])
			}
		}
	}
	if listed != len(all) {
		t.Errorf("%d qdiscs, tc(8) shows %d", len(all), listed)
	}
	own, err := c.Qdiscs(link)
	must(t, err)
	for _, want := range []Qdisc{
		{Link: link, Handle: MakeHandle(ours, 0), Parent: Root, Kind: "htb", Default: 0x22},
		{Link: link, Handle: MakeHandle(0x33, 0), Parent: MakeHandle(ours, 0x22), Kind: "bfifo", Limit: 123456},
		{Link: link, Handle: MakeHandle(0xffff, 0), Parent: Clsact, Kind: "clsact"},
	} {
		if !slices.Contains(own, want) {
			t.Errorf("no %+v among %+v", want, own)
		}
	}
}

// TestCountsOfAClassAreTheToolsCounts overfills a class that lets nothing through.
func TestCountsOfAClassAreTheToolsCounts(t *testing.T) {
	c, ns, link := bed(t)
	root, class := MakeHandle(ours, 0), MakeHandle(ours, 2)
	must(t, c.AddQdisc(Qdisc{Link: link, Handle: root, Parent: Root, Kind: "htb", Default: 2}))
	must(t, c.ReplaceClass(Class{Link: link, Handle: class, Parent: root, Rate: 1, Ceil: 1, Burst: 200, Quantum: 1500}))
	must(t, c.AddQdisc(Qdisc{Link: link, Handle: MakeHandle(0x44, 0), Parent: class, Kind: "pfifo", Limit: 5}))
	testutil.IP(t, "-n", ns, "addr", "add", "10.9.9.1/24", "dev", "up0")
	testutil.IP(t, "-n", ns, "neigh", "add", "10.9.9.9", "lladdr", "02:00:00:00:00:09", "dev", "up0")
	testutil.Run(t, "sh", "-c", "ip netns exec "+ns+" ping -c 15 -i 0.01 -s 200 -W 1 10.9.9.9 >/dev/null; true")
	var got Class
	testutil.WaitFor(t, "this package and tc(8) to say the same", func() bool {
		var err error
		got, err = c.Class(link, class)
		must(t, err)
		return got.Stats == showClasses(t, ns, "up0")[class.String()].stats
	})
	if s := got.Stats; s.Drops == 0 || s.Queued == 0 || s.Backlog == 0 {
		t.Errorf("a full queue has %+v", s)
	}
	qdiscs, err := c.Qdiscs(link)
	must(t, err)
	for _, q := range qdiscs {
		if q.Kind == "pfifo" && q.Stats.Drops != got.Stats.Drops {
			t.Errorf("the class dropped %d, its queue %d", got.Stats.Drops, q.Stats.Drops)
		}
	}
}

func TestRefusalsNameWhatWasToBeDone(t *testing.T) {
	c, _, link := bed(t)
	for name, tc := range map[string]struct {
		do   func() error
		is   error
		want string
	}{
		"a class without a qdisc": {
			func() error {
				return c.ReplaceClass(Class{Link: link, Handle: MakeHandle(ours, 1), Parent: MakeHandle(ours, 0), Rate: 1})
			},
			nil, "set class 1150:1 of interface " + strconv.Itoa(link),
		},
		"an unknown kind": {
			func() error {
				return c.AddQdisc(Qdisc{Link: link, Handle: MakeHandle(ours, 0), Parent: Root, Kind: "no-such"})
			},
			unix.ENOENT, "set qdisc no-such 1150:0",
		},
		"an interface that is not there": {
			func() error {
				return c.AddQdisc(Qdisc{Link: 424242, Handle: MakeHandle(ours, 0), Parent: Root, Kind: "htb"})
			},
			unix.ENODEV, "of interface 424242",
		},
		"a program that is none": {
			func() error {
				must(t, c.AddQdisc(Qdisc{Link: link, Handle: MakeHandle(0xffff, 0), Parent: Clsact, Kind: "clsact"}))
				return c.ReplaceFilter(Filter{Link: link, Parent: ClsactIngress, Priority: 1, Handle: 1, FD: 424242, Name: "x"})
			},
			nil, "set filter x of interface",
		},
		"the class of an interface that is not there": {
			func() error { _, err := c.Class(424242, MakeHandle(ours, 1)); return err }, unix.ENODEV, "read class 1150:1 of interface 424242",
		},
	} {
		if err := tc.do(); err == nil || tc.is != nil && !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What is not there can be deleted as often as one likes.
	for range 2 {
		must(t, c.DeleteClass(424242, MakeHandle(ours, 1)))
		must(t, c.DeleteQdisc(424242, MakeHandle(ours, 0), Root))
		must(t, c.DeleteFilter(424242, ClsactIngress, 1))
		must(t, c.DeleteFilter(link, ClsactEgress, 77))
		must(t, c.DeleteOneFilter(Filter{Link: link, Parent: ClsactIngress, Priority: 1, Handle: 9}))
	}
}

func TestOneFilterOfSeveralIsDeleted(t *testing.T) {
	c, _, link := bed(t)
	must(t, c.AddQdisc(Qdisc{Link: link, Handle: MakeHandle(0xffff, 0), Parent: Clsact, Kind: "clsact"}))
	program := constant(t, -1)
	filter := func(handle uint32, direct bool) Filter {
		return Filter{Link: link, Parent: ClsactEgress, Priority: 5, Handle: handle, Name: fmt.Sprintf("f%d", handle), FD: program.FD(), Direct: direct}
	}
	for handle := range uint32(3) {
		must(t, c.ReplaceFilter(filter(handle+1, handle == 1)))
	}
	must(t, c.DeleteOneFilter(filter(2, true)))
	filters, err := c.Filters(link, ClsactEgress)
	must(t, err)
	var names []string
	for _, f := range filters {
		names = append(names, f.Name)
		if f.Direct || f.Priority != 5 || f.Program == 0 || f.Redirect != 0 {
			t.Errorf("%+v", f)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"f1", "f3"}) {
		t.Errorf("left are %v", names)
	}
	must(t, c.ReplaceFilter(filter(2, true)))
	filters, err = c.Filters(link, ClsactEgress)
	must(t, err)
	if !slices.ContainsFunc(filters, func(f Filter) bool { return f.Name == "f2" && f.Direct }) {
		t.Errorf("no direct filter among %+v", filters)
	}
	must(t, c.DeleteFilter(link, ClsactEgress, 5))
	if filters, err = c.Filters(link, ClsactEgress); err != nil || len(filters) != 0 {
		t.Errorf("%+v, %v after all of the priority went", filters, err)
	}
}

// TestNamesOfInterfacesAreNotTrusted asks for devices by names that are none.
func TestNamesOfInterfacesAreNotTrusted(t *testing.T) {
	c, _, _ := bed(t)
	for _, name := range []string{"", "a/b", strings.Repeat("x", 300), "absent0", "..", "a b"} {
		if index, err := c.LinkIndex(name); err == nil {
			t.Errorf("%q is interface %d", name, index)
		}
		if index, err := c.EnsureIFB(name); err == nil && name != "absent0" {
			t.Errorf("%q was made, interface %d", name, index)
		}
	}
	must(t, c.DeleteIFB("absent0"))
	if _, err := c.LinkIndex("absent0"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("after its deletion: %v", err)
	}
}

func TestAConnectionThatIsClosedAnswersNothing(t *testing.T) {
	c, err := Dial(testutil.NewNetNS(t))
	must(t, err)
	must(t, c.Close())
	if _, err := c.AllQdiscs(nil); err == nil {
		t.Error("qdiscs were listed")
	}
	if err := c.DeleteQdisc(1, MakeHandle(1, 0), Root); err == nil {
		t.Error("a qdisc was deleted")
	}
	if _, err := Dial("vigia-test-absent"); err == nil {
		t.Error("a namespace that is not there was connected to")
	}
}
