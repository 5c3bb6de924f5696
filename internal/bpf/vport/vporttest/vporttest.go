// Package vporttest has what tests of other packages need of package vport: a port of a
// tenant, and a manager that goes with the test.
package vporttest

import (
	"net"
	"testing"
	"time"

	"vigia/internal/bpf/vport"
	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// Open opens a manager and closes it after the test. Without a pin directory it gets one
// on a bpffs of its own, and without a size room for eight ports. Floods are told by the
// default settings.
func Open(t testing.TB, o vport.Options) *vport.Manager {
	t.Helper()
	if o.PinDir == "" {
		o.PinDir = testutil.NewBPFFS(t)
	}
	if o.MaxPorts == 0 {
		o.MaxPorts = 8
	}
	m, err := vport.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.EnsureSettings(vport.DefaultSettings()); err != nil {
		t.Fatal(err)
	}
	return m
}

// Port is a port as the lab has it: a node and a tenant joined by a veth pair. The node's
// end, tap0, is the vport, and eth0 is the tenant's. They know each other's addresses,
// and neither has IPv6.
type Port struct {
	t            testing.TB
	Node, Tenant string // namespaces
	Index        int    // of tap0
	PinDir       string // on a bpffs, for Open
}

// The addresses of both ends.
const (
	NodeIP   = "10.7.0.1"
	TenantIP = "10.7.0.2"
)

// NewPort makes a port, which is gone after the test.
func NewPort(t testing.TB) *Port {
	t.Helper()
	p := &Port{t: t, Node: testutil.NewNetNS(t), Tenant: testutil.NewNetNS(t), PinDir: testutil.NewBPFFS(t)}
	testutil.DisableIPv6(t, p.Node)
	testutil.DisableIPv6(t, p.Tenant)
	testutil.NewVethPair(t, p.Node, "tap0", p.Tenant, "eth0")
	testutil.IP(t, "-n", p.Node, "addr", "add", NodeIP+"/24", "dev", "tap0")
	testutil.IP(t, "-n", p.Tenant, "addr", "add", TenantIP+"/24", "dev", "eth0")
	p.Index = Index(t, p.Node, "tap0")
	// Resolve ARP before anything counts.
	testutil.Run(t, "ip", "netns", "exec", p.Tenant, "ping", "-c1", "-W60", NodeIP)
	testutil.IP(t, "-n", p.Tenant, "neigh", "change", NodeIP, "dev", "eth0", "nud", "permanent")
	testutil.IP(t, "-n", p.Node, "neigh", "change", TenantIP, "dev", "tap0", "nud", "permanent")
	return p
}

// Index returns the number of an interface in a namespace.
func Index(t testing.TB, ns, device string) (index int) {
	t.Helper()
	err := netns.Do(ns, func() error {
		ifi, err := net.InterfaceByName(device)
		if err == nil {
			index = ifi.Index
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// Send sends n datagrams of size bytes from the tenant to the node and returns how many
// a socket there got.
func (p *Port) Send(n, size int) (arrived int) {
	p.t.Helper()
	return UDP(p.t, p.Tenant, p.Node, NodeIP, n, size)
}

// Receive sends n datagrams of size bytes from the node to the tenant and returns how
// many a socket there got.
func (p *Port) Receive(n, size int) (arrived int) {
	p.t.Helper()
	return UDP(p.t, p.Node, p.Tenant, TenantIP, n, size)
}

// quiet is how long nothing must arrive until the rest counts as lost.
const quiet = 500 * time.Millisecond

// UDP sends n datagrams of size bytes from one namespace to an address in another and
// returns how many a socket there got.
func UDP(t testing.TB, from, to, address string, n, size int) (arrived int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var server, client *net.UDPConn
	at := &net.UDPAddr{IP: net.ParseIP(address), Port: 5353}
	must(netns.Do(to, func() (err error) { server, err = net.ListenUDP("udp4", at); return err }))
	defer server.Close()
	must(server.SetReadBuffer(4 << 20))
	must(netns.Do(from, func() (err error) { client, err = net.DialUDP("udp4", nil, at); return err }))
	defer client.Close()
	payload := make([]byte, size)
	for range n {
		_, err := client.Write(payload)
		must(err)
	}
	buffer := make([]byte, 1<<16)
	// A deadline that passed while this process had no processor is no silence: it takes two in a row.
	for silent := 0; arrived < n && silent < 2; {
		must(server.SetReadDeadline(time.Now().Add(quiet)))
		if _, err := server.Read(buffer); err != nil {
			silent++
			continue
		}
		silent = 0
		arrived++
	}
	return arrived
}
