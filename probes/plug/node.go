package plug

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/config"
	"vigia/internal/daemon"
	"vigia/internal/ethtool"
	"vigia/internal/netns"
	"vigia/internal/rtnl"
	"vigia/internal/statefile"
)

const (
	// inner is the device of an endpoint in its namespace.
	inner = "eth0"
	// maxState bounds what is read of the state, in bytes.
	maxState = 1 << 20
	// patience is how long Neutron's agent may take to make a network's Linux bridge: it looks for devices every 2 s, and
	// has much to do when it has just begun.
	patience = 30 * time.Second
)

// state is what was begun and not taken away again. It is written before anything is made, so that nothing of ours is
// ever there that it does not name, and what it does not name is somebody else's.
type state struct {
	Endpoints map[string]Endpoint `json:"endpoints"` // by network
}

// node has the endpoints of this node be those of a file.
type node struct {
	logger *slog.Logger
	file   *config.File[content, *content]
	vs     *vswitch
	prefix string // of namespaces
	path   string // of the state
	home   string // the node's own namespace; empty for the process's
	links  *rtnl.Conn
	begun  map[string]Endpoint
	seen   map[string]bool // which were configured since this process started
	wait   time.Duration   // for the agent to make a Linux bridge, until that is said
	loose  map[string]time.Time
	pulse  *daemon.Pulse // told at each endpoint: a switch that hangs costs seconds at each
}

// open reads what was begun before.
func (n *node) open() error {
	var known state
	if err := statefile.Read(n.path, maxState, &known); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read what was plugged before: %w; remove the file if no endpoint of it is left", err)
	}
	n.begun, n.seen, n.loose = known.Endpoints, make(map[string]bool), make(map[string]time.Time)
	if n.begun == nil {
		n.begun = make(map[string]Endpoint)
	}
	for network, e := range n.begun { // names are made of it
		if e.Network != network || !networkRE.MatchString(network) || !portRE.MatchString(e.Port) {
			return fmt.Errorf("%s is not what this command wrote; remove it if no endpoint of it is left", n.path)
		}
	}
	links, err := rtnl.Dial(n.home)
	n.links = links
	return err
}

func (n *node) save() error {
	if err := statefile.Write(n.path, state{n.begun}); err != nil {
		return fmt.Errorf("note what is plugged: %w", err)
	}
	return nil
}

// namespace is where an endpoint of a network is.
func (n *node) namespace(network string) string { return n.prefix + network }

// pass has the node be as the file says, as far as that goes. A file that turned bad keeps what it last said; while
// there never was a good one, nothing is changed.
func (n *node) pass(ctx context.Context) error {
	read, problem := n.file.Read()
	if read == nil {
		return problem
	}
	wanted := make(map[string]Endpoint)
	for _, e := range read.Endpoints {
		wanted[e.Network] = e
	}
	errs := []error{problem, n.withdraw(ctx, wanted), n.sweep(ctx, wanted)}
	for _, network := range slices.Sorted(maps.Keys(wanted)) {
		e := wanted[network]
		n.pulse.Beat()
		if err := n.ensure(ctx, &e); err != nil {
			errs = append(errs, fmt.Errorf("network %s, port %s: %w", network, e.Port, err))
		}
	}
	return errors.Join(errs...)
}

// withdraw takes away what is wanted no more, or otherwise.
func (n *node) withdraw(ctx context.Context, wanted map[string]Endpoint) error {
	var errs []error
	for _, network := range slices.Sorted(maps.Keys(n.begun)) {
		e := n.begun[network]
		n.pulse.Beat()
		if w, is := wanted[network]; is && w.same(&e) {
			continue
		}
		if err := n.unplug(ctx, &e); err != nil {
			errs = append(errs, fmt.Errorf("network %s, port %s: %w", network, e.Port, err))
			continue
		}
		n.logger.Info("unplugged", "network", network, "port", e.Port)
	}
	return errors.Join(errs...)
}

// sweep takes interfaces of ours out of Open vSwitch that a start of the machine has left: its database is kept, what
// was begun is not.
func (n *node) sweep(ctx context.Context, wanted map[string]Endpoint) error {
	devices := make(map[string]bool)
	needed := false
	for _, e := range wanted {
		devices[e.device()] = true
		needed = needed || e.Switch == openVSwitch
	}
	known, err := n.vs.ours(ctx)
	if err != nil {
		if needed {
			return nil // ensure says so
		}
		n.logger.Debug("no Open vSwitch to look for what is left in", "err", err)
		return nil
	}
	var errs []error
	for device := range known {
		n.pulse.Beat()
		if !devices[device] {
			errs = append(errs, n.vs.remove(ctx, device))
		}
	}
	return errors.Join(errs...)
}

// ensure has an endpoint be whole. One that cannot be made leaves nothing.
func (n *node) ensure(ctx context.Context, e *Endpoint) error {
	if e.Switch == openVSwitch && !n.seen[e.Network] { // nothing is begun that cannot be ended
		if err := n.vs.ready(ctx, e.Bridge); err != nil {
			return err
		}
	}
	if _, known := n.begun[e.Network]; !known {
		if err := n.begin(e); err != nil {
			return err
		}
	}
	whole, err := n.whole(e)
	if err != nil {
		return err
	}
	if !whole || !n.seen[e.Network] {
		if err := n.rebuild(ctx, e, whole); err != nil {
			return errors.Join(err, n.unplug(ctx, e))
		}
	}
	if e.Switch == openVSwitch {
		if err := n.join(ctx, e); err != nil {
			if n.seen[e.Network] { // it was whole: what is there goes on while the switch's database is away
				return err
			}
			return errors.Join(err, n.unplug(ctx, e))
		}
	}
	if e.Switch == linuxBridge {
		if err := n.enslave(e); err != nil {
			return err
		}
	}
	if !n.seen[e.Network] {
		n.logger.Info("plugged", "network", e.Network, "port", e.Port, "device", e.device(), "netns", n.namespace(e.Network))
	}
	n.seen[e.Network] = true
	return nil
}

// begin notes that an endpoint is to be made, where nobody else has anything of its names.
func (n *node) begin(e *Endpoint) error {
	name := n.namespace(e.Network)
	path, err := netns.Path(name)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("there is a network namespace %s that this command has not made; remove it (ip netns del %s), or choose another --netns-prefix", name, name)
	}
	if _, there, err := n.link(n.links, e.device()); err != nil {
		return err
	} else if there {
		return fmt.Errorf("there is a device %s that this command has not made: somebody else has plugged the port; remove it (ip link del %s)", e.device(), e.device())
	}
	n.begun[e.Network] = *e
	if err := n.save(); err != nil {
		delete(n.begun, e.Network)
		return err
	}
	return nil
}

// whole tells whether an endpoint has both of its devices.
func (n *node) whole(e *Endpoint) (bool, error) {
	_, there, err := n.link(n.links, e.device())
	if err != nil || !there {
		return false, err
	}
	inside, err := rtnl.Dial(n.namespace(e.Network))
	if err != nil {
		return false, nil //nolint:nilerr // it is made anew, which says what stands in the way
	}
	defer inside.Close()
	l, there, err := n.link(inside, inner)
	return there && l.MAC.String() == e.MAC, err
}

// link returns a device by its name.
func (n *node) link(c *rtnl.Conn, name string) (rtnl.Link, bool, error) {
	links, err := c.Links()
	i := slices.IndexFunc(links, func(l rtnl.Link) bool { return l.Name == name })
	if err != nil || i < 0 {
		return rtnl.Link{}, false, err
	}
	return links[i], true, nil
}

// device returns a device that has to be there.
func (n *node) device(c *rtnl.Conn, name string) (rtnl.Link, error) {
	l, there, err := n.link(c, name)
	if err == nil && !there {
		err = fmt.Errorf("somebody else has removed device %s", name)
	}
	return l, err
}

// rebuild makes an endpoint's devices, anew unless they are whole, and configures them.
func (n *node) rebuild(ctx context.Context, e *Endpoint, whole bool) error {
	if !whole && e.Switch == openVSwitch { // a switch in user space would stay with the device that is gone
		if err := n.vs.remove(ctx, e.device()); err != nil {
			return err
		}
	}
	return n.build(e, whole)
}

// build makes the namespace and the devices of an endpoint, anew unless they are whole, and configures them.
func (n *node) build(e *Endpoint, whole bool) error {
	name := n.namespace(e.Network)
	if !whole {
		if err := n.clear(e); err != nil {
			return err
		}
		if err := netns.Create(name); err != nil {
			return err
		}
	}
	ns, err := netns.Open(name)
	if err != nil {
		return err
	}
	defer ns.Close()
	mac, err := net.ParseMAC(e.MAC)
	if err == nil && !whole {
		err = n.links.AddVeth(rtnl.VethPair{Name: e.device(), Peer: inner, PeerMAC: mac, PeerNetNS: ns.FD(), MTU: e.MTU})
	}
	if err != nil {
		return err
	}
	if err := n.configure(name, e); err != nil {
		return err
	}
	outer, err := n.device(n.links, e.device())
	if err != nil {
		return err
	}
	return n.links.SetUp(outer.Index)
}

// configure gives an endpoint its addresses. What is so already stays.
func (n *node) configure(name string, e *Endpoint) error {
	inside, err := rtnl.Dial(name)
	if err != nil {
		return err
	}
	defer inside.Close()
	features, err := ethtool.Dial(name)
	if err != nil {
		return err
	}
	defer features.Close()
	if err := features.FillChecksums(inner); err != nil {
		return err
	}
	for _, device := range []string{"lo", inner} {
		l, err := n.device(inside, device)
		if err != nil {
			return err
		}
		for _, a := range e.Addresses {
			address, err := netip.ParsePrefix(a)
			if err == nil && device == inner {
				err = inside.AddAddress(l.Index, address)
			}
			if err != nil {
				return err
			}
		}
		if err := inside.SetUp(l.Index); err != nil {
			return err
		}
	}
	return nil
}

// join has an endpoint's device be in its bridge.
func (n *node) join(ctx context.Context, e *Endpoint) error {
	known, err := n.vs.ours(ctx)
	if err != nil {
		return err
	}
	switch port, there := known[e.device()]; {
	case there && port == e.Port:
		return nil
	case there:
		if err := n.vs.remove(ctx, e.device()); err != nil {
			return err
		}
	}
	return n.vs.add(ctx, e)
}

// enslave has an endpoint's device be in its network's Linux bridge once Neutron's agent, or a machine of the network, has
// made that. The agent joins the device itself where it comes to it; where the device already is, it stays.
func (n *node) enslave(e *Endpoint) error {
	outer, err := n.device(n.links, e.device())
	if err != nil {
		return err
	}
	if outer.Master != 0 {
		delete(n.loose, e.Network)
		return nil
	}
	bridge, there, err := n.link(n.links, e.Bridge)
	switch {
	case err != nil:
		return err
	case there && bridge.Kind != "bridge":
		return fmt.Errorf("device %s is no bridge; remove it (ip link del %s), Neutron's agent makes the bridge", e.Bridge, e.Bridge)
	case there:
		if err := n.links.SetMaster(outer.Index, bridge.Index); err != nil {
			return err
		}
		delete(n.loose, e.Network)
		n.logger.Info("joined", "device", e.device(), "bridge", e.Bridge)
		return nil
	}
	since, known := n.loose[e.Network]
	if !known {
		since = time.Now()
		n.loose[e.Network] = since
	}
	if time.Since(since) < n.wait {
		return nil
	}
	return fmt.Errorf("device %s is in no bridge, and there is no %s; look at the log of neutron-linuxbridge-agent, which makes it and joins the device", e.device(), cmp.Or(e.Bridge, "bridge in the file"))
}

// unplug takes an endpoint away, whatever there is of it.
func (n *node) unplug(ctx context.Context, e *Endpoint) error {
	delete(n.seen, e.Network)
	delete(n.loose, e.Network)
	var err error
	if e.Switch == openVSwitch {
		err = n.vs.remove(ctx, e.device())
	}
	if err := errors.Join(err, n.clear(e)); err != nil {
		return err
	}
	delete(n.begun, e.Network)
	return n.save()
}

// clear removes an endpoint's devices and its namespace.
func (n *node) clear(e *Endpoint) error {
	l, there, err := n.link(n.links, e.device())
	if err == nil && there {
		err = n.links.DeleteLink(l.Index)
		if errors.Is(err, unix.ENODEV) { // it has just gone with a namespace that somebody else removed
			err = nil
		}
	}
	return errors.Join(err, netns.Delete(n.namespace(e.Network)))
}

// removeAll takes everything away that was begun.
func (n *node) removeAll(ctx context.Context) error {
	return errors.Join(n.withdraw(ctx, nil), n.sweep(ctx, nil))
}
