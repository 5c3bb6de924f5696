package netdev

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/exporters/tenant/source/sourcetest"
	"vigia/internal/catalog"
	"vigia/internal/exposition"
	"vigia/internal/ports"
	"vigia/internal/rtnl"
	"vigia/internal/testutil"
)

// TestDirectionByKindOfDevice sends from the tenant only and looks where it shows.
func TestDirectionByKindOfDevice(t *testing.T) {
	node, tenant := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.DisableIPv6(t, node)
	testutil.DisableIPv6(t, tenant)
	testutil.NewVethPair(t, node, "tap0", tenant, "eth0")
	testutil.IP(t, "-n", tenant, "addr", "add", "10.8.0.2/24", "dev", "eth0")
	testutil.IP(t, "-n", tenant, "neigh", "add", "10.8.0.1", "lladdr", "02:00:00:00:00:09", "dev", "eth0")
	conn, err := rtnl.Dial(node)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	inTenant, err := rtnl.Dial(tenant)
	if err != nil {
		t.Fatal(err)
	}
	defer inTenant.Close()
	index := func(c *rtnl.Conn, name string) int {
		links, err := c.Links()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if l.Name == name {
				return l.Index
			}
		}
		t.Fatalf("no %s", name)
		return 0
	}
	catalogue, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	f := catalogue.NewFactory("exporter", prometheus.NewRegistry())
	// Nobody answers: the packets go one way.
	testutil.Run(t, "ip", "netns", "exec", tenant, "sh", "-c", "ping -c3 -i0.2 -W1 10.8.0.1 || true")
	for _, tc := range []struct {
		name string
		conn *rtnl.Conn
		port ports.Port
	}{
		{"the switch's end", conn, ports.Port{ID: "p", Tenant: "red", Index: index(conn, "tap0")}},
		{"the tenant's own end", inTenant, ports.Port{ID: "p", Tenant: "red", Index: index(inTenant, "eth0"), TenantSide: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			page := exposition.NewPage(nil)
			v := sourcetest.View([]ports.Port{tc.port}, nil, nil, time.Now())
			s := New(f, tc.conn)
			if err := s.Collect(v, page); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if _, err := page.WriteTo(&out); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{
				`vigia_port_packets_total{port="p",tenant="red",direction="from_tenant"} 3`,
				`vigia_port_packets_total{port="p",tenant="red",direction="to_tenant"} 0`,
				`vigia_port_bytes_total{port="p",tenant="red",direction="from_tenant"} 294`,
			} {
				if !strings.Contains(out.String(), want+"\n") {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
			// A port that is gone keeps its last counters.
			page.Reset(nil)
			if err := s.Collect(sourcetest.View(nil, []ports.Port{tc.port}, nil, time.Now()), page); err != nil {
				t.Fatal(err)
			}
			if page.Series() != 4 {
				t.Errorf("%d series of the port that is gone, want 4", page.Series())
			}
		})
	}
}
