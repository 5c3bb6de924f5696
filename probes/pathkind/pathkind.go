// Package pathkind finds out what leads to other networks of nodes, such as that of a
// cluster's pods: by the routes to them, and the devices that these lead through.
package pathkind

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"vigia/internal/rtnl"
	"vigia/probes/discovery"
	"vigia/probes/settings"
)

const (
	// again is how long what was found holds: devices of this kind change when a network
	// is installed anew.
	again = time.Minute
	// maxRoutes is how many nodes' routes are looked at: all are of one network.
	maxRoutes = 8
)

// What is found, as labels.
const (
	none        = "none"
	linuxBridge = "linuxbridge"
	openvswitch = "ovs"
	ebpf        = "ebpf"
	routed      = "routed"
)

// Network is what tells the kinds of devices and where routes lead; *rtnl.Conn is one.
type Network interface {
	Links() ([]rtnl.Link, error)
	Egress(rtnl.Flow) (string, error)
}

// Finder fills in what the configuration leaves to be found.
type Finder struct {
	logger *slog.Logger
	open   func() (Network, func() error, error)
	now    func() time.Time

	mu    sync.Mutex
	found map[string]found // by the files
	said  map[string]string
}

type found struct {
	at               time.Time
	dataplane, encap string // empty: not known
}

// New returns a Finder of this network namespace.
func New(logger *slog.Logger) *Finder {
	return newFinder(logger, time.Now, func() (Network, func() error, error) {
		c, err := rtnl.Dial("")
		if err != nil {
			return nil, nil, err
		}
		return c, c.Close, nil
	})
}

func newFinder(logger *slog.Logger, now func() time.Time, open func() (Network, func() error, error)) *Finder {
	return &Finder{logger: logger, open: open, now: now, found: make(map[string]found), said: make(map[string]string)}
}

// Fill returns the paths of a node. Those that are to be found and are not known yet, or by
// another program, are left out.
func (f *Finder) Fill(node string, paths []settings.Path) []settings.Path {
	out := make([]settings.Path, 0, len(paths))
	for _, p := range paths {
		if p.Dataplane == settings.Auto || p.Encap == settings.Auto {
			is := f.of(node, &p)
			if p.Dataplane == settings.Auto {
				p.Dataplane = is.dataplane
			}
			if p.Encap == settings.Auto {
				p.Encap = is.encap
			}
		}
		if p.Dataplane != "" && p.Encap != "" {
			out = append(out, p)
		}
	}
	return out
}

// of returns what is known of a path. What was found stays while nothing can be found.
func (f *Finder) of(node string, p *settings.Path) found {
	if len(p.FoundBy) == 0 {
		return found{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := strings.Join(p.FoundBy, "\n")
	before, now := f.found[key], f.now()
	if !before.at.IsZero() && now.Sub(before.at) < again {
		return before
	}
	is, err := f.look(node, p.FoundBy)
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != "" && said != f.said[key] {
		f.logger.Warn("cannot find out what a path is made of", "path", p.Name, "err", err)
	}
	f.said[key] = said
	if is.dataplane == "" {
		is.dataplane = before.dataplane
	}
	if is.encap == "" {
		is.encap = before.encap
	}
	if is.dataplane != "" && is.encap != "" {
		is.at = now // else it is looked again at once
	}
	f.found[key] = is
	return is
}

// look asks the kernel.
func (f *Finder) look(node string, files []string) (is found, err error) {
	own, others, err := addresses(node, files)
	if err != nil {
		return is, err
	}
	network, closed, err := f.open()
	if err != nil {
		return is, err
	}
	defer func() { _ = closed() }()
	links, err := network.Links()
	if err != nil {
		return is, err
	}
	byName := make(map[string]*rtnl.Link, len(links))
	for i := range links {
		byName[links[i].Name] = &links[i]
	}
	for _, to := range own {
		if device, err := network.Egress(rtnl.Flow{To: to}); err == nil && byName[device] != nil {
			is.dataplane = dataplaneOf(byName[device])
			break
		}
	}
	for _, to := range others {
		if device, err := network.Egress(rtnl.Flow{To: to}); err == nil && byName[device] != nil {
			is.encap = encapOf(byName[device], links)
			break
		}
	}
	return is, nil
}

// addresses returns those of the node itself and of others.
func addresses(node string, files []string) (own, others []netip.Addr, err error) {
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, nil, err
		}
		peers, err := discovery.Read(file)
		file.Close()
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, p := range peers {
			address, err := netip.ParseAddr(p.Host)
			switch {
			case err != nil:
			case p.Name == node:
				own = append(own, address)
			case len(others) < maxRoutes:
				others = append(others, address)
			}
		}
	}
	return own, others, nil
}

// tunnels are the kinds of devices that wrap packets, and what they wrap them in.
func tunnels() []string {
	return []string{"vxlan", "geneve", "ipip", "ip6tnl", "sit", "gre", "gretap", "ip6gre", "ip6gretap", "wireguard", "xfrm"}
}

// managed reports whether a program of its own moves what is routed to a device: Open
// vSwitch's internal ports, and Cilium's devices (by their names: their kind is veth).
func managed(l *rtnl.Link) bool { return l.Kind == "openvswitch" || isCilium(l) }

func isCilium(l *rtnl.Link) bool {
	return strings.HasPrefix(l.Name, "cilium_") || strings.HasPrefix(l.Name, "lxc")
}

// dataplaneOf names what moves packets to a pod of this node, by the device that leads there.
func dataplaneOf(l *rtnl.Link) string {
	switch {
	case l.Kind == "bridge":
		return linuxBridge
	case l.Kind == "openvswitch":
		return openvswitch
	case isCilium(l):
		return ebpf
	}
	return routed
}

// encapOf names what wraps packets to a pod of another node. Whoever moves them itself has a
// tunnel of its own if it wraps them at all.
func encapOf(l *rtnl.Link, all []rtnl.Link) string {
	if slices.Contains(tunnels(), l.Kind) {
		return l.Kind
	}
	if !managed(l) {
		return none
	}
	for _, other := range all {
		if other.Up && slices.Contains(tunnels(), other.Kind) {
			return other.Kind
		}
	}
	return none
}
