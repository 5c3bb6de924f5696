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
// statistics what the programs there cost.
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
	empty := emptyProgram(b, node, index)
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
	stats0, err := empty.Stats()
	if err != nil {
		b.Fatal(err)
	}
	base := float64(stats0.Runtime.Nanoseconds()) / float64(max(1, stats0.RunCount))
	b.Logf("%-12s %9d runs %7.1f ns each: what counting the time costs", "empty", stats0.RunCount, base)
	b.ReportMetric(base, "empty-ns/run")
	for _, e := range entries {
		nanoseconds, runs := runTime(b, pins+"/links/"+e.Name())
		b.Logf("%-12s %9d runs %7.1f ns each", e.Name(), runs, nanoseconds)
		if tcp { // nothing of TCP is watched but how connections begin
			budget(b, "counting, "+e.Name(), nanoseconds-base, 10, "ns")
		} else if runs >= packets {
			budget(b, "signals, "+e.Name(), nanoseconds-base, 150, "ns")
		}
		b.ReportMetric(nanoseconds, e.Name()+"-ns/run")
	}
}

// emptyProgram attaches a program that does nothing behind the others: what its runs
// take is the cost of the kernel's statistics, and no program's.
func emptyProgram(b *testing.B, ns string, index int) *ebpf.Program {
	b.Helper()
	p := testutil.EmptyProgram(b)
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

// runTime returns what a run of the pinned link's program took, and how many there were.
func runTime(b *testing.B, pin string) (nanoseconds float64, runs uint64) {
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
	s, err := p.Stats()
	if err != nil {
		b.Fatal(err)
	}
	return float64(s.Runtime.Nanoseconds()) / float64(max(1, s.RunCount)), s.RunCount
}
