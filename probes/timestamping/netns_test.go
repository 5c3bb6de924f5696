package timestamping

import (
	"net/netip"
	"testing"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

func openIn(t *testing.T, ns, local string) *Socket {
	t.Helper()
	var s *Socket
	err := netns.Do(ns, func() (err error) {
		s, err = Open(Options{Local: netip.MustParseAddrPort(local)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestStampsOverVeth checks what the whole program rests on: over a veth pair
// every packet has exactly one send stamp and one receive stamp, in order.
func TestStampsOverVeth(t *testing.T) {
	warm(t)
	left, right := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, left, "veth0", right, "veth0")
	testutil.IP(t, "-n", left, "addr", "add", "10.9.8.1/24", "dev", "veth0")
	testutil.IP(t, "-n", right, "addr", "add", "10.9.8.2/24", "dev", "veth0")
	// Few packets wait for a neighbour that is still to be found.
	testutil.Run(t, "ip", "netns", "exec", left, "ping", "-c", "1", "-w", "30", "10.9.8.2")
	a, b := openIn(t, left, "10.9.8.1:0"), openIn(t, right, "10.9.8.2:0")
	const packets = 500
	in, queue := NewInbox(16, 64), NewErrorQueue(16)
	sent, received := make(map[uint32]int64), make([]int64, 0, packets)
	for range packets {
		send(t, a, b.Local(), "x")
		collect(t, queue, a, sent)
		received = append(received, arrivals(t, in, b)...)
	}
	for len(received) < packets {
		received = append(received, stampsOf(in, await(t, in, b))...)
	}
	if len(sent) != packets {
		t.Fatalf("%d send stamps for %d packets", len(sent), packets)
	}
	for i, rx := range received {
		if tx := sent[uint32(i)]; tx == 0 || rx < tx {
			t.Fatalf("packet %d: sent %d, received %d", i, tx, rx)
		}
	}
}

func collect(t *testing.T, queue *ErrorQueue, s *Socket, into map[uint32]int64) {
	t.Helper()
	n, err := queue.Receive(s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		var r Report
		if !queue.Report(i, &r) {
			t.Fatalf("report %+v", r)
		}
		if _, twice := into[r.Count]; twice {
			t.Fatalf("packet %d was stamped twice", r.Count)
		}
		into[r.Count] = r.Stamp
	}
}

func arrivals(t *testing.T, in *Inbox, s *Socket) []int64 {
	t.Helper()
	n, err := in.Receive(s)
	if err != nil {
		t.Fatal(err)
	}
	return stampsOf(in, n)
}

func stampsOf(in *Inbox, n int) []int64 {
	var out []int64
	for i := range n {
		var d Datagram
		in.Datagram(i, &d)
		out = append(out, d.Stamp)
	}
	return out
}
