package qdisc

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"vigia/exporters/tenant/source"
	"vigia/exporters/tenant/source/sourcetest"
	"vigia/internal/bpf/classify"
	"vigia/internal/bpf/vport"
	"vigia/internal/bpf/vport/vporttest"
	"vigia/internal/exposition"
	"vigia/internal/netns"
	"vigia/internal/ports"
	"vigia/internal/tc"
	"vigia/internal/testutil"
)

// uplink is a node with two tenants' ports on a bridge and an uplink whose schedulers are
// as the enforcer makes them: HTB on the uplink's egress, and on an IFB device behind its
// ingress. What the tenants send leaves by the uplink below a VLAN each.
type uplink struct {
	t         *testing.T
	node, far string
	pins      string
	manager   *vport.Manager
	programs  *classify.Programs
	conn      *tc.Conn
	up, ifb   int
	ports     []ports.Port
	tenants   []string // namespaces, of each port
	source    *Source
}

const (
	redClass  = 0x72dc // minor numbers of classes
	blueClass = 0x4242
	redRate   = 1_000_000 // bytes a second
	queue     = 8         // frames that a class keeps
	farMAC    = "02:00:00:00:00:fe"
)

var both = []string{"red", "blue"}

func newUplink(t *testing.T) *uplink {
	t.Helper()
	u := &uplink{t: t, node: testutil.NewNetNS(t), far: testutil.NewNetNS(t), pins: testutil.NewBPFFS(t)}
	for _, ns := range []string{u.node, u.far} {
		testutil.DisableIPv6(t, ns)
	}
	testutil.NewVethPair(t, u.node, "up0", u.far, "eth0")
	testutil.IP(t, "-n", u.far, "link", "set", "eth0", "address", farMAC)
	testutil.IP(t, "-n", u.far, "addr", "add", "10.6.0.254/24", "dev", "eth0")
	testutil.IP(t, "-n", u.node, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
	testutil.IP(t, "-n", u.node, "link", "set", "br0", "up")
	testutil.IP(t, "-n", u.node, "link", "set", "up0", "master", "br0")
	u.manager = vporttest.Open(t, vport.Options{PinDir: u.pins, NetNS: u.node, MaxPorts: 16})
	var err error
	if u.programs, err = classify.Open(classify.Dir(u.pins), 8); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.programs.Close() })
	if u.conn, err = tc.Dial(u.node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.conn.Close() })
	u.up = vporttest.Index(t, u.node, "up0")
	if u.ifb, err = u.conn.EnsureIFB(classify.IFBPrefix + strconv.Itoa(u.up)); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range both {
		u.plug(tenant)
	}
	u.schedule(u.up, u.programs.Send().FD())
	u.schedule(u.ifb, u.programs.Receive().FD())
	u.must(u.conn.AddQdisc(tc.Qdisc{Link: u.up, Handle: tc.MakeHandle(0xffff, 0), Parent: tc.Clsact, Kind: "clsact"}))
	u.must(u.conn.ReplaceFilter(tc.Filter{
		Link: u.up, Parent: tc.ClsactIngress, Priority: 1, Handle: 1, Kind: "bpf", Name: "all", FD: u.programs.All().FD(), Redirect: u.ifb,
	}))
	u.own(map[uint32]classify.Owner{major(redClass): {Tenant: "red"}, major(blueClass): {Tenant: "blue", Port: "p-blue-1"}})
	u.restart()
	return u
}

func major(minor uint16) uint32 { return uint32(tc.MakeHandle(vport.ClassMajor, minor)) }

func (u *uplink) must(err error) {
	u.t.Helper()
	if err != nil {
		u.t.Fatal(err)
	}
}

// plug gives a tenant one more port, with a MAC address that leads to its class.
func (u *uplink) plug(tenant string) {
	u.t.Helper()
	n := len(u.ports) + 1
	ns, device := testutil.NewNetNS(u.t), fmt.Sprintf("tap%d", n)
	testutil.DisableIPv6(u.t, ns)
	testutil.NewVethPair(u.t, u.node, device, ns, "eth0")
	mac := fmt.Sprintf("02:00:00:00:00:%02x", n)
	testutil.IP(u.t, "-n", ns, "link", "set", "eth0", "address", mac)
	testutil.IP(u.t, "-n", ns, "addr", "add", fmt.Sprintf("10.6.0.%d/24", n), "dev", "eth0")
	testutil.IP(u.t, "-n", ns, "neigh", "add", "10.6.0.254", "lladdr", farMAC, "dev", "eth0", "nud", "permanent")
	testutil.IP(u.t, "-n", u.far, "neigh", "add", fmt.Sprintf("10.6.0.%d", n), "lladdr", mac, "dev", "eth0", "nud", "permanent")
	testutil.IP(u.t, "-n", u.node, "link", "set", device, "master", "br0")
	index := vporttest.Index(u.t, u.node, device)
	u.must(u.manager.Attach(index, vport.TCX))
	u.ports = append(u.ports, ports.Port{ID: fmt.Sprintf("p-%s-%d", tenant, n), Tenant: tenant, Index: index, Device: device})
	u.tenants = append(u.tenants, ns)
	matches := make(map[classify.Match]uint32)
	for i := range u.ports {
		class := uint16(redClass)
		if u.ports[i].Tenant == "blue" {
			class = blueClass
		}
		matches[classify.Match{MAC: [6]byte{2, 0, 0, 0, 0, byte(i + 1)}}] = major(class)
	}
	_, err := u.programs.SetMatches(matches)
	u.must(err)
}

// schedule makes a tree of classes on a device.
func (u *uplink) schedule(link, program int) {
	u.t.Helper()
	root := tc.MakeHandle(vport.ClassMajor, 0)
	u.must(u.conn.AddQdisc(tc.Qdisc{Link: link, Handle: root, Parent: tc.Root, Kind: "htb", Default: 2}))
	for _, minor := range []uint16{2, redClass, blueClass} {
		u.class(link, minor, redRate)
	}
	u.must(u.conn.ReplaceFilter(tc.Filter{Link: link, Parent: root, Priority: 1, Handle: 1, Kind: "bpf", Name: "classify", FD: program}))
}

// class makes a class with a short queue.
func (u *uplink) class(link int, minor uint16, rate uint64) {
	u.t.Helper()
	handle := tc.MakeHandle(vport.ClassMajor, minor)
	u.must(u.conn.ReplaceClass(tc.Class{
		Link: link, Handle: handle, Parent: tc.MakeHandle(vport.ClassMajor, 0), Kind: "htb", Rate: rate, Ceil: rate, Burst: 16 << 10, Quantum: 1514,
	}))
	u.must(u.conn.ReplaceQdisc(tc.Qdisc{Link: link, Handle: tc.MakeHandle(minor, 0), Parent: handle, Kind: "pfifo", Limit: queue}))
}

func (u *uplink) own(owners map[uint32]classify.Owner) {
	u.t.Helper()
	u.must(u.programs.SetOwners(owners))
}

// restart makes the source anew, as a process that starts does.
func (u *uplink) restart() {
	u.t.Helper()
	u.source = newSource(u.t, u.node, false, NewUplinks(u.manager, u.pins))
}

// flood sends n datagrams from a namespace at once.
func (u *uplink) flood(from, to string, n int) {
	u.t.Helper()
	var c net.Conn
	u.must(netns.Do(from, func() (err error) { c, err = net.Dial("udp4", to+":9"); return err }))
	defer c.Close()
	for range n {
		if _, err := c.Write(make([]byte, 1400)); err != nil && !strings.Contains(err.Error(), "refused") {
			u.t.Fatal(err)
		}
	}
}

func (u *uplink) send(port, n int) {
	u.t.Helper()
	u.flood(u.tenants[port], "10.6.0.254", n)
}

func (u *uplink) receive(port, n int) {
	u.t.Helper()
	u.flood(u.far, fmt.Sprintf("10.6.0.%d", port+1), n)
}

// drops returns what a scrape attributes.
func (u *uplink) drops(gone ...ports.Port) map[source.DropKey]uint64 {
	u.t.Helper()
	v := sourcetest.View(u.ports, gone, nil, time.Now())
	page(u.t, u.source, v)
	return maps.Clone(v.Drops.Counts)
}

var classRE = regexp.MustCompile(`class htb (1150:[0-9a-f]+) [^\n]*\n Sent \d+ bytes \d+ pkt \(dropped (\d+),`)

// dropped returns what tc(8) says that a class dropped.
func (u *uplink) dropped(device string, minor uint16) (n uint64) {
	u.t.Helper()
	text := testutil.Run(u.t, "tc", "-n", u.node, "-s", "class", "show", "dev", device)
	for _, m := range classRE.FindAllStringSubmatch(text, -1) {
		if m[1] == tc.MakeHandle(vport.ClassMajor, minor).String() {
			n, _ = strconv.ParseUint(m[2], 10, 64)
			return n
		}
	}
	u.t.Fatalf("no class %x in\n%s", minor, text)
	return 0
}

// overload sends until a class has dropped so many frames more, and returns what it has then. A sender that gets no
// processor sends no more than the class may.
func (u *uplink) overload(device string, minor uint16, least uint64, send func()) (dropped uint64) {
	u.t.Helper()
	before := u.dropped(device, minor)
	testutil.WaitFor(u.t, fmt.Sprintf("%d frames of class %x to be dropped", least, minor), func() bool {
		send()
		dropped = u.dropped(device, minor)
		return dropped >= before+least
	})
	return dropped
}

// ofRoot returns what tc(8) says that the uplink's scheduler dropped.
func (u *uplink) ofRoot() uint64 {
	u.t.Helper()
	text := testutil.Run(u.t, "tc", "-n", u.node, "-s", "qdisc", "show", "dev", "up0", "root")
	m := regexp.MustCompile(`qdisc htb 1150: [^\n]*\n Sent \d+ bytes \d+ pkt \(dropped (\d+),`).FindStringSubmatch(text)
	if m == nil {
		u.t.Fatalf("no scheduler in\n%s", text)
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	u.must(err)
	return n
}

func (u *uplink) ifbName() string { return classify.IFBPrefix + strconv.Itoa(u.up) }

func key(port, tenant, direction string, reason source.Reason) source.DropKey {
	return source.DropKey{Port: port, Tenant: tenant, Direction: direction, Reason: reason}
}

// TestDropsOfAClassAreItsPorts overloads classes in both directions: a port's drops rise
// by just what tc says of its class.
func TestDropsOfAClassAreItsPorts(t *testing.T) {
	u := newUplink(t)
	u.own(map[uint32]classify.Owner{major(redClass): {Tenant: "red"}, major(blueClass): {Tenant: "blue", Port: u.ports[1].ID}})
	red := key(u.ports[0].ID, "red", source.FromTenant, source.QueueFull)
	blue := key(u.ports[1].ID, "blue", source.ToTenant, source.QueueFull)
	if got := u.drops(); len(got) != 0 {
		t.Fatalf("before anything was sent: %v", got)
	}
	for round := range 2 {
		want := map[source.DropKey]uint64{
			red:  u.overload("up0", redClass, 100, func() { u.send(0, 300) }),
			blue: u.overload(u.ifbName(), blueClass, 50, func() { u.receive(1, 200) }),
		}
		if got := u.drops(); !maps.Equal(got, want) {
			t.Errorf("round %d: attributed %v, the classes dropped %v", round, got, want)
		}
	}
	// A process that starts goes on where the last one was.
	before := u.drops()
	u.restart()
	if got := u.drops(); !maps.Equal(got, before) {
		t.Errorf("after a restart %v, before %v", got, before)
	}
	u.overload("up0", redClass, 1, func() { u.send(0, 100) })
	if got := u.drops(); got[red] != u.dropped("up0", redClass) || got[red] <= before[red] {
		t.Errorf("after a restart and more: %d, the class dropped %d", got[red], u.dropped("up0", redClass))
	}
	if got := u.dropped("up0", 2); got != 0 {
		t.Errorf("%d frames of nobody's", got)
	}
}

// TestDropsOfASharedClassAreTheTenants has two ports in one class.
func TestDropsOfASharedClassAreTheTenants(t *testing.T) {
	u := newUplink(t)
	u.overload("up0", redClass, 1, func() { u.send(0, 200) })
	alone := u.drops()[key(u.ports[0].ID, "red", source.FromTenant, source.QueueFull)]
	if alone == 0 || alone != u.dropped("up0", redClass) {
		t.Fatalf("%d drops of the only port, the class dropped %d", alone, u.dropped("up0", redClass))
	}
	u.plug("red")
	u.overload("up0", redClass, 1, func() { u.send(0, 100); u.send(2, 100) })
	got := u.drops()
	shared := key(SharedPort, "red", source.FromTenant, source.QueueFull)
	if got[key(u.ports[0].ID, "red", source.FromTenant, source.QueueFull)] != alone || got[shared] == 0 || alone+got[shared] != u.dropped("up0", redClass) {
		t.Errorf("attributed %v, the class dropped %d", got, u.dropped("up0", redClass))
	}
	// One of them gets a class of its own: then the other is the only one.
	u.own(map[uint32]classify.Owner{major(redClass): {Tenant: "red"}, major(0x5000): {Tenant: "red", Port: u.ports[2].ID}})
	before := u.drops()
	u.overload("up0", redClass, 1, func() { u.send(0, 100) })
	got = u.drops()
	mine := key(u.ports[0].ID, "red", source.FromTenant, source.QueueFull)
	if got[shared] != before[shared] || got[mine]-before[mine] != u.dropped("up0", redClass)-alone-before[shared] || got[mine] == before[mine] {
		t.Errorf("attributed %v, before %v, the class dropped %d", got, before, u.dropped("up0", redClass))
	}
	// The tenant's last port goes: it keeps what was its own.
	gone := u.ports[0]
	u.ports = u.ports[1:2]
	if after := u.drops(gone); after[mine] != got[mine] {
		t.Errorf("gone with %d drops, had %d", after[mine], got[mine])
	}
	if after := u.drops(); after[mine] != 0 || after[shared] != got[shared] {
		t.Errorf("long gone: %v", after)
	}
}

// TestDropsOfAShapedLimitAreItsPorts sends into the class that shapes a limit, which then
// goes away, and another one takes its number.
func TestDropsOfAShapedLimitAreItsPorts(t *testing.T) {
	const shape = vport.FirstShape + 5
	u := newUplink(t)
	limit := func(port int, id byte) {
		t.Helper()
		u.class(u.up, shape, 100_000)
		u.must(u.manager.SetLimit(u.ports[port].Index, vport.LimitRequest{
			ID: [16]byte{id}, Rate: 100_000, Burst: 100_000, Class: major(shape), TTL: time.Minute,
		}))
	}
	lift := func(port int) {
		t.Helper()
		u.must(u.manager.RemoveLimit(u.ports[port].Index))
		u.must(u.conn.DeleteClass(u.up, tc.MakeHandle(vport.ClassMajor, shape)))
	}
	red := key(u.ports[0].ID, "red", source.FromTenant, source.RateLimit)
	blue := key(u.ports[1].ID, "blue", source.FromTenant, source.RateLimit)
	u.drops()
	limit(0, 1)
	u.drops() // the class is seen before it drops
	u.send(0, 200)
	first := u.dropped("up0", shape)
	if got := u.drops()[red]; got != first || got == 0 {
		t.Errorf("%d drops attributed, the class dropped %d", got, first)
	}
	u.send(0, 100)
	last := u.dropped("up0", shape)
	lift(0)             // before anybody looks again
	whole := u.ofRoot() // what was in its queue went with it
	if got := u.drops(); got[red] != whole || last <= first || whole < last || whole > last+queue || len(got) != 1 {
		t.Errorf("after its end %v, the class had dropped %d, and the scheduler %d", got, last, whole)
	}
	limit(1, 2) // the number's next owner
	u.drops()
	u.send(1, 100)
	if got := u.drops(); got[red] != whole || got[blue] != u.dropped("up0", shape) || got[blue] == 0 {
		t.Errorf("attributed %v; the first had %d, the class dropped %d", got, whole, u.dropped("up0", shape))
	}
	lift(1)
	second := u.ofRoot() - whole
	limit(0, 3) // at once
	u.send(0, 60)
	third := u.dropped("up0", shape)
	if got := u.drops(); got[red] != whole+third || got[blue] != second || third == 0 {
		t.Errorf("attributed %v; want %d and %d", got, whole+third, second)
	}
}

// TestSchedulersComeAndGo takes the whole tree away and makes it again.
func TestSchedulersComeAndGo(t *testing.T) {
	u := newUplink(t)
	red := key(u.ports[0].ID, "red", source.FromTenant, source.QueueFull)
	u.overload("up0", redClass, 1, func() { u.send(0, 200) })
	before := u.drops()[red]
	u.must(u.conn.DeleteQdisc(u.up, tc.MakeHandle(vport.ClassMajor, 0), tc.Root))
	if got := u.drops()[red]; got != before || before == 0 {
		t.Errorf("%d drops without a scheduler, had %d", got, before)
	}
	counted, err := u.manager.ClassDrops().Counted()
	if err != nil {
		t.Fatal(err)
	}
	for c := range counted {
		if int(c.Link) == u.up {
			t.Errorf("class %x of a scheduler that is gone is remembered", c.Class)
		}
	}
	u.schedule(u.up, u.programs.Send().FD())
	u.send(0, 150)
	if got := u.drops()[red]; got != before+u.dropped("up0", redClass) {
		t.Errorf("%d drops, had %d and the new class dropped %d", got, before, u.dropped("up0", redClass))
	}
}

// book is a memory in this process, which fails on demand.
type book struct {
	counted    map[vport.UplinkClass]vport.ClassCount
	attributed map[vport.DropOwner]uint64
	err        error
}

func newBook() *book {
	return &book{counted: make(map[vport.UplinkClass]vport.ClassCount), attributed: make(map[vport.DropOwner]uint64)}
}

func (b *book) Counted() (map[vport.UplinkClass]vport.ClassCount, error) {
	return maps.Clone(b.counted), b.err
}

func (b *book) SetCounted(class vport.UplinkClass, count vport.ClassCount) error {
	b.counted[class] = count
	return b.err
}

func (b *book) Forget(class vport.UplinkClass) error {
	delete(b.counted, class)
	return b.err
}

func (b *book) Attributed() (map[vport.DropOwner]uint64, error) {
	return maps.Clone(b.attributed), b.err
}

func (b *book) SetAttributed(o vport.DropOwner, drops uint64) error {
	b.attributed[o] = drops
	return b.err
}

// desk is an attribution with a scheduler that the test makes up.
type desk struct {
	*attribution
	t      *testing.T
	book   *book
	list   []ports.Port
	root   tc.Qdisc
	owners map[uint32]classify.Owner
	shaped map[uint32]int
	asked  int
	err    error
}

func newDesk(t *testing.T) *desk {
	d := &desk{
		t: t, book: newBook(), owners: map[uint32]classify.Owner{major(redClass): {Tenant: "red"}}, shaped: make(map[uint32]int),
		list: []ports.Port{{ID: "r", Tenant: "red", Index: 11}, {ID: "b", Tenant: "blue", Index: 12}},
		root: tc.Qdisc{Link: 7, Kind: "htb", Parent: tc.Root, Handle: tc.MakeHandle(vport.ClassMajor, 0)},
	}
	d.attribution = newAttribution(Uplinks{
		Owners: func() (map[uint32]classify.Owner, error) { d.asked++; return d.owners, d.err },
		Shaped: func() (map[uint32]int, error) { return d.shaped, d.err },
		Memory: d.book,
	})
	return d
}

// look runs a scrape: the root has dropped so many, and these are the classes.
func (d *desk) look(rootBytes uint64, rootDrops uint32, classes ...tc.Class) (map[source.DropKey]uint64, error) {
	v := sourcetest.View(d.list, nil, nil, time.Now())
	if err := d.begin(); err != nil {
		return nil, err
	}
	d.root.Stats = tc.Stats{Bytes: rootBytes, Drops: rootDrops}
	if err := d.device(v, "up0", &d.root, classes); err != nil {
		return nil, err
	}
	err := d.end(v)
	return v.Drops.Counts, err
}

func (d *desk) want(got map[source.DropKey]uint64, err error, want map[source.DropKey]uint64) {
	d.t.Helper()
	if err != nil || !maps.Equal(got, want) {
		d.t.Errorf("attributed %v, %v; want %v", got, err, want)
	}
}

func leaf(minor uint16, bytes uint64, drops uint32) tc.Class {
	return tc.Class{Link: 7, Handle: tc.MakeHandle(vport.ClassMajor, minor), Kind: "htb", Stats: tc.Stats{Bytes: bytes, Drops: drops}}
}

var redFull = key("r", "red", source.FromTenant, source.QueueFull)

func TestCountersOfClassesWrap(t *testing.T) {
	d := newDesk(t)
	for i, drops := range []uint32{0xfffffff0, 0xffffffff, 4} {
		got, err := d.look(100, drops, leaf(redClass, 100, drops))
		d.want(got, err, map[source.DropKey]uint64{redFull: []uint64{0xfffffff0, 0xffffffff, 0x1_0000_0004}[i]})
	}
}

func TestNobodyIsAskedWhileNothingIsDropped(t *testing.T) {
	d := newDesk(t)
	for i := range uint64(5) {
		if _, err := d.look(i, 0, leaf(redClass, i, 0), leaf(2, i, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if d.asked != 1 { // when the classes were new
		t.Errorf("asked %d times", d.asked)
	}
}

func TestWhatBelongsToNoContractIsNobodys(t *testing.T) {
	d := newDesk(t)
	got, err := d.look(10, 30, leaf(2, 10, 10), leaf(0x4321, 10, 10), leaf(vport.FirstShape, 10, 10))
	d.want(got, err, nil)
	got, err = d.look(10, 60, leaf(2, 10, 20), leaf(0x4321, 10, 20), leaf(vport.FirstShape, 10, 20))
	d.want(got, err, nil)
	if len(d.book.attributed) != 0 {
		t.Errorf("remembered %v", d.book.attributed)
	}
}

// TestTheRootMayBeBehindItsClasses reads it a moment before them, in an overload.
func TestTheRootMayBeBehindItsClasses(t *testing.T) {
	d := newDesk(t)
	d.shaped[major(vport.FirstShape)] = 11
	limit := key("r", "red", source.FromTenant, source.RateLimit)
	shape := func(bytes uint64, drops uint32) tc.Class { return leaf(vport.FirstShape, bytes, drops) }
	for _, step := range []struct {
		root    uint32
		classes []tc.Class
		full    uint64
		limited uint64
	}{
		{0, []tc.Class{leaf(redClass, 1, 0), shape(1, 0)}, 0, 0},
		{90, []tc.Class{leaf(redClass, 2, 60), shape(2, 40)}, 60, 40}, // ten behind
		{150, []tc.Class{leaf(redClass, 3, 80)}, 80, 40 + 30},         // the limit's class dropped 70 in all, but that may be more
		{155, []tc.Class{leaf(redClass, 4, 80)}, 80, 40 + 35},         // as it turns out: 75
		{155, []tc.Class{leaf(redClass, 5, 80)}, 80, 75},
	} {
		got, err := d.look(uint64(step.root), step.root, step.classes...)
		want := map[source.DropKey]uint64{}
		if step.full > 0 {
			want[redFull], want[limit] = step.full, step.limited
		}
		d.want(got, err, want)
	}
}

// TestLimitsOfSeveralThatEndAtOnce have a rest that cannot be told apart.
func TestLimitsOfSeveralThatEndAtOnce(t *testing.T) {
	for _, tc2 := range []struct {
		name  string
		other int // interface of the second limit
		want  map[source.DropKey]uint64
	}{
		{"of one port", 11, map[source.DropKey]uint64{key("r", "red", source.FromTenant, source.RateLimit): 100}},
		{"of two ports of a tenant", 13, map[source.DropKey]uint64{
			key("r", "red", source.FromTenant, source.RateLimit): 30, key("r2", "red", source.FromTenant, source.RateLimit): 40,
			key(SharedPort, "red", source.FromTenant, source.RateLimit): 30,
		}},
		{"of two tenants", 12, map[source.DropKey]uint64{
			key("r", "red", source.FromTenant, source.RateLimit): 30, key("b", "blue", source.FromTenant, source.RateLimit): 40,
		}},
	} {
		t.Run(tc2.name, func(t *testing.T) {
			d := newDesk(t)
			d.list = append(d.list, ports.Port{ID: "r2", Tenant: "red", Index: 13})
			d.shaped[major(vport.FirstShape)], d.shaped[major(vport.FirstShape+1)] = 11, tc2.other
			if _, err := d.look(1, 70, leaf(vport.FirstShape, 1, 30), leaf(vport.FirstShape+1, 1, 40)); err != nil {
				t.Fatal(err)
			}
			got, err := d.look(2, 100)
			d.want(got, err, tc2.want)
			got, err = d.look(3, 100)
			d.want(got, err, tc2.want)
		})
	}
}

func TestAMemoryThatFailsIsNoCountTwice(t *testing.T) {
	d := newDesk(t)
	if _, err := d.look(1, 0, leaf(redClass, 1, 0)); err != nil {
		t.Fatal(err)
	}
	d.book.err = errors.New("no room")
	if _, err := d.look(2, 10, leaf(redClass, 2, 10)); !errors.Is(err, d.book.err) {
		t.Errorf("got %v", err)
	}
	d.book.err = nil
	got, err := d.look(3, 15, leaf(redClass, 3, 15))
	d.want(got, err, map[source.DropKey]uint64{redFull: 15})
	d.err = errors.New("no map")
	if _, err := d.look(4, 20, leaf(redClass, 4, 20)); !errors.Is(err, d.err) {
		t.Errorf("got %v", err)
	}
	d.err = nil
	got, err = d.look(5, 25, leaf(redClass, 5, 25))
	d.want(got, err, map[source.DropKey]uint64{redFull: 25})
}

func TestUnreadableMemoryFailsTheCollector(t *testing.T) {
	d := newDesk(t)
	d.book.err = errors.New("no such map")
	if _, err := d.look(1, 0); !errors.Is(err, d.book.err) {
		t.Errorf("got %v", err)
	}
	s := newSource(t, "", false, Uplinks{Memory: d.book})
	if err := s.Collect(sourcetest.View(nil, nil, nil, time.Now()), exposition.NewPage(nil)); !errors.Is(err, d.book.err) {
		t.Errorf("got %v", err)
	}
}
