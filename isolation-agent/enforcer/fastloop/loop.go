package fastloop

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"vigia/internal/bpf/classify"
	"vigia/internal/bpf/vport"
	"vigia/internal/netns"
	"vigia/internal/ports"
	"vigia/internal/tc"
	"vigia/isolation-agent/enforcer/contracts"
	"vigia/isolation-agent/enforcer/notice"
)

// Config says how the loop works.
type Config struct {
	Node    string
	NetNS   string // of the uplinks and of the socket
	Listen  netip.AddrPort
	Variant Variant
	Site    *Site
	Keys    []MasterKey
}

// Events tells what happened, for metrics. Every function must be quick.
type Events struct {
	Notice   func(kind, outcome string)           // one was sent, received or refused
	Lateness func(time.Duration)                  // of a tick
	Detected func(time.Duration)                  // first sign of congestion to the notice
	Applied  func(time.Duration)                  // notice received to limit in the kernel
	Round    func(time.Duration)                  // notice sent to its acknowledgement
	Peer     func(node string, unresponsive bool) // changed
}

// Kernel is what the loop needs of a vport.Manager.
type Kernel interface {
	SetPair(ifindex int, d vport.Destination, p vport.Pair) error
	RemovePair(ifindex int, d vport.Destination) error
	SweepPairs() error
}

// Loop is the fast loop of one node.
type Loop struct {
	config    Config
	logger    *slog.Logger
	events    Events
	keeper    *contracts.Keeper
	programs  *classify.Programs
	kernel    Kernel
	inventory interface {
		Lookup(string) (ports.Port, bool)
	}
	conn   *tc.Conn
	socket *net.UDPConn
	boot   uint64

	mu        sync.Mutex
	directory *directory
	seq       uint64
	peers     map[string]*peer // by node
	links     []*linkState
	arrivals  map[classify.Class]classify.Arrival
	sources   *Sources
	sender    *Sender
	shapes    map[Key]uint16
	out       map[outKey]*outgoing
}

// peer is what is known of another node.
type peer struct {
	notice.Peer
	hello        time.Time // when it was last challenged
	heard        time.Time
	unresponsive bool
}

// linkState is one uplink as the receiver sees it.
type linkState struct {
	contracts.Link
	ifb      int
	receiver *Receiver
	readings map[uint32]Reading
	active   []uint32   // classes that have moved since they were last read
	classes  []tc.Class // all of them, when they were last read together
	polled   time.Time
	came     uint64 // bytes, when it was last polled
}

// outKey names a source that is, or was, told.
type outKey struct {
	node string
	from classify.MACAddress
	to   classify.Address
}

// outgoing is what a source was told and what it answered.
type outgoing struct {
	tenant     string
	advised    float64
	sent       time.Time
	congested  time.Time // when it was last told because of drops
	seq        uint64
	unanswered int // notices since the last answer
	rounds     int // advised rounds without effect
	since      time.Time
	severity   uint8
	ackedRate  float64
	ackedAt    time.Time
	atFloor    bool
}

// New opens the loop's socket and connections.
func New(c Config, k *contracts.Keeper, p *classify.Programs, kernel Kernel, inv *ports.Inventory, logger *slog.Logger, events Events) (*Loop, error) {
	d, err := newDirectory(c.Node, c.Site, c.Keys)
	if err != nil {
		return nil, err
	}
	l := &Loop{
		config: c, logger: logger, events: events, keeper: k, programs: p, kernel: kernel, inventory: inv, directory: d,
		peers: map[string]*peer{}, sources: NewSources(), sender: NewSender(), shapes: map[Key]uint16{}, out: map[outKey]*outgoing{},
		arrivals: map[classify.Class]classify.Arrival{},
	}
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
	return l, nil
}

// Close frees the socket and connections. Limits end by themselves.
func (l *Loop) Close() error { return errors.Join(l.socket.Close(), l.conn.Close()) }

// SetSite swaps inventory and keys.
func (l *Loop) SetSite(site *Site, keys []MasterKey) error {
	d, err := newDirectory(l.config.Node, site, keys)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.directory = d
	l.refresh()
	return nil
}

// Refresh takes up links and contracts as the keeper has them now.
func (l *Loop) Refresh() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refresh()
}

func (l *Loop) refresh() {
	links, list := l.keeper.Desired()
	minors := contracts.Minors(list)
	classes := make(map[uint32]ClassConfig, len(list)+1)
	classes[contracts.DefaultClass] = ClassConfig{}
	for i := range list {
		classes[contracts.LeafClass(minors[list[i].Name])] = ClassConfig{
			Tenant: list[i].Tenant, Guarantee: list[i].Receive.Guarantee, Queue: contracts.QueueBytes(list[i].Receive.Ceiling),
		}
	}
	old := map[string]*linkState{}
	for _, s := range l.links {
		old[s.Device] = s
	}
	l.links = l.links[:0]
	for _, link := range links {
		s := old[link.Device]
		if s == nil || s.Link != link {
			s = &linkState{Link: link, readings: map[uint32]Reading{}, receiver: NewReceiver(l.config.Variant, link.Limit(), link.DropThreshold())}
		}
		s.ifb = 0 // looked up again: devices may have been made anew
		clear(s.readings)
		s.receiver.SetClasses(classes)
		l.links = append(l.links, s)
	}
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

// contract returns what a port bought, or else its tenant.
func (l *Loop) contract(tenant, port string) (contracts.Contract, bool) {
	_, list := l.keeper.Desired()
	for _, name := range []string{contracts.Name(tenant, port), contracts.Name(tenant, "")} {
		for i := range list {
			if list[i].Name == name {
				return list[i], true
			}
		}
	}
	return contracts.Contract{}, false
}

// linkRate returns the rate of the node's links together.
func (l *Loop) linkRate() (sum float64) {
	for _, s := range l.links {
		sum += float64(s.Rate)
	}
	return sum
}
