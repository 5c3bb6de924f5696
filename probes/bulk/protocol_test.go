package bulk

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vigia/probes/timestamping"
)

// TestRequestsAreBounded: what comes from outside decides about memory and time.
func TestRequestsAreBounded(t *testing.T) {
	good := func() testRequest {
		return testRequest{Version: version, Protocol: UDP, Packets: 10, Size: 1000, Duration: int64(time.Second)}
	}
	for _, tc := range []struct {
		name   string
		change func(*testRequest)
		want   string // empty for none
	}{
		{"good", func(*testRequest) {}, ""},
		{"the most", func(r *testRequest) { r.Packets, r.Size, r.Duration = MaxPackets, MaxSize, int64(MaxDuration) }, ""},
		{"the least", func(r *testRequest) { r.Packets, r.Size, r.Duration = 1, MinSize, 1 }, ""},
		{"TCP needs no packets", func(r *testRequest) { r.Protocol, r.Packets, r.Size = TCP, 0, 0 }, ""},
		{"another version", func(r *testRequest) { r.Version = 2 }, "version 2 is not known; run the same vigia-probe at both ends"},
		{"no version", func(r *testRequest) { r.Version = 0 }, "version 0 is not known"},
		{"another protocol", func(r *testRequest) { r.Protocol = "sctp" }, `protocol "sctp" is not known`},
		{"no protocol", func(r *testRequest) { r.Protocol = "" }, `protocol "" is not known`},
		{"no time", func(r *testRequest) { r.Duration = 0 }, "the duration is out of bounds"},
		{"a negative time", func(r *testRequest) { r.Duration = -1 << 63 }, "the duration is out of bounds"},
		{"too long", func(r *testRequest) { r.Duration = int64(MaxDuration) + 1 }, "the duration is out of bounds"},
		{"no packets", func(r *testRequest) { r.Packets = 0 }, "the number or size of packets is out of bounds"},
		{"too many", func(r *testRequest) { r.Packets = MaxPackets + 1 }, "the number or size of packets is out of bounds"},
		{"too small", func(r *testRequest) { r.Size = MinSize - 1 }, "the number or size of packets is out of bounds"},
		{"a test of 16 machines", func(r *testRequest) { r.Connections = 8 }, ""},
		{"too many connections", func(r *testRequest) { r.Connections = 9 }, "the number of connections is out of bounds"},
		{"fewer than no connections", func(r *testRequest) { r.Connections = -1 }, "the number of connections is out of bounds"},
		{"too large", func(r *testRequest) { r.Size = MaxSize + 1 }, "the number or size of packets is out of bounds"},
	} {
		r := good()
		tc.change(&r)
		if err := r.check(); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

// TestLines are read whole or not at all, and are of bounded size.
func TestLines(t *testing.T) {
	reader := func(s string) *bufio.Reader { return bufio.NewReaderSize(strings.NewReader(s), maxLine) }
	var r report
	if err := readLine(reader(`{"bytes":5}`+"\n"+"rest"), &r); err != nil || r.Bytes != 5 {
		t.Errorf("%+v, %v", r, err)
	}
	for name, tc := range map[string]struct {
		line string
		want string
	}{
		"nothing":       {"", io.EOF.Error()},
		"half a line":   {`{"bytes":5}`, io.EOF.Error()},
		"too long":      {`{"bytes":` + strings.Repeat(" ", maxLine) + "5}\n", "the line is too long"},
		"no JSON":       {"bytes=5\n", "invalid character"},
		"another type":  {`{"bytes":"five"}` + "\n", "cannot unmarshal"},
		"out of bounds": {`{"bytes":-5}` + "\n", "cannot unmarshal"},
	} {
		if err := readLine(reader(tc.line), &r); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	var out strings.Builder
	if err := writeLine(&out, endOfTest{Packets: 9}); err != nil || out.String() != `{"packets":9}`+"\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := writeLine(&out, func() {}); err == nil {
		t.Error("a function was written as JSON")
	}
	if err := writeLine(full{}, endOfTest{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// packet is a datagram of a UDP test as it arrives.
func packet(token, sequence uint64, sent, arrived int64, size int) *timestamping.Datagram {
	b := make([]byte, size)
	binary.BigEndian.PutUint64(b, token)
	binary.BigEndian.PutUint64(b[8:], sequence)
	binary.BigEndian.PutUint64(b[16:], uint64(sent))
	return &timestamping.Datagram{Payload: b, From: netip.MustParseAddrPort("10.0.0.1:5"), Stamp: arrived}
}

// TestCounterAgainstAModel receives packets in random order, some twice and some never, and
// compares with sets and slices.
func TestCounterAgainstAModel(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 4))
		n := 1 + rng.IntN(300)
		c := newCounter(&testRequest{Packets: n, Token: 77}, netip.MustParseAddr("10.0.0.1"))
		var order []int
		for i := range n {
			for range rng.IntN(3) {
				order = append(order, i)
			}
		}
		if rng.IntN(2) == 0 {
			rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		seen := make(map[int]bool)
		var duplicates, reordered, size uint64
		highest := -1
		for at, i := range order {
			b := 64 + rng.IntN(1000)
			c.add(packet(77, uint64(i), int64(i)*1000, int64(at)*1000, b))
			switch {
			case seen[i]:
				duplicates++
				continue
			case i < highest:
				reordered++
			}
			seen[i], highest, size = true, max(highest, i), size+uint64(b)
		}
		if c.r.Received != uint64(len(seen)) || c.r.Duplicate != duplicates || c.r.Reordered != reordered || c.r.Bytes != size {
			t.Fatalf("seed %d: %+v, want %d received, %d duplicate, %d reordered, %d bytes", seed, c.r, len(seen), duplicates, reordered, size)
		}
	}
}

// TestForeignPacketsDoNotCount: of another test, another sender, too short, beyond the end.
func TestForeignPacketsDoNotCount(t *testing.T) {
	c := newCounter(&testRequest{Packets: 10, Token: 77}, netip.MustParseAddr("10.0.0.1"))
	other := packet(77, 0, 0, 1, 100)
	other.From = netip.MustParseAddrPort("10.0.0.9:5")
	short := packet(77, 0, 0, 1, 100)
	short.Payload = short.Payload[:headerSize-1]
	for _, d := range []*timestamping.Datagram{other, short, packet(78, 0, 0, 1, 100), packet(77, 10, 0, 1, 100), packet(77, 1<<63, 0, 1, 100)} {
		c.add(d)
	}
	if c.r != (report{}) {
		t.Errorf("%+v", c.r)
	}
	mapped := packet(77, 3, 0, 1, 100)
	mapped.From = netip.MustParseAddrPort("[::ffff:10.0.0.1]:5")
	c.add(mapped)
	if c.r.Received != 1 {
		t.Error("an IPv4 sender on an IPv6 socket does not count")
	}
}

// TestBudgetAgainstAModel spends and gives back at random over hours, and compares with a
// list of everything.
func TestBudgetAgainstAModel(t *testing.T) {
	type spending struct {
		minute int64
		bytes  uint64
	}
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 8))
		var b budget
		b.setLimit(10_000)
		now := time.Unix(1_700_000_000, 0)
		var all []*spending
		for range 300 {
			now = now.Add(time.Duration(rng.IntN(300)) * time.Second)
			minute := now.Unix() / 60
			sum := uint64(0)
			for _, s := range all {
				if s.minute >= minute-minutes {
					sum += s.bytes
				}
			}
			if got := b.left(now); got != 10_000-min(sum, 10_000) {
				t.Fatalf("seed %d: %d left, want %d", seed, got, 10_000-min(sum, 10_000))
			}
			n := uint64(rng.IntN(4000))
			refund, ok := b.take(now, n)
			if ok != (n <= 10_000-min(sum, 10_000)) {
				t.Fatalf("seed %d: %d bytes of %d: %v", seed, n, 10_000-sum, ok)
			}
			if !ok {
				continue
			}
			s := &spending{minute, n}
			all = append(all, s)
			if rng.IntN(3) == 0 {
				unused := uint64(rng.IntN(5000)) // more than there was gives back what there was
				refund(unused)
				s.bytes -= min(unused, s.bytes)
			}
		}
	}
}

// TestCostsAreThoseOfTheTest, which the budget is asked for before.
func TestCostsAreThoseOfTheTest(t *testing.T) {
	udp := Target{Protocol: UDP, Size: 1000, Rate: 1_000_000, Duration: 2 * time.Second}
	if udp.packets() != 2000 || udp.cost() != 2_000_000 {
		t.Errorf("%d packets, %d bytes", udp.packets(), udp.cost())
	}
	udp.Rate = 1
	if udp.packets() != 1 {
		t.Errorf("%d packets at the lowest rate", udp.packets())
	}
	udp.Rate, udp.Size, udp.Duration = MaxRate, MinSize, MaxDuration
	if udp.packets() != MaxPackets {
		t.Errorf("%d packets at the highest rate", udp.packets())
	}
	if tcp := (&Target{Protocol: TCP, MaxBytes: 5}); tcp.cost() != 5 {
		t.Errorf("%d bytes", tcp.cost())
	}
}

// TestOutcomes in numbers that cannot be negative.
func TestOutcomes(t *testing.T) {
	o := Outcome{Bytes: 3_000_000, Duration: 2 * time.Second, Packets: 100, Received: 90, Dropped: 4}
	if o.Goodput() != 1_500_000 || o.Lost() != 6 {
		t.Errorf("%v bytes/s, %d lost", o.Goodput(), o.Lost())
	}
	o.Received, o.Duration = 99, 0 // drops of datagrams of others are counted, too
	if o.Goodput() != 0 || o.Lost() != 0 {
		t.Errorf("%v bytes/s, %d lost", o.Goodput(), o.Lost())
	}
	seen := make(map[Result]bool)
	for _, r := range Results() {
		if r == "" || seen[r] {
			t.Errorf("result %q", r)
		}
		seen[r] = true
	}
}
