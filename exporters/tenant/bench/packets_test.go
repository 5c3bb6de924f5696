package bench

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"vigia/internal/bpf/vport"
	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// BenchmarkPrograms sends packets through a port and reads from the kernel's own
// statistics what the programs there cost, beside one that only adds up packets and bytes.
// Between two packets the network stack takes the processor's caches for itself, which
// costs both; budgets are for the programs alone, see BenchmarkVport in internal/bpf/vport.
func BenchmarkPrograms(b *testing.B) {
	interruptible(b)
	for _, tc := range []struct {
		name string
		hook vport.Hook
		tcp  bool
	}{{"tcx/udp", vport.TCX, false}, {"tcx/tcp", vport.TCX, true}, {"xdp/udp", vport.XDP, false}} {
		b.Run(tc.name, func(b *testing.B) { programs(b, tc.hook, tc.tcp) })
	}
}

const packets = 200_000

func programs(b *testing.B, hook vport.Hook, tcp bool) {
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	node, guest, pins := testutil.NewNetNS(b), testutil.NewNetNS(b), testutil.NewBPFFS(b)
	testutil.DisableIPv6(b, node)
	testutil.DisableIPv6(b, guest)
	testutil.NewVethPair(b, node, "tap0", guest, "eth0")
	testutil.IP(b, "-n", node, "addr", "add", "10.7.0.1/24", "dev", "tap0")
	testutil.IP(b, "-n", guest, "addr", "add", "10.7.0.2/24", "dev", "eth0")
	m, err := vport.Open(vport.Options{PinDir: pins, NetNS: node, MaxPorts: 8})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	index := 0
	err = netns.Do(node, func() error {
		ifi, err := net.InterfaceByName("tap0")
		if err == nil {
			index = ifi.Index
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	if err := m.Attach(index, hook); err != nil {
		b.Fatal(err)
	}
	attach := time.Since(start)
	counting, empty := behind(b, node, index, testutil.CountingProgram(b)), behind(b, node, index, testutil.EmptyProgram(b))
	for range b.N {
		if tcp {
			streams(b, node, guest)
		} else {
			datagrams(b, node, guest)
		}
	}
	entries, err := os.ReadDir(pins + "/links")
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("load average %s, attached in %.2f ms", loadAverage(b), ms(attach))
	base, runs := cost(b, empty)
	b.Logf("%-12s %9d runs %7.1f ns each: what counting the time costs", "empty", runs, base)
	least, runs := cost(b, counting)
	b.Logf("%-12s %9d runs %7.1f ns each", "counting", runs, least)
	for _, e := range entries {
		nanoseconds, runs := pinnedCost(b, pins+"/links/"+e.Name())
		b.Logf("%-12s %9d runs %7.1f ns each", e.Name(), runs, nanoseconds)
		if runs >= packets/4 { // few runs cost what cold caches cost
			b.Logf("%-12s takes %.1f ns beyond the empty program, %.1f times what adding up takes", e.Name(), nanoseconds-base, (nanoseconds-base)/(least-base))
		}
		b.ReportMetric(nanoseconds, e.Name()+"-ns/run")
	}
	b.ReportMetric(base, "empty-ns/run")
	b.ReportMetric(least, "counting-ns/run")
}

// behind attaches a program behind the others. What an empty one takes is the cost of
// the kernel's statistics, and no program's.
func behind(b *testing.B, ns string, index int, p *ebpf.Program) *ebpf.Program {
	b.Helper()
	err := netns.Do(ns, func() error {
		l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: index, Attach: ebpf.AttachTCXIngress, Anchor: link.Tail()})
		if err == nil {
			b.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func datagrams(b *testing.B, node, guest string) {
	b.Helper()
	var server, client *net.UDPConn
	to := netip.MustParseAddrPort("10.7.0.1:5353")
	err := netns.Do(node, func() (err error) {
		server, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	err = netns.Do(guest, func() (err error) { client, err = net.ListenUDP("udp4", nil); return err })
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	payload := make([]byte, 100)
	for range packets {
		if _, err := client.WriteToUDPAddrPort(payload, to); err != nil {
			b.Fatal(err)
		}
	}
}

func streams(b *testing.B, node, guest string) {
	b.Helper()
	var l net.Listener
	if err := netns.Do(node, func() (err error) { l, err = net.Listen("tcp4", "10.7.0.1:5201"); return err }); err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buffer := make([]byte, 1<<16)
		for {
			if _, err := c.Read(buffer); err != nil {
				return
			}
		}
	}()
	var c net.Conn
	if err := netns.Do(guest, func() (err error) { c, err = net.Dial("tcp4", "10.7.0.1:5201"); return err }); err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 1000)
	for range packets {
		if _, err := c.Write(payload); err != nil {
			b.Fatal(err)
		}
	}
	c.Close()
	<-done
}

// pinnedCost returns what a run of the pinned link's program took, and how many there were.
func pinnedCost(b *testing.B, pin string) (nanoseconds float64, runs uint64) {
	b.Helper()
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		b.Fatal(err)
	}
	p, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	return cost(b, p)
}

// cost returns what a run of a program took, and how many there were.
func cost(b *testing.B, p *ebpf.Program) (nanoseconds float64, runs uint64) {
	b.Helper()
	s, err := p.Stats()
	if err != nil {
		b.Fatal(err)
	}
	return float64(s.Runtime.Nanoseconds()) / float64(max(1, s.RunCount)), s.RunCount
}
