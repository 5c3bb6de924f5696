package fastloop

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
)

// noticeEvery is how often a source that goes on gets notices.
const noticeEvery = 50 * time.Millisecond

// congestion is red's class on n1, which p2 on n2 sends to.
func congestion(rate float64) *control.Congestion {
	return &control.Congestion{
		Class: 1, Config: control.ClassConfig{Tenant: "red", GuaranteeBytesPerSecond: 24 * mbit}, Rate: rate * mbit, Dropped: 6 * mbit, First: true,
	}
}

func shareOf(from byte, rate, share float64) *control.Share {
	return &control.Share{
		Source: control.Source{Link: 7, Class: 1, From: control.MAC{2, 0, 0, 0, 0, from}, Destination: control.Address{192, 168, 0, 1}}, Rate: rate * mbit, Share: share,
	}
}

func TestANoticeSaysWhatTheReceiverKnows(t *testing.T) {
	m := newMember(t)
	now := time.Now()
	c := congestion(40)
	c.Since = now.Add(-30 * time.Millisecond)
	var detected []time.Duration
	m.events.Detected = func(d time.Duration) { detected = append(detected, d) }
	m.notifySource(now, c, shareOf(2, 80, 0.75), 3)
	got := m.sent(t)
	want := notice.Notice{
		Kind: notice.Congest, KeyID: master(masterA).ID, From: notice.ID("n1"), To: notice.ID("n2"), Boot: m.boot, Seq: 1,
		Source: [6]byte{2, 0, 0, 0, 0, 2}, Destination: [4]byte{192, 168, 0, 1}, Tenant: notice.ID("red"), Measured: 80 * mbit, Dropped: 4.5 * mbit,
		Rate: 30 * mbit, Lease: lease, Severity: 1, Sources: 3,
	}
	if got != want {
		t.Errorf("sent %+v, want %+v", got, want)
	}
	if len(detected) != 1 || detected[0] != 30*time.Millisecond {
		t.Errorf("detected after %v", detected)
	}
	c.First = false
	m.notifySource(now.Add(50*time.Millisecond), c, shareOf(2, 80, 0.75), 3)
	if got := m.sent(t); got.Seq != 2 || len(detected) != 1 {
		t.Errorf("then %+v, detected %v", got, detected)
	}
}

func TestThePlainVariantAsksForHalfOfTheWholePort(t *testing.T) {
	m := newMember(t)
	m.config.Variant = control.Paper
	m.notifySource(time.Now(), congestion(40), shareOf(2, 80, 1), 1)
	if got := m.sent(t); got.Flags != notice.Plain || got.Destination != control.AllDestinations || got.Rate != 0 {
		t.Errorf("sent %+v", got)
	}
}

func TestNobodyIsNotifiedOfASourceThatIsNowhereElse(t *testing.T) {
	m := newMember(t)
	own, tunnelled := shareOf(1, 80, 1), shareOf(2, 80, 1)
	tunnelled.Source.Host = control.Address{10, 9, 9, 9}
	for name, share := range map[string]*control.Share{"a guest of this node": own, "an unknown tunnel": tunnelled} {
		clear(m.notices)
		m.notifySource(time.Now(), congestion(40), share, 1)
		if m.notices["congest unknown_source"] != 1 || m.notices["congest sent"] != 0 {
			t.Errorf("%s: counted %v", name, m.notices)
		}
	}
	if m.advices.Len() != 0 {
		t.Errorf("%d sources are remembered", m.advices.Len())
	}
}

// TestASourceThatHidesIsAskedForWhereverItsTenantIs: without a tunnel its MAC address is all
// that is known, and it made that up.
func TestASourceThatHidesIsAskedForWhereverItsTenantIs(t *testing.T) {
	m := newMember(t)
	hidden := shareOf(0, 80, 1)
	hidden.Source.From, hidden.Source.Destination = control.MAC{}, control.AllDestinations
	m.notifySource(time.Now(), congestion(40), hidden, 1)
	if got := m.sent(t); got.Source != ([6]byte{}) || got.Destination != control.AllDestinations || got.Tenant != notice.ID("red") {
		t.Errorf("sent %+v", got)
	}
	s := wideSite()
	s.Nodes = s.Nodes[:1]
	s.Ports = s.Ports[:1]
	for i := range 40 {
		name := fmt.Sprintf("m%d", i)
		s.Nodes = append(s.Nodes, SiteNode{Node: name, Address: "127.0.0.1:9"})
		s.Ports = append(s.Ports, SitePort{Node: name, Port: name, Tenant: "red", MAC: control.MAC{4, 0, 0, 0, 0, byte(i)}.String(), IP: control.Address{192, 168, 1, byte(i)}.String()})
	}
	if err := m.SetSite(s, issued(t, s, master(masterA))); err != nil {
		t.Fatal(err)
	}
	clear(m.notices)
	m.notifySource(time.Now(), congestion(40), hidden, 1)
	if n := m.notices["congest sent"] + m.notices["congest send_error"]; n != mostOrigins {
		t.Errorf("%d nodes are asked at once, %d are due", n, mostOrigins)
	}
	for range 20 { // in the end all of them
		m.notifySource(time.Now(), congestion(40), hidden, 1)
	}
	if m.advices.Len() < 40 {
		t.Errorf("only %d nodes were asked", m.advices.Len())
	}
}

// TestARefusalAsksForMoreAndBlamesNobody: the site file of the other node is another, or the
// sender is not who it says.
func TestARefusalAsksForMoreAndBlamesNobody(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	m.events.Peer = func(node string, unresponsive bool) { t.Errorf("%s is called unresponsive: %v", node, unresponsive) }
	now, seq := time.Now(), uint64(2)
	red2 := [6]byte{2, 0, 0, 0, 0, 2}
	asked := map[[6]byte][][4]byte{}
	for i := range 30 {
		now = now.Add(noticeEvery)
		m.notifySource(now, congestion(24), shareOf(2, 80, 1), 1)
		got := m.sent(t)
		asked[got.Source] = append(asked[got.Source], got.Destination)
		seq++
		m.received(now, raw(t, notice.Notice{
			Kind: notice.Nack, Boot: 5, Seq: seq, Nonce: got.Seq, Source: got.Source, Destination: got.Destination, Tenant: got.Tenant, Reason: notice.NotHere,
		}, master(masterA)))
		if want := [][4]byte{{192, 168, 0, 1}, {}}[min(i, 1)]; i < 2 && (got.Source != red2 || got.Destination != want) {
			t.Errorf("notice %d: %+v, want to %v", i, got, want)
		}
	}
	if len(asked[red2]) != 2 || len(asked[[6]byte{}]) != 28 || m.notices["congest refused"] != 30 {
		t.Errorf("asked %v, counted %v", asked, m.notices)
	}
	if p := m.Peers(); p[0].Unresponsive {
		t.Errorf("peers %+v", p)
	}
}

// TestWhoForgesItsNeighboursAddressIsHeldWithIt: the port that is named does nothing, so that
// holding it has no effect.
func TestWhoForgesItsNeighboursAddressIsHeldWithIt(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	m.events.Peer = func(node string, unresponsive bool) { t.Errorf("%s is called unresponsive: %v", node, unresponsive) }
	now, seq := time.Now(), uint64(2)
	share := shareOf(2, 80, 1)
	for range 100 {
		now = now.Add(noticeEvery)
		before := m.notices["congest sent"]
		if m.notifySource(now, congestion(24), share, 1); m.notices["congest sent"] == before {
			continue // it is at its floor
		}
		got := m.sent(t)
		if got.Source == ([6]byte{}) {
			return
		}
		seq++
		m.received(now, raw(t, notice.Notice{
			Kind: notice.Ack, Boot: 5, Seq: seq, Nonce: got.Seq, Source: got.Source, Destination: got.Destination, Tenant: got.Tenant, Rate: uint64(24 * mbit),
		}, master(masterA)))
	}
	t.Error("the tenant's other ports are never asked for")
}

func TestARenewalGoesToWhoWasAdvisedAlone(t *testing.T) {
	m := newMember(t)
	now := time.Now()
	renewal := congestion(60)
	renewal.Renewal, renewal.First, renewal.Dropped = true, false, 0
	m.notifySource(now, renewal, shareOf(2, 20, 1), 1)
	if len(m.notices) != 0 {
		t.Errorf("who was never advised is notified: %v", m.notices)
	}
	m.notifySource(now, congestion(24), shareOf(2, 80, 1), 1)
	m.sent(t)
	m.notifySource(now.Add(100*time.Millisecond), renewal, shareOf(2, 20, 1), 1)
	if got := m.sent(t); got.Rate != uint64(60*mbit) || got.Dropped != 0 || got.Severity != 1 {
		t.Errorf("renewed %+v", got)
	}
	m.notifySource(now.Add(5*time.Second), renewal, shareOf(2, 20, 1), 1)
	if m.notices["congest sent"] != 2 {
		t.Errorf("advice that counts no more is renewed: %v", m.notices)
	}
}

func TestNoticesThatCannotLeaveAreCounted(t *testing.T) {
	m := newMember(t)
	m.socket.Close()
	m.notifySource(time.Now(), congestion(24), shareOf(2, 80, 1), 1)
	if m.notices["congest send_error"] != 1 || m.notices["congest sent"] != 0 {
		t.Errorf("counted %v", m.notices)
	}
}

func TestANewKeyIsHeardBeforeItIsUsed(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	site := &Site{
		Version: 1, Nodes: []SiteNode{{Node: "n1", Address: "127.0.0.1:1"}, {Node: "n2", Address: m.mailbox.LocalAddr().String()}},
		Ports: []SitePort{
			{Node: "n1", Port: "p1", Tenant: "red", MAC: "02:00:00:00:00:01", IP: "192.168.0.1"},
			{Node: "n2", Port: "p2", Tenant: "red", MAC: "02:00:00:00:00:02", IP: "192.168.0.2"},
		},
	}
	for step, tc := range []struct {
		keys       []MasterKey
		oldIsHeard bool
		newIsHeard bool
		sends      uint16
	}{
		{[]MasterKey{master(masterA)}, true, false, master(masterA).ID},
		{[]MasterKey{master(masterA), master(masterB)}, true, true, master(masterA).ID},
		{[]MasterKey{master(masterB), master(masterA)}, true, true, master(masterB).ID},
		{[]MasterKey{master(masterB)}, false, true, master(masterB).ID},
	} {
		if err := m.SetSite(site, issued(t, site, tc.keys...)); err != nil {
			t.Fatal(err)
		}
		for i, want := range []bool{tc.oldIsHeard, tc.newIsHeard} {
			clear(m.notices)
			n := congest(uint64(100+10*step+i), 30*mbit)
			m.received(time.Now(), raw(t, n, []MasterKey{master(masterA), master(masterB)}[i]))
			if heard := m.notices["congest received"] == 1; heard != want {
				t.Errorf("step %d, key %d: heard %v, want %v: %v", step, i, heard, want, m.notices)
			}
		}
		if m.directory.sendKey != tc.sends {
			t.Errorf("step %d: sends by key %d", step, m.directory.sendKey)
		}
	}
	if err := m.SetSite(&Site{Nodes: []SiteNode{{Node: "n1", Address: "x"}}}, issued(t, site, master(masterB))); err == nil || m.directory.nodes["n2"] == nil {
		t.Errorf("a bad site was taken, %v", err)
	}
}

func TestPeersAreAllOtherNodes(t *testing.T) {
	m := newMember(t)
	s := wideSite()
	s.Nodes[1].Address = m.mailbox.LocalAddr().String()
	if err := m.SetSite(s, issued(t, s, master(masterA))); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, p := range m.Peers() {
		names[p.Node] = p.Known || p.Unresponsive || !p.HeardAt.IsZero()
	}
	if len(names) != 3 || names["n1"] || names["n2"] || names["n3"] || names["n4"] {
		t.Errorf("peers %v", names)
	}
	m.meet(t, 5)
	for _, p := range m.Peers() {
		if p.Known != (p.Node == "n2") || p.HeardAt.IsZero() != (p.Node != "n2") {
			t.Errorf("peer %+v", p)
		}
	}
}

func TestHousekeepingGreetsPeersThatAreNotKnown(t *testing.T) {
	m := newMember(t)
	now := time.Now()
	m.housekeep(now)
	if got := m.sent(t); got.Kind != notice.Hello {
		t.Errorf("sent %+v", got)
	}
	m.meetBy(t, 5, now.Add(time.Second))
	before := m.notices["hello sent"]
	m.housekeep(now.Add(2 * time.Second))
	if m.notices["hello sent"] != before {
		t.Errorf("who is known is greeted again: %v", m.notices)
	}
}

func TestKeysAreNeverLogged(t *testing.T) {
	m := newMember(t)
	m.meet(t, 5)
	m.take(t, congest(3, 30*mbit))
	for _, secret := range []string{strings.Repeat(masterA, 16), string(peerKey(t, master(masterA)))} {
		if strings.Contains(m.log.String(), secret) {
			t.Error("the log shows a key")
		}
	}
	if !strings.Contains(m.log.String(), "source limited") {
		t.Errorf("the log does not say what was done:\n%s", m.log)
	}
}
