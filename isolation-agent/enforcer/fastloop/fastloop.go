// Package fastloop keeps tenants' guarantees within milliseconds.
//
// On the receiving node it reads the queues of the ingress scheduler every 10 ms.
// Traffic that does not adapt shows as drops above D, half of the headroom; the
// enforcers of its sources get a notice to limit it there. On the sending node the
// limit goes into the kernel, where it ends by itself, and grows in linear steps while
// no notice comes. The scheme is Gatekeeper's (Rodrigues et al., WIOV 2011) with an
// explicit rate, per destination, and authenticated; control.Paper is the original.
//
// Decisions are package control's, which does no I/O. This package reads the kernel,
// sends and receives notices (package notice), and sets limits.
package fastloop

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"vigia/internal/bpf/classify"
	"vigia/internal/bpf/vport"
	"vigia/internal/netns"
	"vigia/internal/ports"
	"vigia/internal/rtnl"
	"vigia/internal/tc"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
	"vigia/isolation-agent/enforcer/scheduling"
)

// mostSources is how many sources are told apart: as many as the programs have room for,
// which cannot be more by attribution.
const mostSources = 4096 + 256

// Config says how the loop works.
type Config struct {
	Node    string
	NetNS   string // of the uplinks and of the socket
	Listen  netip.AddrPort
	Variant control.Variant
	Site    *Site
	Keys    *Keys
}

// Events are called when something happens, for metrics. Every function must be quick.
type Events struct {
	Notice   func(notice.Kind, notice.Outcome)
	Lateness func(time.Duration)                  // of a tick, told within a second
	Detected func(time.Duration)                  // first sign of congestion to the notice
	Applied  func(time.Duration)                  // notice received to limit in the kernel
	Round    func(time.Duration)                  // notice sent to its acknowledgement
	Peer     func(node string, unresponsive bool) // changed
}

// Kernel is what the loop needs of a vport.Manager.
type Kernel interface {
	SetPair(ifindex int, d vport.Destination, p vport.Pair) error
	RemovePair(ifindex int, d vport.Destination) error
	PairOffered(ifindex int, d vport.Destination) (uint64, error)
	SweepPairs() error
}

// Scheduler is what the loop needs of a scheduling.Reconciler.
type Scheduler interface {
	Desired() *scheduling.Desired
	SetLimitClass(class uint32, owner contract.Owner, bytesPerSecond uint64) (uint32, error)
	RemoveLimitClass(class uint32) error
}

// Inventory is what the loop needs of a ports.Inventory.
type Inventory interface {
	Lookup(id string) (ports.Port, bool)
}

// Loop is the fast loop of one node.
type Loop struct {
	config    Config
	logger    *slog.Logger
	events    Events
	scheduler Scheduler
	programs  *classify.Programs
	kernel    Kernel
	inventory Inventory
	conn      *tc.Conn
	socket    *net.UDPConn
	boot      uint64

	mu        sync.Mutex
	directory *directory
	listed    *directory // whose tunnel end points the classifiers have
	seq       uint64
	peers     map[string]*peer // by node
	links     []*linkState
	arrivals  []classify.ClassArrival
	owners    map[uint32]*tenant // of the ingress classes
	sources   *control.Sources
	advices   *control.Advices
	sender    *control.Sender
	classes   map[control.LimitKey]uint32 // that shape limits
}

// New opens the loop's socket and connections.
func New(c Config, s Scheduler, p *classify.Programs, kernel Kernel, inv Inventory, logger *slog.Logger, events Events) (*Loop, error) {
	d, err := newDirectory(c.Node, c.Site, c.Keys)
	if err != nil {
		return nil, err
	}
	l := newLoop(c, s, p, kernel, inv, logger, events, d)
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("draw boot id: %w", err)
	}
	l.boot = binary.NativeEndian.Uint64(random[:]) | 1
	if l.conn, err = tc.Dial(c.NetNS); err != nil {
		return nil, err
	}
	if err := netns.Do(c.NetNS, func() (err error) {
		l.socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(c.Listen))
		return err
	}); err != nil {
		l.conn.Close()
		return nil, fmt.Errorf("listen for notices on %s: %w", c.Listen, err)
	}
	l.refresh()
	if err := errors.Join(l.findVLAN(d), l.listTunnels()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if d.tunnel.IsValid() {
		logger.Info("tunnels of the underlay", "own", d.own, "vlan", d.vlan)
	}
	return l, nil
}

// newLoop returns a loop without socket and connections.
func newLoop(c Config, s Scheduler, p *classify.Programs, kernel Kernel, inv Inventory, logger *slog.Logger, events Events, d *directory) *Loop {
	return &Loop{
		config: c, logger: logger, events: events, scheduler: s, programs: p, kernel: kernel, inventory: inv, directory: d,
		peers: map[string]*peer{}, owners: map[uint32]*tenant{}, sources: control.NewSources(mostSources),
		advices: control.NewAdvices(), sender: control.NewSender(), classes: map[control.LimitKey]uint32{},
	}
}

// Close frees the socket and connections. Limits end by themselves.
func (l *Loop) Close() error { return errors.Join(l.socket.Close(), l.conn.Close()) }

// SetSite swaps inventory and keys.
func (l *Loop) SetSite(site *Site, keys *Keys) error {
	d, err := newDirectory(l.config.Node, site, keys)
	if err != nil {
		return err
	}
	if err := l.findVLAN(d); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.vlan != l.directory.vlan {
		l.logger.Info("tunnels are in another VLAN now", "vlan", d.vlan, "before", l.directory.vlan)
	}
	l.directory = d
	maps.DeleteFunc(l.peers, func(name string, _ *peer) bool { return d.nodes[name] == nil })
	l.refresh()
	return l.listTunnels()
}

// listTunnels has the classifiers decode only what travels between the site's tunnel end
// points. A site that lists none says nothing of tunnels.
func (l *Loop) listTunnels() error {
	if l.programs == nil || len(l.directory.tunnels) == 0 {
		return nil
	}
	if l.listed != nil && l.directory.sameTunnels(l.listed) {
		return nil // writing them takes the longer the more there are, and ports change more often than they do
	}
	l.listed = nil // a half of them may be written
	if err := l.programs.SetTunnels(l.directory.own, l.directory.others, l.directory.vlan); err != nil {
		return err
	}
	l.listed = l.directory
	return nil
}

// findVLAN completes a directory, where nobody wrote it, with the VLAN in which the uplinks carry
// tunnels: where a VLAN device makes the tag, the kernel knows. It takes no lock, since a node
// may have thousands of interfaces.
func (l *Loop) findVLAN(d *directory) (err error) {
	if d.vlan != 0 || !d.tunnel.IsValid() {
		return nil
	}
	c, err := rtnl.Dial(l.config.NetNS)
	if err != nil {
		return fmt.Errorf("find the VLAN of tunnels: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var uplinks []string
	for _, link := range l.scheduler.Desired().Links {
		uplinks = append(uplinks, link.Device)
	}
	d.vlan, err = c.Tag(d.tunnel, uplinks)
	return err
}

// Refresh takes up links and contracts as the scheduler has them now.
func (l *Loop) Refresh() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refresh()
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { l.socket.Close() })
	defer stop()
	wg.Go(func() { l.receive(ctx) })
	return l.tick(ctx)
}

// contract returns what a port bought, or else its tenant; nil if neither did.
func (l *Loop) contract(tenant, port string) *contract.Contract {
	return l.scheduler.Desired().Contracts.Of(tenant, port)
}
