package fastloop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"golang.org/x/sys/unix"

	"vigia/internal/bpf/classify"
	"vigia/internal/bpf/vport"
	"vigia/internal/netns"
	"vigia/internal/tc"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
	"vigia/isolation-agent/enforcer/scheduling"
)

// uplink is a node with an uplink of 8 Mbit/s, on which tenants t0, t1 and so on have
// VXLAN networks 1, 2 and so on, and whoever is at its other end.
type uplink struct {
	*Loop
	t          *testing.T
	ns, far    string
	reconciler *scheduling.Reconciler
	mailbox    *net.UDPConn // of node n2's enforcer
	conn       net.Conn     // from the other end to the node's VXLAN port
}

func newUplink(t *testing.T, tenants int) *uplink {
	t.Helper()
	u := &uplink{t: t, ns: testutil.NewNetNS(t), far: testutil.NewNetNS(t), mailbox: listen(t)}
	for _, ns := range []string{u.ns, u.far} {
		testutil.DisableIPv6(t, ns)
	}
	testutil.NewVethPair(t, u.ns, "up0", u.far, "eth0")
	testutil.IP(t, "-n", u.ns, "addr", "add", "10.8.0.1/24", "dev", "up0")
	testutil.IP(t, "-n", u.far, "addr", "add", "10.8.0.2/24", "dev", "eth0")
	programs, err := classify.Open(testutil.NewBPFFS(t), tenants+1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { programs.Close() })
	if u.reconciler, err = scheduling.NewReconciler(u.ns, programs, promslog.NewNopLogger()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.reconciler.Close() })
	site := &Site{
		Version: 1, Nodes: []SiteNode{{Node: "n1", Address: "127.0.0.1:1", Tunnel: "10.8.0.1"}, {Node: "n2", Address: u.mailbox.LocalAddr().String(), Tunnel: "10.8.0.2"}},
	}
	var list []contract.Contract
	for i := range tenants {
		tenant, b := fmt.Sprint("t", i), contract.Bandwidth{GuaranteeBytesPerSecond: 25_000, CeilingBytesPerSecond: 8 * mbit}
		list = append(list, contract.Contract{
			Owner: contract.Owner{Tenant: tenant}, Send: b, Receive: b, Matches: []classify.Match{{Network: classify.VXLAN, ID: uint32(i + 1)}},
		})
		site.Ports = append(site.Ports, SitePort{Node: "n2", Port: "far-" + tenant, Tenant: tenant, MAC: "02:00:00:00:00:02", IP: "192.168.0.2"},
			SitePort{Node: "n1", Port: "near-" + tenant, Tenant: tenant, MAC: "02:00:00:00:00:01", IP: "192.168.0.1"})
	}
	contracts, err := contract.NewSet(list)
	if err != nil {
		t.Fatal(err)
	}
	u.reconciler.Set([]scheduling.Link{{Device: "up0", RateBytesPerSecond: 8 * mbit, Headroom: 0.05}}, contracts)
	if _, err := u.reconciler.Reconcile(); err != nil {
		t.Fatal(err)
	}
	u.Loop = newLoop(Config{Node: "n1", Variant: control.Vigia}, u.reconciler, programs, &kernel{pairs: map[vport.Destination]vport.Pair{}}, inventory{}, promslog.NewNopLogger(), Events{
		Notice: func(notice.Kind, notice.Outcome) {}, Lateness: func(time.Duration) {}, Detected: func(time.Duration) {}, Peer: func(string, bool) {},
	}, newDirectoryOf(t, site))
	u.socket, u.boot = listen(t), 77
	if u.Loop.conn, err = tc.Dial(u.ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Loop.conn.Close() })
	u.refresh()
	if err := u.listTunnels(); err != nil {
		t.Fatal(err)
	}
	if err := netns.Do(u.far, func() (err error) { u.conn, err = net.Dial("udp4", "10.8.0.1:4789"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.conn.Close() })
	raw, err := u.conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// What waits in a queue of the same kernel fills the buffer of who sent it.
	if e := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	return u
}

// frames sends n VXLAN frames of 1000 bytes from t-whatever's guest at the other end.
func (u *uplink) frames(vni uint32, n int) {
	u.t.Helper()
	frame := make([]byte, 8+1000)
	frame[0] = 8
	binary.BigEndian.PutUint32(frame[4:], vni<<8)
	copy(frame[8:], []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0})
	ip := frame[22:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], []byte{192, 168, 0, 2, 192, 168, 0, 1})
	for sent := 0; sent < n; {
		switch _, err := u.conn.Write(frame); {
		case err == nil:
			sent++
		case !errors.Is(err, unix.ECONNREFUSED): // nobody listens at the VXLAN port, and the node says so now and then
			u.t.Fatal(err)
		}
	}
}

// TestAFloodInTheKernelBecomesANotice lets the loop's own thread run on a real uplink
// with more for one tenant than the link gives out.
func TestAFloodInTheKernelBecomesANotice(t *testing.T) {
	u := newUplink(t, 2)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = u.tick(ctx) })
	key := func(uint64, uint16) []byte { return peerKey(t, master(masterA)) }
	buf := make([]byte, 2*notice.Size)
	var got notice.Notice
	testutil.WaitFor(t, "a notice of the flood", func() bool {
		u.frames(1, 200)
		if err := u.mailbox.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, _, err := u.mailbox.ReadFromUDPAddrPort(buf)
		if err != nil {
			return false
		}
		got, err = notice.Parse(buf[:n], key)
		return err == nil && got.Kind == notice.Congest && got.Dropped > 0 // a queue that fills is told of before it drops
	})
	if got.Source != [6]byte{2, 0, 0, 0, 0, 2} || got.Destination != [4]byte{192, 168, 0, 1} || got.Tenant != notice.ID("t0") || got.Sources != 1 {
		t.Errorf("the notice is %+v", got)
	}
	if got.Measured == 0 || got.Rate < 25_000 {
		t.Errorf("it says %d bytes per second, %d lost, %d advised", got.Measured, got.Dropped, got.Rate)
	}
	testutil.WaitFor(t, "the link to count as idle", func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return !u.links[0].receiver.Busy(time.Now())
	})
}

// TestQueuesReadAloneAndTogetherAreTheSame reads a few classes, which are read one by
// one, and many, which are read at once.
func TestQueuesReadAloneAndTogetherAreTheSame(t *testing.T) {
	const tenants = 12 // more than are read one by one: see single
	u := newUplink(t, tenants)
	s := u.links[0]
	if err := u.read(s); err != nil {
		t.Fatal(err)
	}
	if len(s.active) != tenants+1 || len(s.readings()) != tenants+1 {
		t.Fatalf("%d classes are active at first, %d are known", len(s.active), len(s.readings()))
	}
	if err := u.read(s); err != nil || len(s.active) != 0 {
		t.Errorf("%d classes are active, though nothing came: %v", len(s.active), err)
	}
	moved := func(vnis ...uint32) {
		t.Helper()
		for _, vni := range vnis {
			u.frames(vni, 5)
		}
		testutil.WaitFor(t, "the frames to leave their queues", func() bool {
			if err := u.read(s); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, r := range s.readings() {
				if r.Waiting > 0 || r.Arrived != r.Left {
					return false
				}
				if r.Arrived > 0 {
					n++
				}
			}
			return n >= len(vnis)
		})
	}
	moved(1, 2)
	alone := s.readings()
	s.forgetReadings() // all are read again, at once
	if err := u.read(s); err != nil || len(s.active) != tenants+1 {
		t.Fatalf("%d classes are active, %v", len(s.active), err)
	}
	if !maps.Equal(alone, s.readings()) {
		t.Errorf("read one by one %v, together %v", alone, s.readings())
	}
	var all []uint32
	for vni := range uint32(tenants) {
		all = append(all, vni+1)
	}
	moved(all...)
}

// TestAClassThatIsNotThereHidesNoOther removes one, as somebody else may.
func TestAClassThatIsNotThereHidesNoOther(t *testing.T) {
	for _, tenants := range []int{2, 12} { // read one by one, and together
		u := newUplink(t, tenants)
		s := u.links[0]
		if err := u.read(s); err != nil {
			t.Fatal(err)
		}
		index, err := u.Loop.conn.LinkIndex("up0")
		if err != nil {
			t.Fatal(err)
		}
		var gone uint32
		for i := range s.rows {
			if id := s.rows[i].id; id != scheduling.DefaultClass {
				gone = id
			}
		}
		class := fmt.Sprintf("%x:%x", gone>>16, gone&0xffff)
		testutil.Run(t, "tc", "-n", u.ns, "class", "del", "dev", scheduling.IFBName(index), "classid", class)
		s.forgetReadings()
		for range 2 {
			if err := u.read(s); err != nil {
				t.Fatalf("%d tenants: %v", tenants, err)
			}
			if _, there := s.readings()[gone]; there || len(s.readings()) != tenants {
				t.Errorf("%d tenants: %d readings, that of the class that is gone among them: %v", tenants, len(s.readings()), there)
			}
		}
		if _, err := u.reconciler.Reconcile(); err != nil {
			t.Fatal(err)
		}
		if err := u.read(s); err != nil || len(s.readings()) != tenants+1 {
			t.Errorf("%d tenants: %d readings once it is there again, %v", tenants, len(s.readings()), err)
		}
	}
}

// TestLowerEffortIsNotLost sends what belongs to no contract and waits in a queue of its own.
func TestLowerEffortIsNotLost(t *testing.T) {
	for _, tenants := range []int{2, 12} { // read one by one, and together
		u := newUplink(t, tenants)
		s := u.links[0]
		var bulk net.Conn
		err := netns.Do(u.far, func() (err error) { bulk, err = net.Dial("udp4", "10.8.0.1:9"); return err })
		if err != nil {
			t.Fatal(err)
		}
		defer bulk.Close()
		raw, err := bulk.(*net.UDPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		const lowerEffort = 1 << 2 // of the traffic class, RFC 8622
		if err := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, lowerEffort)
		}); err != nil {
			t.Fatal(err)
		}
		for sent := 0; sent < 20; {
			if _, err := bulk.Write(make([]byte, 500)); err == nil { // nobody listens, and the node says so
				sent++
			}
		}
		testutil.WaitFor(t, "them to leave their queue", func() bool {
			s.forgetReadings()
			if err := u.read(s); err != nil {
				t.Fatal(err)
			}
			r := s.readings()[scheduling.DefaultClass]
			return r.Arrived >= 20*500 && r.Left+r.Waiting == r.Arrived
		})
		if k, err := u.Loop.conn.Class(s.ifb, tc.Handle(classify.LowerEffort)); err != nil || k.Stats.Bytes < 20*500 {
			t.Errorf("%d bytes went the way of lower effort, %v", k.Stats.Bytes, err)
		}
	}
}

func TestADeviceThatIsMadeAnewIsFoundAgain(t *testing.T) {
	u := newUplink(t, 1)
	s := u.links[0]
	now := time.Now()
	s.receiver.Wake(now)
	if u.round(now); s.ifb == 0 || len(s.readings()) != 2 {
		t.Fatalf("device %d, %d classes", s.ifb, len(s.readings()))
	}
	before := s.ifb
	index, err := u.Loop.conn.LinkIndex("up0")
	if err != nil {
		t.Fatal(err)
	}
	testutil.IP(t, "-n", u.ns, "link", "del", scheduling.IFBName(index))
	now = now.Add(control.Tick)
	s.receiver.Wake(now)
	s.forgetReadings()
	if u.round(now); s.ifb != 0 || len(s.readings()) != 0 {
		t.Errorf("a device that is gone: %d, %d classes", s.ifb, len(s.readings()))
	}
	if _, err := u.reconciler.Reconcile(); err != nil {
		t.Fatal(err)
	}
	now = now.Add(control.Tick)
	s.receiver.Wake(now)
	if u.round(now); s.ifb == 0 || s.ifb == before || len(s.readings()) != 2 {
		t.Errorf("device %d, was %d; %d classes", s.ifb, before, len(s.readings()))
	}
}

func TestArrivalsOfDevicesThatAreGoneAreForgotten(t *testing.T) {
	u := newUplink(t, 1)
	s := u.links[0]
	u.frames(1, 3)
	testutil.WaitFor(t, "the frames to be counted", func() bool {
		if err := u.read(s); err != nil {
			t.Fatal(err)
		}
		return len(u.arrivals) > 0
	})
	old := s.ifb
	s.ifb = 1 << 20 // as if it were another device's by now
	s.rows = s.rows[:0]
	u.prune()
	s.forgetDevice()
	u.refresh()
	s = u.links[0]
	if err := u.read(s); err != nil {
		t.Fatal(err)
	}
	if len(u.arrivals) != 0 || s.ifb != old {
		t.Errorf("arrivals %v on device %d, was %d", u.arrivals, s.ifb, old)
	}
}

func TestLinksAndContractsAreTakenUp(t *testing.T) {
	u := newUplink(t, 2)
	first := u.links[0]
	u.Refresh()
	if u.links[0] != first {
		t.Error("a link that has not changed was begun anew")
	}
	u.reconciler.Set([]scheduling.Link{{Device: "up0", RateBytesPerSecond: 16 * mbit, Headroom: 0.05}, {Device: "up9", RateBytesPerSecond: mbit, Headroom: 0.05}}, nil)
	u.Refresh()
	if len(u.links) != 2 || u.links[0] == first || len(u.links[0].rows) != 1 || u.linkRate() != 17*mbit {
		t.Errorf("%d links of %v bytes per second, the first has %d classes", len(u.links), u.linkRate(), len(u.links[0].rows))
	}
	u.reconciler.Set(nil, nil)
	u.Refresh()
	if len(u.links) != 0 || !u.round(time.Now()) {
		t.Errorf("%d links are left, or they are busy", len(u.links))
	}
}

// TestAVLANThatIsWrittenGoesBeforeTheKernels: a switch may make the tag, which no device shows.
func TestAVLANThatIsWrittenGoesBeforeTheKernels(t *testing.T) {
	u := newUplink(t, 1)
	u.config.NetNS = u.ns
	own := netip.MustParseAddr("10.8.0.1")
	for _, c := range []struct {
		d    directory
		want uint16
	}{
		{directory{tunnel: own}, 0}, // the address is on the uplink itself
		{directory{tunnel: own, vlan: 7}, 7},
		{directory{tunnel: netip.MustParseAddr("10.8.0.77")}, 0},
		{directory{}, 0},
	} {
		if err := u.findVLAN(&c.d); err != nil || c.d.vlan != c.want {
			t.Errorf("%v: VLAN %d, %v; want %d", c.d.tunnel, c.d.vlan, err, c.want)
		}
	}
	u.config.NetNS = "vigia-test-none"
	if err := u.findVLAN(&directory{tunnel: own}); err == nil || !strings.Contains(err.Error(), "find the VLAN of tunnels") {
		t.Errorf("a namespace that is not there: %v", err)
	}
}
