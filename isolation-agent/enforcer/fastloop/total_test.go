package fastloop

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
)

// crowd is a site with several nodes and ports of two tenants, with contracts of tenants and
// of ports, as n1 sees it.
type crowd struct {
	*member
	random *rand.Rand
	nodes  []string
	ports  []SitePort
	floors map[string]float64 // of a pair, by port of n1
	whole  map[string]float64 // of the whole port
	seq    uint64
}

func newCrowd(t *testing.T, seed uint64) *crowd {
	t.Helper()
	c := &crowd{member: newMember(t), random: rand.New(rand.NewPCG(seed, 77)), floors: map[string]float64{}, whole: map[string]float64{}}
	s := &Site{Version: 1, Nodes: []SiteNode{{Node: "n1", Address: "127.0.0.1:1"}}}
	for i := range 2 + c.random.IntN(4) {
		c.nodes = append(c.nodes, fmt.Sprint("n", i+2))
		s.Nodes = append(s.Nodes, SiteNode{Node: c.nodes[i], Address: c.mailbox.LocalAddr().String()})
	}
	var bought []contract.Contract
	inv := inventory{}
	buy := func(owner contract.Owner) contract.Contract {
		send, receive := 1+40*c.random.Float64(), 1+40*c.random.Float64()
		one := contract.Contract{Owner: owner, Send: bandwidth(send, 100), Receive: bandwidth(receive, 100)}
		bought = append(bought, one)
		return one
	}
	tenants := map[string]contract.Contract{}
	for _, tenant := range []string{"red", "blue"} {
		tenants[tenant] = buy(contract.Owner{Tenant: tenant})
	}
	for i := range 2 + c.random.IntN(50) {
		p := SitePort{
			Node: s.Nodes[c.random.IntN(len(s.Nodes))].Node, Port: fmt.Sprint("x", i), Tenant: []string{"red", "blue"}[c.random.IntN(2)],
			MAC: control.MAC{2, 0, 0, 0, 1, byte(i)}.String(), IP: control.Address{192, 168, 0, byte(10 + i)}.String(),
		}
		s.Ports = append(s.Ports, p)
		if p.Node != "n1" {
			continue
		}
		b := tenants[p.Tenant]
		if c.random.IntN(3) == 0 {
			b = buy(contract.Owner{Tenant: p.Tenant, Port: p.Port})
		}
		inv[p.Port] = ports.Port{ID: p.Port, Tenant: p.Tenant, Index: 10 + i}
		c.whole[p.Port] = float64(b.Send.GuaranteeBytesPerSecond)
		c.floors[p.Port] = min(c.whole[p.Port], float64(b.Receive.GuaranteeBytesPerSecond))
	}
	c.ports, c.inventory = s.Ports, inv
	c.buy(t, bought...)
	if err := c.SetSite(s, issued(t, s, master(masterA))); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes { // every process has proven to be live
		p := c.peer(n)
		p.Challenge(9)
		c.seq++
		if err := p.Accept(&notice.Notice{Kind: notice.HelloAck, Boot: 5, Seq: c.seq, Nonce: 9}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// notice makes up what a node may say: an honest notice, or any lie.
func (c *crowd) notice() notice.Notice {
	c.seq++
	port := c.ports[c.random.IntN(len(c.ports))]
	to := c.ports[c.random.IntN(len(c.ports))]
	mac := c.directory.of(port.Tenant)
	n := notice.Notice{
		Kind: notice.Congest, Boot: 5, Seq: c.seq, Destination: addressOf(to.IP), Tenant: notice.ID(port.Tenant), Rate: uint64(100 * mbit * c.random.Float64()),
		Measured: uint64(200 * mbit * c.random.Float64()), Severity: uint8(c.random.Uint32()), Sources: uint16(c.random.Uint32()), Lease: time.Second,
	}
	for m, g := range mac.guests {
		if g.Port == port.Port {
			n.Source = m
		}
	}
	switch c.random.IntN(8) {
	case 0:
		n.Source = [6]byte{}
	case 1:
		n.Source = [6]byte{6, 6, 6, byte(c.random.Uint32())}
	case 2:
		n.Destination = control.AllDestinations
	case 3:
		n.Destination = [4]byte{8, 8, 8, byte(c.random.Uint32())}
	case 4:
		n.Rate, n.Flags = 0, notice.Plain
	case 5:
		n.Rate, n.Sources = 1, 60000
	}
	return n
}

// TestNoPortIsHeldBelowWhatItBought: whatever nodes say, alone or all of them together, and
// however much of it is lost or comes twice, a port may always send what it bought in total,
// and to each destination what its pair bought.
func TestNoPortIsHeldBelowWhatItBought(t *testing.T) {
	limits := 0
	for seed := range uint64(40) {
		c := newCrowd(t, seed)
		now := time.Now()
		var last notice.Notice
		for step := range 300 {
			now = now.Add(time.Duration(c.random.IntN(40)) * time.Millisecond)
			n := c.notice()
			switch c.random.IntN(5) {
			case 0:
				continue // lost
			case 1:
				n = last // once more
			}
			last = n
			n.From, n.To, n.KeyID = notice.ID(c.nodes[c.random.IntN(len(c.nodes))]), notice.ID("n1"), master(masterA).ID
			c.received(now, n.Append(nil, c.directory.key(n.From, n.KeyID)))
			if step%10 == 0 {
				c.grow(now)
			}
			for _, l := range c.Limits() {
				limits++
				floor := c.floors[l.Port]
				if l.Destination == control.AllDestinations {
					floor = c.whole[l.Port]
				}
				if floor == 0 || l.Rate < floor-1 {
					t.Fatalf("seed %d, step %d, %+v: %+v, floor %.0f", seed, step, n, l, floor)
				}
			}
		}
	}
	if limits < 10_000 {
		t.Errorf("only %d limits were looked at", limits)
	}
}
