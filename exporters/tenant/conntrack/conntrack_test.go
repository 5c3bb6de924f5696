package conntrack

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"vigia/exporters/tenant/source/sourcetest"
	"vigia/internal/exposition"
	"vigia/internal/ports"
	"vigia/internal/testutil"
)

// TestZonesOfARealTable puts pings into zones by nftables.
func TestZonesOfARealTable(t *testing.T) {
	ns := testutil.NewNetNS(t)
	testutil.IP(t, "-n", ns, "addr", "add", "10.10.0.1/32", "dev", "lo")
	testutil.IP(t, "-n", ns, "addr", "add", "10.10.0.2/32", "dev", "lo")
	nft := func(rule string) { testutil.Run(t, "nsenter", "--net=/run/netns/"+ns, "nft", rule) }
	nft("add table ip t")
	nft("add chain ip t raw { type filter hook output priority raw ; }")
	nft("add rule ip t raw ip daddr 10.10.0.1 ct zone set 7")
	nft("add rule ip t raw ip daddr 10.10.0.2 ct zone set 9")
	nft("add chain ip t out { type filter hook output priority 0 ; }")
	nft("add rule ip t out ct state new counter")
	if counts, err := count(t.Context(), ns); err != nil || counts[7] != 0 {
		t.Fatalf("before: %v, %v", counts, err)
	}
	for _, to := range []string{"10.10.0.1", "10.10.0.1", "10.10.0.2"} {
		testutil.Run(t, "ip", "netns", "exec", ns, "ping", "-c1", "-W10", to) // each has an id of its own
	}
	counts, err := count(t.Context(), ns)
	if err != nil || counts[7] != 2 || counts[9] != 1 {
		t.Errorf("%v, %v; want 2 entries in zone 7 and 1 in zone 9", counts, err)
	}
	if _, err := count(t.Context(), "vigia-test-absent"); err == nil {
		t.Error("an absent namespace has connections")
	}
}

func TestZonesAreLaidAtPorts(t *testing.T) {
	s := New(sourcetest.Families(t), "", func() map[string]uint16 { return map[string]uint16{"a": 3, "b": 4} })
	p := exposition.NewPage(nil)
	v := sourcetest.View([]ports.Port{{ID: "a", Tenant: "red"}, {ID: "b", Tenant: "blue"}, {ID: "c", Tenant: "blue"}}, nil, nil, time.Now())
	if err := s.Collect(v, p); err == nil {
		t.Error("there are counts before the first read")
	}
	s.poller = sourcetest.Fixed(map[uint16]int{0: 5, 3: 70})
	if err := s.Collect(v, p); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := p.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`vigia_port_conntrack_entries{port="a",tenant="red"} 70`, `vigia_port_conntrack_entries{port="b",tenant="blue"} 0`,
		`vigia_conntrack_zone_entries{zone="0"} 5`,
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), `port="c"`) || strings.Contains(out.String(), `zone="3"`) {
		t.Errorf("too much:\n%s", out.String())
	}
}

func TestEntriesAreCheckedBeforeTheyAreRead(t *testing.T) {
	entry := []byte{2, 0, 0, 0, 6, 0, 0, ctaZone, 1, 2, 0, 0}
	binary.NativeEndian.PutUint16(entry[4:], 6)
	binary.NativeEndian.PutUint16(entry[6:], ctaZone)
	if got, err := zone(entry); got != 0x102 || err != nil {
		t.Errorf("zone %#x, %v", got, err)
	}
	if got, err := zone(entry[:4]); got != 0 || err != nil {
		t.Errorf("without a zone: %d, %v", got, err)
	}
	for name, bad := range map[string][]byte{
		"without a head":            nil,
		"an attribute of nothing":   {2, 0, 0, 0, 0, 0, 0, 0},
		"an attribute past the end": {2, 0, 0, 0, 99, 0, 1, 0},
	} {
		if _, err := zone(bad); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
