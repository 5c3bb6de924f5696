package sender

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/internal/testutil"
	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol/connect"
	"vigia/probes/protocol/echo"
)

// pair joins two namespaces over veth, 10.9.0.1 and 10.9.0.2, fd00:9::1 and ::2.
func pair(t *testing.T) (near, far string) {
	t.Helper()
	near, far = testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, near, "v0", far, "v0")
	for i, ns := range []string{near, far} {
		testutil.IP(t, "-n", ns, "addr", "add", fmt.Sprintf("10.9.0.%d/24", i+1), "dev", "v0")
		testutil.IP(t, "-n", ns, "addr", "add", fmt.Sprintf("fd00:9::%d/64", i+1), "dev", "v0", "nodad")
	}
	return near, far
}

func echoTarget(name, ns, host string, size int) Target {
	tg := target(name, netip.AddrPortFrom(netip.MustParseAddr(host), 0))
	tg.Netns, tg.Size, tg.Count = ns, size, 8
	tg.Protocol = echo.Protocol{}
	return tg
}

// ICMP echo in every size over both families, from raw and unprivileged sockets:
// each probe has kernel stamps, and none is lost or damaged.
func TestEcho(t *testing.T) {
	t.Parallel()
	near, _ := pair(t)
	for _, unprivileged := range []bool{false, true} {
		if unprivileged {
			testutil.Run(t, "ip", "netns", "exec", near, "sysctl", "-qw", "net.ipv4.ping_group_range=0 2147483647")
		}
		f := newSender(t, Options{})
		var targets []Target
		for _, size := range []int{16, 56, 1473, 65507} {
			targets = append(targets, echoTarget(fmt.Sprint("v4-", size), near, "10.9.0.2", size))
		}
		targets = append(targets, echoTarget("v6", near, "fd00:9::2", 2000))
		f.apply(targets...)
		for _, tg := range targets {
			st, probes := f.finish(tg.Labels)
			if st.Counts.Received != 8 || st.Counts.Corrupt != 0 || st.Quarantined != [delay.NumVerdicts]uint64{} {
				t.Errorf("unprivileged=%v %s: %+v, quarantined %v, %v", unprivileged, tg.Labels.Dst, st.Counts, st.Quarantined, st.LastError)
			}
			for i := range probes {
				p := &probes[i]
				if p.Verdict != delay.Good || p.Stamps.RTT() <= 0 || p.Stamps.RTT() > p.Application {
					t.Errorf("%s: rtt %d, application %d, %v", tg.Labels.Dst, p.Stamps.RTT(), p.Application, p.Verdict)
				}
			}
			n := f.note(tg.Labels)
			for _, v := range n.varied {
				if v[delay.Forward] != 0 || v[delay.Reverse] != 0 {
					t.Errorf("an echo has a one-way variation: %v", v)
				}
			}
		}
		_, totals, err := f.Snapshot(nil)
		if err != nil || totals.Stray != 0 || totals.Stamps[TX][Kernel] != 8*uint64(len(targets)) || totals.Stamps[ReflectorRX] != [NumSources]uint64{} {
			t.Errorf("%+v, %v", totals, err)
		}
		f.stop()
		f.Close()
	}
}

// Two raw sockets in one namespace hear each other's answers and take their own
// only; an address that does not exist is reported and its probes are lost.
func TestEchoKeepsToItself(t *testing.T) {
	t.Parallel()
	near, _ := pair(t)
	f := newSender(t, Options{})
	one := echoTarget("one", near, "10.9.0.2", 64)
	other := echoTarget("other", near, "10.9.0.2", 64)
	other.Channel.Mark = 7 // another socket
	absent := echoTarget("absent", near, "10.9.0.77", 64)
	absent.Count, absent.Deadline = 2, 100*time.Millisecond
	f.apply(one, other, absent)
	for _, tg := range []Target{one, other} {
		if st, _ := f.finish(tg.Labels); st.Counts.Received != 8 || st.Counts.Duplicate+st.Counts.Corrupt != 0 {
			t.Errorf("%s: %+v", tg.Labels.Dst, st.Counts)
		}
	}
	st, _ := f.finish(absent.Labels)
	if st.Counts.LostTotal() != 2 || st.Counts.Received != 0 {
		t.Errorf("absent: %+v", st.Counts)
	}
	f.waitFor("the reason", func() bool { return errors.Is(f.status(absent.Labels).LastError, unix.EHOSTUNREACH) })
}

// unhurriedInterval is long enough for one try more of the kernel, of a handshake or of an
// address that is asked for: the first may meet a machine without a free processor.
const unhurriedInterval = 4 * time.Second

func connectTarget(name, ns string, to netip.AddrPort) Target {
	tg := target(name, to)
	tg.Netns, tg.Size, tg.Count, tg.Interval, tg.Deadline = ns, 0, 6, 50*time.Millisecond, 50*time.Millisecond
	tg.Protocol = connect.Protocol{}
	return tg
}

// accept accepts connections in a namespace and returns the source ports seen.
func accept(t *testing.T, ns, address string) <-chan netip.AddrPort {
	t.Helper()
	var l net.Listener
	if err := netns.Do(ns, func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	seen := make(chan netip.AddrPort, 1024)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			seen <- c.RemoteAddr().(*net.TCPAddr).AddrPort()
			c.Close()
		}
	}()
	return seen
}

// Each TCP probe is a connection of its own from a port of its own, with the
// handshake as the kernel measured it; nothing is left behind.
func TestConnect(t *testing.T) {
	t.Parallel()
	near, far := pair(t)
	seen := accept(t, far, "[::]:7777")
	// A handshake that waits for the neighbour to be found may be begun twice, and has no time then.
	for _, to := range []string{"10.9.0.2", "fd00:9::2"} {
		inNamespace(t, near, "ping", "-c", "1", "-w", "30", to)
	}
	f := newSender(t, Options{})
	v4 := connectTarget("v4", near, netip.MustParseAddrPort("10.9.0.2:7777"))
	v6 := connectTarget("v6", near, netip.MustParseAddrPort("[fd00:9::2]:7777"))
	for _, tg := range []*Target{&v4, &v6} { // a probe ends where the next begins
		tg.Interval, tg.Deadline, tg.Count = unhurriedInterval, unhurriedInterval, 3
	}
	v6.Source = netip.MustParseAddrPort("[fd00:9::1]:0")
	f.apply(v4, v6)
	for _, tg := range []Target{v4, v6} {
		st, probes := f.finish(tg.Labels)
		if st.Counts.Received != 3 || st.Counts.Corrupt+st.Counts.Late+st.Counts.Duplicate != 0 {
			t.Errorf("%s: %+v, %v", tg.Labels.Dst, st.Counts, st.LastError)
		}
		for i := range probes {
			p := &probes[i]
			if p.Verdict != delay.Good || p.Stamps.RTT() < 1000 || p.Stamps.RTT() > p.Application+1000 {
				t.Errorf("%s: rtt %d, application %d, %v", tg.Labels.Dst, p.Stamps.RTT(), p.Application, p.Verdict)
			}
		}
	}
	ports := make(map[netip.AddrPort]bool)
	for range 6 {
		select {
		case a := <-seen:
			ports[a] = true
		case <-time.After(patience):
			t.Fatal("a connection never arrived")
		}
	}
	if len(ports) != 6 {
		t.Errorf("source ports repeat: %v", ports)
	}
	testutil.WaitFor(t, "no connection to be left", func() bool {
		return testutil.Run(t, "ip", "netns", "exec", near, "ss", "-Htan", "dport = 7777") == ""
	})
}

// A refused connection, and one that nobody answers, are lost at their deadline,
// the target says why, and the accounts stay in order; the port that opens later
// is noticed with the next probe.
func TestConnectFails(t *testing.T) {
	t.Parallel()
	near, far := pair(t)
	testutil.Run(t, "ip", "netns", "exec", far, "nft", "add table inet t; add chain inet t i { type filter hook input priority 0; }; add rule inet t i tcp dport 7778 drop")
	f := newSender(t, Options{})
	refused := connectTarget("refused", near, netip.MustParseAddrPort("10.9.0.2:7779"))
	refused.Count = 0
	silent := connectTarget("silent", near, netip.MustParseAddrPort("10.9.0.2:7778"))
	f.apply(refused, silent)
	st, _ := f.finish(silent.Labels)
	if st.Counts.Lost[accounting.Unknown] != 6 || st.Counts.Handed != 6 {
		t.Errorf("silent: %+v", st.Counts)
	}
	f.waitFor("the refusal", func() bool {
		st := f.status(refused.Labels)
		return errors.Is(st.LastError, syscall.ECONNREFUSED) && st.Counts.Lost[accounting.Unknown] > 2 && st.Counts.Received == 0
	})
	accept(t, far, "10.9.0.2:7779")
	f.waitFor("connections", func() bool { return f.status(refused.Labels).Up && f.status(refused.Labels).Counts.Received > 2 })
}

// TestConnectWithoutAccept connects to a program that does not look: the kernel completes the
// handshake, and nothing else ever happens to the connection.
func TestConnectWithoutAccept(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f := newSender(t, Options{})
	tg := connectTarget("mute", "", l.Addr().(*net.TCPAddr).AddrPort())
	tg.Interval, tg.Deadline, tg.Count = unhurriedInterval, unhurriedInterval, 2
	f.apply(tg)
	if st, _ := f.finish(tg.Labels); st.Counts.Received != 2 {
		t.Errorf("%+v, %v", st.Counts, st.LastError)
	}
}
