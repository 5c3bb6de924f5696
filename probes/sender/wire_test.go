package sender

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"vigia/internal/netns"
	"vigia/internal/testutil"
	"vigia/probes/delay"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
)

// listen opens a plain socket in a namespace and returns what arrives there.
func listen(t *testing.T, ns string, at netip.AddrPort) func() timestamping.Datagram {
	t.Helper()
	var s *timestamping.Socket
	err := netns.Do(ns, func() (err error) {
		s, err = timestamping.Open(timestamping.Options{Local: at, ReportHeader: true})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	in := timestamping.NewInbox(1, 1<<16)
	return func() (d timestamping.Datagram) {
		t.Helper()
		testutil.WaitFor(t, "a datagram", func() bool {
			n, err := in.Receive(s)
			if err != nil {
				t.Fatal(err)
			}
			return n > 0
		})
		in.Datagram(0, &d)
		return d
	}
}

// TestProbesOnTheWire looks at the packets themselves.
func TestProbesOnTheWire(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, host, source string
		size               int
		dscp               uint8
	}{
		{"IPv4", "127.0.0.1", "127.0.0.1:0", 64, 0},
		{"IPv4 marked", "127.0.0.1", "127.0.0.1:0", 44, 46},
		{"IPv6 marked", "::1", "[::1]:0", 1000, 10},
		{"largest", "127.0.0.1", "127.0.0.1:0", stamp.MaxSize, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at := testutil.FreePort(t, "udp", tc.host)
			next := listen(t, "", at)
			f := newSender(t, Options{})
			tg := target("b", at)
			tg.Size, tg.DSCP, tg.Source, tg.Count = tc.size, tc.dscp, netip.MustParseAddrPort(tc.source), 3
			f.apply(tg)
			for i := range uint32(3) {
				d := next()
				now := time.Now().UnixNano()
				r, ok := stamp.ParseRequest(d.Payload)
				if !ok || len(d.Payload) != tc.size || r.Sequence != i || r.SSID == 0 || r.ErrorEstimate.Format() != stamp.NTP || r.ErrorEstimate.Seconds() <= 0 {
					t.Fatalf("%d bytes, %+v", len(d.Payload), r)
				}
				if age := now - r.Timestamp.UnixNano(stamp.NTP, now); age < 0 || age > int64(patience) {
					t.Errorf("sent %d ns ago", age)
				}
				if d.TOS != tc.dscp<<2 {
					t.Errorf("TOS %d, want %d", d.TOS, tc.dscp<<2)
				}
				if strings.Trim(string(d.Payload[16:44]), "\x00") != "" {
					t.Errorf("bytes that must be zero: %x", d.Payload[16:44])
				}
			}
		})
	}
}

// TestSourcePort fixes the port that probes come from.
func TestSourcePort(t *testing.T) {
	t.Parallel()
	at := testutil.FreePort(t, "udp", "127.0.0.1")
	next := listen(t, "", at)
	f := newSender(t, Options{})
	tg := target("b", at)
	tg.Source = testutil.FreePort(t, "udp", "127.0.0.1")
	f.apply(tg)
	if d := next(); d.From != tg.Source {
		t.Errorf("a probe came from %s, want %s", d.From, tg.Source)
	}
}

// TestClasses probes with every kind of layout; those with room for it have kernel
// delays.
func TestClasses(t *testing.T) {
	t.Parallel()
	at := reflectOnLoopback(t)
	f := newSender(t, Options{})
	const n = 30
	var targets []Target
	for _, size := range []int{44, 48, 63, 64, 68, 1472, 9000, 65507} {
		tg := target(fmt.Sprint(size), at)
		tg.Size, tg.Count = size, n
		targets = append(targets, tg)
	}
	f.apply(targets...)
	for _, tg := range targets {
		st, settled := f.finish(tg.Labels)
		if st.Counts.Received != n || st.Counts.Corrupt != 0 {
			t.Errorf("%d bytes: %+v", tg.Size, st.Counts)
		}
		if tg.Size >= 64 {
			mostlyGood(t, settled)
			continue
		}
		for _, p := range settled {
			if p.Verdict == delay.Good {
				t.Errorf("%d bytes: probe %d has verdict %v", tg.Size, p.Sequence, p.Verdict)
			}
		}
	}
}

// TestIPv6OverVeth goes over a link with IPv6 alone, from a wildcard socket.
func TestIPv6OverVeth(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	testutil.IP(t, "-n", left, "addr", "add", "fd00:9::1/64", "dev", "veth0", "nodad")
	testutil.IP(t, "-n", right, "addr", "add", "fd00:9::2/64", "dev", "veth0", "nodad")
	// Until the neighbour is known, which takes IPv6 seconds, probes wait and come all at once.
	inNamespace(t, left, "ping", "-c", "1", "-w", "30", "fd00:9::2")
	at := netip.MustParseAddrPort("[fd00:9::2]:862")
	reflect(t, right, at)
	f := newSender(t, Options{})
	tg := target("b", at)
	tg.Netns, tg.Count = left, 50
	f.apply(tg)
	st, settled := f.finish(tg.Labels)
	if st.Counts.Received != 50 {
		t.Errorf("%v, %+v", st.LastError, st.Counts)
	}
	mostlyGood(t, settled)
	for _, p := range settled {
		if p.Verdict == delay.Good && p.Stamps.RTT() <= 0 {
			t.Errorf("probe %d: %d ns", p.Sequence, p.Stamps.RTT())
		}
	}
}

var udpRE = regexp.MustCompile(`(?m)^Udp: (\d+) (\d+) (\d+) (\d+)`)

// udpCounters returns datagrams in and out of a namespace as the kernel counts
// them, and those that were in error.
func udpCounters(t *testing.T, ns string) (in, out, wrong uint64) {
	t.Helper()
	m := udpRE.FindStringSubmatch(inNamespace(t, ns, "cat", "/proc/net/snmp"))
	if m == nil {
		t.Fatal("no UDP counters")
	}
	number := func(s string) uint64 {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	return number(m[1]), number(m[4]), number(m[2]) + number(m[3])
}

// TestCountsAgainstTheKernel compares what the sender says with what the kernels
// of both ends counted, at a rate at which others lose packets by themselves.
func TestCountsAgainstTheKernel(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	reflect(t, right, right862)
	f := newSender(t, Options{})
	var targets []Target
	for i := range 20 {
		tg := overVeth(left, 100)
		tg.Labels.Dst = fmt.Sprint("b", i)
		tg.Interval = 10 * time.Millisecond
		targets = append(targets, tg)
	}
	f.apply(targets...)
	var handed, received uint64
	for _, tg := range targets {
		st, _ := f.finish(tg.Labels)
		handed, received = handed+st.Counts.Handed, received+st.Counts.Received
	}
	closings := uint64(0)
	if err := f.engine.loop.Do(func() {
		for _, ser := range f.engine.series {
			closings += uint64(ser.current[0].closings)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if handed != 2000 || received != 2000 {
		t.Errorf("%d handed over, %d received", handed, received)
	}
	said := ""
	defer func() { t.Log(said) }()
	// A starved reflector may not have come to the last closings yet.
	testutil.WaitFor(t, "the kernels to count each packet once", func() bool {
		f.status(targets[0].Labels) // has the sender read what has come
		leftIn, leftOut, leftWrong := udpCounters(t, left)
		rightIn, rightOut, rightWrong := udpCounters(t, right)
		want := handed + closings
		said = fmt.Sprintf("%d probes and closings; the kernels counted %d out, %d in, %d out, %d in, %d in error", want, leftOut, rightIn, rightOut, leftIn, leftWrong+rightWrong)
		return leftOut == want && rightIn == want && rightOut == want && leftIn == want && leftWrong+rightWrong == 0
	})
}
