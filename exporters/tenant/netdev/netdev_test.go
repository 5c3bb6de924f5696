package netdev

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"vigia/exporters/tenant/bpf"
	"vigia/exporters/tenant/source"
	"vigia/exporters/tenant/source/sourcetest"
	"vigia/internal/bpf/vport"
	"vigia/internal/bpf/vport/vporttest"
	"vigia/internal/exposition"
	"vigia/internal/node"
	"vigia/internal/ports"
	"vigia/internal/rtnl"
	"vigia/internal/testutil"
)

// rig is a port with the programs' manager and the source.
type rig struct {
	*vporttest.Port
	t       *testing.T
	manager *vport.Manager
	source  *Source
	port    ports.Port
}

// newRig looks at the node's end of the port, or at the tenant's own.
func newRig(t *testing.T, tenantSide bool) *rig {
	t.Helper()
	r := &rig{Port: vporttest.NewPort(t), t: t}
	ns := r.Node
	r.port = ports.Port{ID: "p", Tenant: "red", Index: r.Index, TenantSide: tenantSide}
	if tenantSide {
		ns, r.port.Index = r.Tenant, vporttest.Index(t, r.Tenant, "eth0")
	}
	r.manager = vporttest.Open(t, vport.Options{PinDir: r.PinDir, NetNS: ns})
	conn, err := rtnl.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r.source = newSource(t, conn, bpf.NewReadings(r.manager))
	return r
}

func newSource(t *testing.T, conn *rtnl.Conn, c Counted) *Source {
	t.Helper()
	return New(sourcetest.Families(t), conn, c)
}

func (r *rig) attach() {
	r.t.Helper()
	if err := r.manager.Attach(r.port.Index, node.Hook(&r.port)); err != nil {
		r.t.Fatal(err)
	}
}

// scrape returns the page of a scrape, and its view.
func (r *rig) scrape(list, gone []ports.Port) (string, *source.View) {
	r.t.Helper()
	v := sourcetest.View(list, gone, nil, time.Now())
	page := exposition.NewPage(nil)
	if err := r.source.Collect(v, page); err != nil {
		r.t.Fatal(err)
	}
	var out strings.Builder
	if _, err := page.WriteTo(&out); err != nil {
		r.t.Fatal(err)
	}
	return out.String(), v
}

// want holds a page to numbers of frames and bytes.
func (r *rig) want(page string, fromPackets, fromBytes, toPackets, toBytes int) {
	r.t.Helper()
	for _, line := range []string{
		fmt.Sprintf(`vigia_port_packets_total{port="p",tenant="red",direction="from_tenant"} %d`, fromPackets),
		fmt.Sprintf(`vigia_port_packets_total{port="p",tenant="red",direction="to_tenant"} %d`, toPackets),
		fmt.Sprintf(`vigia_port_bytes_total{port="p",tenant="red",direction="from_tenant"} %d`, fromBytes),
		fmt.Sprintf(`vigia_port_bytes_total{port="p",tenant="red",direction="to_tenant"} %d`, toBytes),
	} {
		if !strings.Contains(page, line+"\n") {
			r.t.Errorf("no %q in\n%s", line, page)
		}
	}
}

const size, headers = 200, 14 + 20 + 8

// TestDirectionByKindOfDevice counts the same traffic at either end of the port, by the
// programs and, where there are none, by the device.
func TestDirectionByKindOfDevice(t *testing.T) {
	for _, tc := range []struct {
		name                   string
		tenantSide, programmed bool
	}{
		{"program at the switch's end", false, true},
		{"program at the tenant's own end", true, true},
		{"device at the switch's end", false, false},
		{"device at the tenant's own end", true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, tc.tenantSide)
			if tc.programmed {
				r.attach()
			}
			fromPackets, fromBytes, toPackets, toBytes := 0, 0, 0, 0
			if !tc.programmed { // the ping and ARP of the set-up
				if err := r.source.conn.Stats(r.source.devices); err != nil {
					t.Fatal(err)
				}
				st := r.source.devices.Get(r.port.Index)
				fromPackets, fromBytes, toPackets, toBytes = int(st.RxPackets), int(st.RxBytes), int(st.TxPackets), int(st.TxBytes)
				if tc.tenantSide {
					fromPackets, fromBytes, toPackets, toBytes = toPackets, toBytes, fromPackets, fromBytes
				}
			}
			if r.Send(30, size) != 30 || r.Receive(20, size) != 20 {
				t.Fatal("not everything arrived")
			}
			page, v := r.scrape([]ports.Port{r.port}, nil)
			r.want(page, fromPackets+30, fromBytes+30*(size+headers), toPackets+20, toBytes+20*(size+headers))
			if c := v.Carried[0]; !c.Known || c.Packets < 50 || c.Sent != uint64(fromBytes+30*(size+headers)) {
				t.Errorf("carried %+v", c)
			}
		})
	}
}

// TestAPortThatIsGoneKeepsItsLastWord deletes the device after the last scrape that saw
// it, and sends before.
func TestAPortThatIsGoneKeepsItsLastWord(t *testing.T) {
	r := newRig(t, false)
	r.attach()
	r.Send(10, size)
	page, _ := r.scrape([]ports.Port{r.port}, nil)
	r.want(page, 10, 10*(size+headers), 0, 0)
	r.Send(5, size)
	testutil.IP(t, "-n", r.Node, "link", "del", "tap0")
	page, _ = r.scrape([]ports.Port{r.port}, nil)
	if page != "" {
		t.Errorf("a device that is gone has series:\n%s", page)
	}
	gone := []ports.Port{r.port}
	page, _ = r.scrape(nil, gone)
	r.want(page, 15, 15*(size+headers), 0, 0)
	if err := r.manager.Detach(r.port.Index); err != nil {
		t.Fatal(err)
	}
	for range 2 { // by the end of its counters, whatever becomes of what is said of them
		page, _ = r.scrape(nil, gone)
		r.want(page, 15, 15*(size+headers), 0, 0)
		if err := r.manager.TenantTotals().Forget(r.source.gone["p"].incarnation); err != nil {
			t.Fatal(err)
		}
	}
	if page, _ = r.scrape(nil, nil); page != "" || len(r.source.gone) != 0 {
		t.Errorf("it is remembered for ever: %v\n%s", r.source.gone, page)
	}
}

// TestAPortWithoutAProgramIsGoneAsItsDeviceWas has nothing but the device's count.
func TestAPortWithoutAProgramIsGoneAsItsDeviceWas(t *testing.T) {
	r := newRig(t, false)
	before, _ := r.scrape([]ports.Port{r.port}, nil)
	testutil.IP(t, "-n", r.Node, "link", "del", "tap0")
	r.scrape([]ports.Port{r.port}, nil)
	if after, _ := r.scrape(nil, []ports.Port{r.port}); after != before || before == "" {
		t.Errorf("was\n%s\nand is\n%s", before, after)
	}
	if after, _ := r.scrape(nil, []ports.Port{{ID: "never seen", Tenant: "red"}}); after != "" {
		t.Errorf("a port that nobody has seen has series:\n%s", after)
	}
}

// TestALostProgramIsNoBurst takes the program off: what the device counted since the port
// was made must not look like traffic of that moment.
func TestALostProgramIsNoBurst(t *testing.T) {
	r := newRig(t, false)
	r.Send(100, size)
	list := []ports.Port{r.port}
	if page, _ := r.scrape(list, nil); !strings.Contains(page, `direction="from_tenant"`) {
		t.Errorf("a port that waits for its program has no series:\n%s", page)
	}
	r.attach()
	r.Send(10, size)
	page, _ := r.scrape(list, nil)
	r.want(page, 10, 10*(size+headers), 0, 0)
	if err := r.manager.Detach(r.port.Index); err != nil {
		t.Fatal(err)
	}
	page, v := r.scrape(list, nil)
	if page != "" || v.Carried != nil {
		t.Errorf("without a program: carried %+v\n%s", v.Carried, page)
	}
	other := []ports.Port{{ID: "other", Tenant: "red", Index: 99999}, r.port} // in another place of another list
	if page, _ = r.scrape(other, nil); page != "" {
		t.Errorf("in another list:\n%s", page)
	}
	r.attach()
	r.Send(1, size)
	page, _ = r.scrape(other, nil)
	r.want(page, 1, size+headers, 0, 0)
}

// unreadable is programs whose maps cannot be read.
type unreadable struct{ err error }

func (u unreadable) Of(*source.View) (*vport.Snapshot, error) { return nil, u.err }

func (u unreadable) Final(vport.Incarnation) (vport.Traffic, bool, error) {
	return vport.Traffic{}, false, u.err
}

func TestUnreadableProgramsAreMissingSeries(t *testing.T) {
	r := newRig(t, false)
	cause := errors.New("no such map")
	s := newSource(t, r.source.conn, unreadable{cause})
	page := exposition.NewPage(nil)
	err := s.Collect(sourcetest.View([]ports.Port{r.port}, nil, nil, time.Now()), page)
	if !errors.Is(err, cause) || page.Series() != 0 {
		t.Errorf("%d series, %v", page.Series(), err)
	}
}

// TestErrorsAndDropsAreTheDevices takes them as the kernel counts them.
func TestErrorsAndDropsAreTheDevices(t *testing.T) {
	for _, tenantSide := range []bool{false, true} {
		rx, tx := source.FromTenant, source.ToTenant
		if tenantSide {
			rx, tx = tx, rx
		}
		p := ports.Port{ID: "p", Tenant: "red", TenantSide: tenantSide}
		st := rtnl.Stats{RxErrors: 3, RxDropped: 5, TxDropped: 7, RxMissed: 9}
		r := read(&p, &st, &vport.Snapshot{}, &reading{})
		page := exposition.NewPage(nil)
		newSource(t, nil, nil).emit(&p, &r, page)
		var out strings.Builder
		if _, err := page.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(`vigia_port_errors_total{port="p",tenant="red",direction=%q} 3`, rx); strings.Count(out.String(), "errors_total{") != 1 || !strings.Contains(out.String(), want+"\n") {
			t.Errorf("no %q alone in\n%s", want, out.String())
		}
		v := sourcetest.View([]ports.Port{p}, nil, nil, time.Now())
		drops(&p, &st, v)
		v.Drops.Settle(source.NewRemainders())
		for key, want := range map[source.DropKey]uint64{
			{Port: "p", Tenant: "red", Direction: rx, Reason: source.Unattributed}: 5,
			{Port: "p", Tenant: "red", Direction: tx, Reason: source.Unattributed}: 7,
			{Port: "p", Tenant: "red", Direction: rx, Reason: source.RingFull}:     9,
		} {
			if got := v.Drops.Counts[key]; got != want {
				t.Errorf("%+v is %d, want %d", key, got, want)
			}
		}
	}
}
