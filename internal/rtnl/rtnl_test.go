package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
	"vigia/internal/testutil"
)

func dialTest(t *testing.T, ns string) *Conn {
	t.Helper()
	c, err := Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func linkByName(t *testing.T, c *Conn, name string) Link {
	t.Helper()
	links, err := c.Links()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Name == name {
			return l
		}
	}
	t.Fatalf("no interface %s among %+v", name, links)
	return Link{}
}

func TestLinks(t *testing.T) {
	a, b := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, a, "port0", b, "eth0")
	testutil.IP(t, "-n", a, "link", "set", "port0", "address", "02:00:00:00:00:07")
	testutil.IP(t, "-n", a, "link", "add", "br0", "type", "bridge")
	testutil.IP(t, "-n", a, "link", "set", "port0", "master", "br0")
	c := dialTest(t, a)
	port, bridge := linkByName(t, c, "port0"), linkByName(t, c, "br0")
	if port.MAC.String() != "02:00:00:00:00:07" || port.Kind != "veth" || !port.Up || port.Master != bridge.Index {
		t.Errorf("port0: %+v", port)
	}
	if bridge.Kind != "bridge" || bridge.Up || bridge.Master != 0 {
		t.Errorf("br0: %+v", bridge)
	}
	testutil.IP(t, "-n", b, "link", "set", "eth0", "down") // no carrier at the other end
	if linkByName(t, c, "port0").Up {
		t.Error("port0 counts as up without a carrier")
	}
}

func TestStatsEqualSysfs(t *testing.T) {
	a, b := testutil.NewNetNS(t), testutil.NewNetNS(t)
	for _, ns := range []string{a, b} { // nothing is sent that the test does not send
		testutil.DisableIPv6(t, ns)
	}
	testutil.NewVethPair(t, a, "port0", b, "eth0")
	testutil.IP(t, "-n", a, "addr", "add", "10.8.0.1/24", "dev", "port0")
	testutil.IP(t, "-n", b, "addr", "add", "10.8.0.2/24", "dev", "eth0")
	testutil.Run(t, "ip", "netns", "exec", b, "ping", "-c5", "-i0.2", "-W5", "-s400", "10.8.0.1")
	testutil.IP(t, "-n", b, "link", "set", "eth0", "down") // nothing moves any more
	c := dialTest(t, a)
	var all StatsTable
	for range 2 { // the second time into the first's place
		if err := c.Stats(&all); err != nil {
			t.Fatal(err)
		}
	}
	index := linkByName(t, c, "port0").Index
	got := all.Get(index)
	if got == nil || all.Len() != 2 || all.Get(12345) != nil {
		t.Fatalf("%d interfaces, port0 is %v; want lo and port0", all.Len(), got)
	}
	read := func(name string) uint64 {
		out := testutil.Run(t, "ip", "netns", "exec", a, "cat", "/sys/class/net/port0/statistics/"+name)
		v, err := strconv.ParseUint(strings.TrimSpace(out), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	// The kernel may still send something of its own, between one reading and the other.
	differ := ""
	testutil.WaitFor(t, "both to say the same", func() bool {
		if err := c.Stats(&all); err != nil {
			t.Fatal(err)
		}
		got, differ = all.Get(index), ""
		for name, v := range map[string]uint64{
			"rx_packets": got.RxPackets, "tx_packets": got.TxPackets, "rx_bytes": got.RxBytes, "tx_bytes": got.TxBytes,
			"rx_dropped": got.RxDropped, "tx_dropped": got.TxDropped, "rx_errors": got.RxErrors, "multicast": got.Multicast,
		} {
			if want := read(name); v != want {
				differ += fmt.Sprintf("%s: got %d, sysfs says %d; ", name, v, want)
			}
		}
		if differ != "" {
			t.Log(differ)
		}
		return differ == ""
	})
	if got.RxPackets < 5 || got.RxBytes < 5*400 {
		t.Errorf("too little was counted: %+v", got)
	}
}

func TestATableFollowsWhatComesAndGoes(t *testing.T) {
	ns := testutil.NewNetNS(t)
	c := dialTest(t, ns)
	var table StatsTable
	there := map[string]int{}
	for _, step := range []struct{ op, name string }{
		{"add", "one"}, {"add", "two"}, {"add", "three"}, {"", ""}, {"del", "two"}, {"add", "four"}, {"del", "four"}, {"del", "one"}, {"", ""},
	} {
		gone := 0
		switch step.op {
		case "add":
			testutil.IP(t, "-n", ns, "link", "add", step.name, "type", "ifb")
			there[step.name] = linkByName(t, c, step.name).Index
		case "del":
			testutil.IP(t, "-n", ns, "link", "del", step.name)
			gone = there[step.name]
			delete(there, step.name)
		}
		if err := c.Stats(&table); err != nil {
			t.Fatal(err)
		}
		if table.Len() != len(there)+1 || table.Get(1) == nil || (gone != 0 && table.Get(gone) != nil) {
			t.Errorf("%s %s: %d interfaces, of %d and lo", step.op, step.name, table.Len(), len(there))
		}
		for name, index := range there {
			if table.Get(index) == nil {
				t.Errorf("%s %s: %s is not in the table", step.op, step.name, name)
			}
		}
	}
}

// TestRowsOfAListThatWasBegunAgain has the interfaces change since the last list, and the new one be interrupted after that.
func TestRowsOfAListThatWasBegunAgain(t *testing.T) {
	var table StatsTable
	add := func(indices ...int) {
		table.begin()
		for _, index := range indices {
			table.add(index, Stats{RxBytes: uint64(index)})
		}
	}
	for _, tries := range [][][]int{
		{{5, 6, 7}},
		{{6, 7, 900}, {6, 7, 900}},       // 5 went, and 900 came
		{{6}, {6, 7, 900}},               // the same, interrupted
		{{6, 7, 8, 900}, {6, 7, 900}},    // 8 came and went
		{{6, 7, 900, 901}, {6, 7, 1000}}, // another one
		{{}, {7}},
	} {
		for _, indices := range tries {
			add(indices...)
		}
		table.end()
		last := tries[len(tries)-1]
		for index := range 1001 {
			row := table.Get(index)
			if there := slices.Contains(last, index); there != (row != nil) || there && row.RxBytes != uint64(index) {
				t.Errorf("after %v: interface %d has %+v", tries, index, row)
			}
		}
		if table.Len() != len(last) {
			t.Errorf("after %v: %d rows", tries, table.Len())
		}
	}
}

func TestReadingStatisticsCostsNoMemory(t *testing.T) {
	ns := testutil.NewNetNS(t)
	for i := range 30 {
		testutil.IP(t, "-n", ns, "link", "add", "i"+strconv.Itoa(i), "type", "ifb")
	}
	c := dialTest(t, ns)
	var table StatsTable
	n := testing.AllocsPerRun(50, func() {
		if err := c.Stats(&table); err != nil {
			t.Fatal(err)
		}
	})
	if table.Len() != 31 || n > 3 {
		t.Errorf("%v allocations for %d interfaces", n, table.Len())
	}
}

func TestNamespacesAreApart(t *testing.T) {
	a := testutil.NewNetNS(t)
	testutil.IP(t, "-n", a, "link", "add", "only-here", "type", "bridge")
	own := dialTest(t, "")
	links, err := own.Links()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Name == "only-here" {
			t.Error("the own namespace shows another one's interface")
		}
	}
	if _, err := Dial("vigia-test-absent"); err == nil || !strings.Contains(err.Error(), "vigia-test-absent") {
		t.Errorf("absent namespace: %v", err)
	}
}

func TestWatch(t *testing.T) {
	ns := testutil.NewNetNS(t)
	w, err := Watch(ns)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		testutil.IP(t, "-n", ns, "link", "add", fmt.Sprintf("d%d", i), "type", "bridge")
		testutil.WaitFor(t, fmt.Sprintf("the event of interface %d", i), func() bool { return len(w.changes) > 0 })
		<-w.Changes()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.Done():
	default:
		t.Error("Done is open after Close")
	}
}

// TestAnInterfaceWithHundredsOfNamesIsListed has one whose message is larger than a page
// of a dump, and one behind it.
func TestAnInterfaceWithHundredsOfNamesIsListed(t *testing.T) {
	ns := testutil.NewNetNS(t)
	testutil.IP(t, "-n", ns, "link", "add", "much0", "type", "ifb")
	testutil.IP(t, "-n", ns, "link", "add", "behind0", "type", "ifb")
	var batch strings.Builder
	for i := range 300 {
		fmt.Fprintf(&batch, "link property add dev much0 altname %s%03d\n", strings.Repeat("n", 120), i)
	}
	cmd := exec.Command("ip", "-n", ns, "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := dialTest(t, ns)
	for _, name := range []string{"lo", "much0", "behind0"} {
		linkByName(t, c, name)
	}
}

func TestParseRefusesShortMessages(t *testing.T) {
	if _, err := parseLink(make([]byte, 15)); err == nil {
		t.Error("short link was accepted")
	}
	if _, _, err := parseStats(make([]byte, 11)); err == nil {
		t.Error("short statistics were accepted")
	}
	if _, _, err := parseStats(make([]byte, sizeofIfStatsMsg)); err == nil {
		t.Error("statistics without counters were accepted")
	}
	e := netlink.NewEncoder(make([]byte, sizeofIfStatsMsg))
	e.Bytes(unix.IFLA_STATS_LINK_64, make([]byte, statsFields*8-1))
	message, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := parseStats(message); !errors.Is(err, netlink.ErrShort) {
		t.Errorf("too few counters: %v", err)
	}
}

func TestParseStatsOfOldKernel(t *testing.T) {
	b := make([]byte, statsFields*8)
	for i := range statsFields {
		binary.NativeEndian.PutUint64(b[i*8:], uint64(i+1))
	}
	s := parseStats64(b)
	if s.RxPackets != 1 || s.TxDropped != 8 || s.NoHandler != 24 || s.RxOtherhostDropped != 0 {
		t.Errorf("got %+v", s)
	}
}
