package fastloop

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
	"vigia/isolation-agent/enforcer/scheduling"
)

// mbit is a megabit per second in bytes per second.
const mbit = 125_000.0

// kernel remembers the limits that it was told of.
type kernel struct {
	pairs   map[vport.Destination]vport.Pair
	offered func(ifindex int, d vport.Destination) uint64
	err     error
	full    bool // of limits to single destinations
}

func (k *kernel) SetPair(_ int, d vport.Destination, p vport.Pair) error {
	if k.full && d != vport.Everything {
		return vport.ErrTooManyPairs
	}
	if k.err == nil {
		k.pairs[d] = p
	}
	return k.err
}

func (k *kernel) RemovePair(_ int, d vport.Destination) error {
	delete(k.pairs, d)
	return nil
}

func (k *kernel) PairOffered(ifindex int, d vport.Destination) (uint64, error) {
	if k.offered == nil {
		return 0, vport.ErrNotAttached
	}
	return k.offered(ifindex, d), nil
}

func (k *kernel) SweepPairs() error { return nil }

type inventory map[string]ports.Port

func (i inventory) Lookup(id string) (ports.Port, bool) {
	p, ok := i[id]
	return p, ok
}

// member is a loop whose notices the test delivers by hand.
type member struct {
	*Loop
	kernel    *kernel
	scheduler *scheduler
	notices   map[string]int
	mailbox   *net.UDPConn // of its peer: what the loop sends
	log       *testutil.Output
}

// scheduler makes classes without a kernel.
type scheduler struct {
	*scheduling.Reconciler
	classes map[uint32]uint64 // rates
	next    uint32
	err     error
}

func (s *scheduler) SetLimitClass(class uint32, _ contract.Owner, rate uint64) (uint32, error) {
	if s.err != nil {
		return 0, s.err
	}
	if class == 0 {
		s.next++
		class = s.next
	}
	if s.classes == nil {
		s.classes = map[uint32]uint64{}
	}
	s.classes[class] = rate
	return class, nil
}

func (s *scheduler) RemoveLimitClass(class uint32) error {
	delete(s.classes, class)
	return nil
}

const (
	masterA = "aa"
	masterB = "bb"
)

func master(hex string) MasterKey {
	return MasterKey{ID: uint16(hex[0]), Secret: []byte(strings.Repeat(hex, 16))}
}

// issued is what n1 has of a site's keys.
func issued(t *testing.T, s *Site, masters ...MasterKey) *Keys {
	t.Helper()
	return issuedTo(t, "n1", s, masters...)
}

func issuedTo(t *testing.T, node string, s *Site, masters ...MasterKey) *Keys {
	t.Helper()
	k, err := Issue(s, node, masters)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func listen(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// newMember is node n1, which hosts p1 of red; its peer n2 hosts p2 of red and p3 of blue.
func newMember(t *testing.T, keys ...MasterKey) *member {
	t.Helper()
	level := promslog.NewLevel()
	if err := level.Set("debug"); err != nil {
		t.Fatal(err)
	}
	m := &member{kernel: &kernel{pairs: map[vport.Destination]vport.Pair{}}, notices: map[string]int{}, mailbox: listen(t), log: &testutil.Output{}}
	s, err := LoadSite(write(t, strings.Replace(site, "127.0.0.1:2", m.mailbox.LocalAddr().String(), 1), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if keys == nil {
		keys = []MasterKey{master(masterA)}
	}
	d, err := newDirectory("n1", s, issued(t, s, keys...))
	if err != nil {
		t.Fatal(err)
	}
	m.scheduler = &scheduler{}
	m.scheduler.Reconciler, err = scheduling.NewReconciler("", nil, promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.scheduler.Close() })
	link := scheduling.Link{Device: "none", RateBytesPerSecond: 100 * mbit, Headroom: 0.05}
	both := contract.Bandwidth{GuaranteeBytesPerSecond: 24 * mbit, CeilingBytesPerSecond: 100 * mbit}
	bought, err := contract.NewSet([]contract.Contract{
		{Owner: contract.Owner{Tenant: "red"}, Send: both, Receive: both},
		{Owner: contract.Owner{Tenant: "blue"}, Send: both, Receive: both},
	})
	if err != nil {
		t.Fatal(err)
	}
	m.scheduler.Set([]scheduling.Link{link}, bought)
	m.Loop = newLoop(Config{Node: "n1", Variant: control.Vigia}, m.scheduler, nil, m.kernel,
		inventory{"p1": {ID: "p1", Tenant: "red", Index: 1}}, promslog.New(&promslog.Config{Writer: m.log, Level: level}), Events{
			Notice:  func(kind notice.Kind, outcome notice.Outcome) { m.notices[kind.String()+" "+outcome.String()]++ },
			Applied: func(time.Duration) {}, Round: func(time.Duration) {}, Detected: func(time.Duration) {}, Peer: func(string, bool) {},
		}, d)
	m.socket, m.boot = listen(t), 77
	m.refresh()
	return m
}

// peerKey is the key of n1 and n2.
func peerKey(t *testing.T, k MasterKey) []byte {
	t.Helper()
	key, err := notice.PairKey(k.Secret, "n1", "n2", k.ID)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sent reads what the loop sends to n2 next.
func (m *member) sent(t *testing.T) notice.Notice {
	t.Helper()
	if err := m.mailbox.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2*notice.Size)
	n, _, err := m.mailbox.ReadFromUDPAddrPort(buf)
	if err != nil {
		t.Fatal(err)
	}
	key := master(masterA)
	got, err := notice.Parse(buf[:n], func(uint64, uint16) []byte { return peerKey(t, key) })
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// raw is a notice of n2 on the wire.
func raw(t *testing.T, n notice.Notice, k MasterKey) []byte {
	t.Helper()
	n.From, n.KeyID = notice.ID("n2"), k.ID
	if n.To == 0 {
		n.To = notice.ID("n1")
	}
	return n.Append(nil, peerKey(t, k))
}

// meet lets n2's process with that boot prove that it is live.
func (m *member) meet(t *testing.T, boot uint64) {
	t.Helper()
	m.meetBy(t, boot, time.Now())
}

func (m *member) meetBy(t *testing.T, boot uint64, now time.Time) {
	t.Helper()
	m.received(now, raw(t, notice.Notice{Kind: notice.Congest, Boot: boot, Seq: 1}, master(masterA)))
	hello := m.sent(t)
	if hello.Kind != notice.Hello {
		t.Fatalf("sent %+v, want a challenge", hello)
	}
	m.received(now, raw(t, notice.Notice{Kind: notice.HelloAck, Boot: boot, Seq: 2, Nonce: hello.Nonce}, master(masterA)))
}

// congest asks n1 to hold p1 back from sending to p2.
func congest(seq uint64, rate float64) notice.Notice {
	return notice.Notice{
		Kind: notice.Congest, Boot: 5, Seq: seq, Source: [6]byte{2, 0, 0, 0, 0, 1}, Destination: [4]byte{192, 168, 0, 2},
		Tenant: notice.ID("red"), Measured: uint64(80 * mbit), Rate: uint64(rate), Lease: time.Second, Severity: 1, Sources: 1,
	}
}

func TestANoticeOfALivePeerIsObeyedAndAnswered(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	m.received(time.Now(), raw(t, congest(3, 30*mbit), master(masterA)))
	answer := m.sent(t)
	if answer.Kind != notice.Ack || answer.Nonce != 3 || answer.Rate != uint64(30*mbit) || answer.Flags&notice.AtFloor != 0 {
		t.Errorf("answered %+v", answer)
	}
	pair, held := m.kernel.pairs[vport.Destination{192, 168, 0, 2}]
	if !held || pair.Rate != uint64(30*mbit) || pair.TTL != outlives {
		t.Errorf("in the kernel: %+v", m.kernel.pairs)
	}
	m.received(time.Now(), raw(t, congest(4, 1), master(masterA)))
	if answer = m.sent(t); answer.Rate != uint64(24*mbit) || answer.Flags&notice.AtFloor == 0 || m.notices["congest floor"] != 1 {
		t.Errorf("below the floor: %+v, %v", answer, m.notices)
	}
	m.received(time.Now(), raw(t, func() notice.Notice { n := congest(5, 0); n.Kind = notice.Release; return n }(), master(masterA)))
	if len(m.kernel.pairs) != 0 || len(m.Limits()) != 0 {
		t.Errorf("after the release: %+v", m.kernel.pairs)
	}
}

func TestNothingForgedReplayedOrForeignIsObeyed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*notice.Notice)
		key    MasterKey
		want   string
	}{
		"another key":        {func(*notice.Notice) {}, master(masterB), "any hmac"},
		"a replay":           {func(n *notice.Notice) { n.Seq = 2 }, master(masterA), "congest replay"},
		"another process":    {func(n *notice.Notice) { n.Boot = 6 }, master(masterA), "congest stale"},
		"for another node":   {func(n *notice.Notice) { n.To = notice.ID("n2") }, master(masterA), "congest misdirected"},
		"an unknown source":  {func(n *notice.Notice) { n.Source[5] = 9 }, master(masterA), "congest authz"},
		"another's source":   {func(n *notice.Notice) { n.Source[5] = 2 }, master(masterA), "congest authz"},
		"another tenant":     {func(n *notice.Notice) { n.Tenant = notice.ID("blue") }, master(masterA), "congest authz"},
		"an unknown tenant":  {func(n *notice.Notice) { n.Tenant = 1 }, master(masterA), "congest authz"},
		"an absurd number":   {func(n *notice.Notice) { n.Seq = 0 }, master(masterA), "congest replay"},
		"another's greeting": {func(n *notice.Notice) { n.Kind = notice.HelloAck; n.Nonce = 1 }, master(masterA), "hello_ack replay"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMember(t)
			m.meet(t, 5)
			clear(m.notices)
			n := congest(3, 30*mbit)
			tc.change(&n)
			m.received(time.Now(), raw(t, n, tc.key))
			if m.notices[tc.want] != 1 || len(m.kernel.pairs) != 0 {
				t.Errorf("counted %v, in the kernel %v; want %s", m.notices, m.kernel.pairs, tc.want)
			}
		})
	}
	m := newMember(t)
	m.received(time.Now(), []byte("nonsense"))
	if m.notices["any malformed"] != 1 {
		t.Errorf("counted %v", m.notices)
	}
}

func TestALiarTakesNoMoreThanTheBurst(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	n := congest(3, 1)
	n.Sources = 60000 // there are no more than the inventory has
	n.Severity = 255
	m.received(time.Now(), raw(t, n, master(masterA)))
	if got := m.kernel.pairs[n.Destination]; got.Rate != uint64(24*mbit) {
		t.Errorf("held at %v Mbit/s", float64(got.Rate)/mbit)
	}
}

func TestBothLiveKeysAreHeard(t *testing.T) {
	m := newMember(t, master(masterA), master(masterB))
	m.meet(t, 5)
	m.received(time.Now(), raw(t, congest(3, 30*mbit), master(masterB)))
	if m.notices["congest received"] != 1 || len(m.kernel.pairs) != 1 {
		t.Errorf("counted %v", m.notices)
	}
}

func TestARefusalOfTheKernelIsAnsweredAndNothingIsAssumed(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	m.kernel.err = errors.New("no room")
	m.received(time.Now(), raw(t, congest(3, 30*mbit), master(masterA)))
	if answer := m.sent(t); answer.Kind != notice.Nack || answer.Reason != notice.Failed || len(m.Limits()) != 0 {
		t.Errorf("answered %+v, holds %v", answer, m.Limits())
	}
}

func TestAPeerThatDoesNotAnswerIsUnresponsiveUntilItDoes(t *testing.T) {
	m := newMember(t)
	changes := []bool{}
	m.events.Peer = func(_ string, unresponsive bool) { changes = append(changes, unresponsive) }
	now := time.Now()
	flood := control.Source{Link: 7, Class: 1, From: control.MAC{2, 0, 0, 0, 0, 2}, Destination: control.Address{192, 168, 0, 1}}
	red := control.ClassConfig{Tenant: "red", GuaranteeBytesPerSecond: 24 * mbit}
	severity := uint8(0)
	for range 10 {
		m.notifySource(now, &control.Congestion{Class: 1, Config: red, Rate: 24 * mbit, Dropped: 50 * mbit}, &control.Share{Source: flood, Rate: 80 * mbit, Share: 1}, 1)
		if got := m.sent(t); got.Kind != notice.Congest || got.Rate != uint64(24*mbit) || got.Severity < severity {
			t.Fatalf("sent %+v after severity %d", got, severity)
		} else {
			severity = got.Severity
		}
		now = now.Add(50 * time.Millisecond)
	}
	if len(changes) != 1 || !changes[0] || severity < 2 {
		t.Fatalf("after ten notices without an answer: %v, severity %d", changes, severity)
	}
	m.meet(t, 5)
	m.received(now, raw(t, notice.Notice{Kind: notice.Ack, Boot: 5, Seq: 3}, master(masterA)))
	if len(changes) != 2 || changes[1] {
		t.Errorf("after its answer: %v", changes)
	}
	if p := m.Peers(); len(p) != 1 || !p[0].Known || p[0].Unresponsive || p[0].Address == (netip.AddrPort{}) {
		t.Errorf("peers %+v", p)
	}
}

func TestLimitsGrowInTheKernelAndEndThere(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	start := time.Now()
	m.received(start, raw(t, congest(3, 30*mbit), master(masterA)))
	m.grow(start.Add(time.Second))
	if got := m.kernel.pairs[vport.Destination{192, 168, 0, 2}]; got.Rate <= uint64(30*mbit) {
		t.Errorf("did not grow: %+v", got)
	}
	m.grow(start.Add(time.Hour))
	if len(m.kernel.pairs) != 0 {
		t.Errorf("did not end: %+v", m.kernel.pairs)
	}
	m.received(start, raw(t, congest(4, 30*mbit), master(masterA)))
	if m.ReleaseAll() != 1 || len(m.kernel.pairs) != 0 {
		t.Errorf("not released: %+v", m.kernel.pairs)
	}
}
