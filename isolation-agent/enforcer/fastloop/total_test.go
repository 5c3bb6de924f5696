package fastloop

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"vigia/internal/bpf/vport"
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
	owner  map[string]string  // of the contract of a port of n1
	whole  map[string]float64 // guarantee to send, by port of n1
	bought map[string]float64 // the same by contract
	floors map[string]float64 // of a pair, by contract
	seq    uint64
}

func newCrowd(t *testing.T, seed uint64) *crowd {
	t.Helper()
	c := &crowd{member: newMember(t), random: rand.New(rand.NewPCG(seed, 77)), owner: map[string]string{}, whole: map[string]float64{}, bought: map[string]float64{}, floors: map[string]float64{}}
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
		owner := b.String()
		c.owner[p.Port], c.bought[owner], c.floors[owner] = owner, c.whole[p.Port], min(c.whole[p.Port], float64(b.Receive.GuaranteeBytesPerSecond))
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

// sums are what limits let through, by the contract of the port and by who asks.
func (c *crowd) sums(limits []control.Limit) map[string]float64 {
	out := map[string]float64{}
	for _, l := range limits {
		out[c.owner[l.Port]] += l.Rate
	}
	return out
}

// TestNoContractIsHeldBelowWhatItBought: whatever nodes say, alone or all of them together, and
// however much of it is lost or comes twice, the ports of a contract that all send may send in total
// what it bought, or what it bought of a pair.
func TestNoContractIsHeldBelowWhatItBought(t *testing.T) {
	looked := 0
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
				if c.owner[l.Port] == "" || l.Rate <= 0 || l.Floor > c.whole[l.Port]+1 || l.Rate > 100*mbit {
					t.Fatalf("seed %d, step %d, %+v: %+v", seed, step, n, l)
				}
			}
			for owner, sum := range c.sums(c.Limits()) {
				looked++
				if sum < 0.99*c.floors[owner] {
					t.Fatalf("seed %d, step %d, %+v: %s is held to %.3f Mbit/s, it bought %.3f: %+v", seed, step, n, owner, sum/mbit, c.floors[owner]/mbit, c.Limits())
				}
			}
		}
	}
	if looked < 5_000 {
		t.Errorf("only %d times was a contract looked at", looked)
	}
}

// TestManyPortsOfAContractDoNotHaveManyGuarantees: each node asks for all of them by themselves,
// and for all that they send, and gets the guarantee of one.
func TestManyPortsOfAContractDoNotHaveManyGuarantees(t *testing.T) {
	most := 0
	for seed := range uint64(20) {
		c := newCrowd(t, seed)
		now := time.Now()
		for range 3 {
			for _, p := range c.ports {
				if p.Node != "n1" {
					continue
				}
				mac, err := net.ParseMAC(p.MAC)
				if err != nil {
					t.Fatal(err)
				}
				c.seq++
				n := notice.Notice{
					Kind: notice.Congest, Boot: 5, Seq: c.seq, From: notice.ID(c.nodes[0]), To: notice.ID("n1"), KeyID: master(masterA).ID, Tenant: notice.ID(p.Tenant),
					Source: [6]byte(mac), Destination: control.AllDestinations, Rate: 1, Measured: 50 * mbit, Severity: 1, Sources: 9, Lease: time.Second,
				}
				c.received(now, n.Append(nil, c.directory.key(n.From, n.KeyID)))
			}
			now = now.Add(50 * time.Millisecond)
		}
		ports := map[string]int{}
		for _, l := range c.Limits() {
			ports[c.owner[l.Port]]++
			most = max(most, ports[c.owner[l.Port]])
		}
		for owner, sum := range c.sums(c.Limits()) {
			if want := c.bought[owner]; sum < 0.99*want || sum > 1.01*want {
				t.Errorf("seed %d: %d ports of %s are held to %.3f Mbit/s, it bought %.3f", seed, ports[owner], owner, sum/mbit, want/mbit)
			}
		}
	}
	if most < 5 {
		t.Errorf("no contract had more than %d ports", most)
	}
}

// TestPortsShareByWhatTheKernelCounts: what the asking node says of them does not matter then.
func TestPortsShareByWhatTheKernelCounts(t *testing.T) {
	m := newMember(t)
	s := wideSite()
	s.Nodes[1].Address = m.mailbox.LocalAddr().String()
	s.Ports = append(s.Ports, SitePort{Node: "n1", Port: "p5", Tenant: "red", MAC: "02:00:00:00:00:05", IP: "192.168.0.5"})
	m.inventory = inventory{"p1": {ID: "p1", Tenant: "red", Index: 1}, "p5": {ID: "p5", Tenant: "red", Index: 5}}
	if err := m.SetSite(s, issued(t, s, master(masterA))); err != nil {
		t.Fatal(err)
	}
	m.meet(t, 5)
	start := time.Now()
	now := start
	m.kernel.offered = func(index int, _ vport.Destination) uint64 { // p1 three times as much as p5
		return uint64(map[int]float64{1: 60, 5: 20}[index] * mbit * now.Sub(start).Seconds())
	}
	for i := range 4 {
		now = start.Add(time.Duration(i) * 60 * time.Millisecond)
		for j, source := range []byte{1, 5} {
			n := congest(uint64(10+2*i+j), 1)
			n.Source[5], n.Measured = source, 1
			if source == 5 {
				n.Measured = 1 << 60
			}
			m.received(now, raw(t, n, master(masterA)))
		}
		m.grow(now)
	}
	rates := map[string]float64{}
	for _, l := range m.Limits() {
		rates[l.Port] = l.Rate / mbit
	}
	if sum := rates["p1"] + rates["p5"]; len(rates) != 2 || sum < 23.8 || sum > 24.2 || rates["p1"] < 2.8*rates["p5"] || rates["p1"] > 3.2*rates["p5"] {
		t.Errorf("limits %v", rates)
	}
}
