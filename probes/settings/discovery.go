package settings

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"vigia/internal/config"
	"vigia/probes/discovery"
	"vigia/probes/mesh"
	"vigia/probes/networks"
	"vigia/probes/sender"
	"vigia/probes/stamp"
)

// Discovery says where nodes are found, and what is probed on each.
type Discovery struct {
	Files   []string        `yaml:"files" help:"patterns of files in the format of file_sd (JSON or YAML)"`
	URL     string          `yaml:"url" help:"endpoint in the format of http_sd"`
	Refresh config.Duration `yaml:"refresh" help:"how often they are read, default 30s"`
	Grace   config.Duration `yaml:"grace" help:"how long the series of a vanished node stay, default 5m"`
	Within  string          `yaml:"within" help:"'rack' (default) or 'zone': the part of the site of which every node is probed"`
	Own     bool            `yaml:"own" help:"probe our own node in place of the others"`
	PerNode int             `yaml:"per_node" help:"of the other nodes, so many are probed; 0 or absent: all"`
	PerZone int             `yaml:"per_zone" help:"nodes of each other zone to probe, beside the per_node of the own zone; 0 or absent: per_node counts those of all zones"`
	Show    []string        `yaml:"show" help:"nodes whose pairs always have series of their own, as far as mesh.pair_series goes; '*': all"`
	Targets []Template      `yaml:"targets" help:"what is probed on each node"`
}

// Mesh bounds what is exported of discovered nodes.
type Mesh struct {
	PairSeries *int `yaml:"pair_series" help:"series, at most, of pairs that are bad or asked for, 0 to 1000000, default 1000"`
}

// Template is a target without its node.
type Template struct {
	Path    string `yaml:"path" help:"name of a path; required"`
	Tenant  string `yaml:"tenant" help:"label 'tenant'; required"`
	Probe   string `yaml:"probe" help:"name of a class; required"`
	Netns   string `yaml:"netns" help:"network namespace to send from, as of targets"`
	Source  string `yaml:"source" help:"IP, or IP:port, to send from"`
	At      string `yaml:"at" help:"probe the address, HOST or HOST:PORT, that the node's label at_NAME has, NAME being this, in place of the node's own; a node without that label is not probed so"`
	Port    int    `yaml:"port" help:"of the nodes, default 862"`
	Device  string `yaml:"device" help:"device to bind to"`
	Twin    string `yaml:"twin" help:"path of the template to be probed at the same moment"`
	KeyFile string `yaml:"key_file" help:"absolute path of HMAC keys"`
}

const (
	defaultRefresh = 30 * time.Second
	defaultGrace   = 5 * time.Minute
	minRefresh     = time.Second
	maxGrace       = 24 * time.Hour
	maxPerNode     = 10_000
	maxPairSeries  = 1_000_000
	// defaultPairSeries has room for about 16 pairs.
	defaultPairSeries = 1000
	maxShow           = 1000
	showAll           = "*"
	// anyNode stands for the node in templates.
	anyNode = "node"
)

func (m *Mesh) validate(e *faults) {
	if n := m.PairSeries; n != nil && (*n < 0 || *n > maxPairSeries) {
		e.add("mesh.pair_series", *n, "is out of bounds", fmt.Sprintf("write 0 to %d", maxPairSeries))
	}
}

func (m *Mesh) pairSeries() int {
	if m.PairSeries == nil {
		return defaultPairSeries
	}
	return *m.PairSeries
}

// Site is a source of nodes and what is probed on each.
type Site struct {
	Source    discovery.Source
	Rule      mesh.Rule
	Show      []string // nodes, or showAll
	own       bool
	templates []sender.Target
	at        []string // by template, the name of the address; empty: the node's own
	networks  []string // by template, the network of ours in which it is; empty: the usual one
	// asked is by which template nodes are asked for their networks; nil: they are not.
	asked *networks.Peer
	// Places tells where nodes are in networks of ours.
	Places Places
}

// Shows reports whether the pairs with a node always have series of their own.
func (s *Site) Shows(node string) bool {
	return slices.Contains(s.Show, showAll) || slices.Contains(s.Show, node)
}

func (f *File) validateDiscovery(e *faults, paths map[string]bool, classes map[string]*Class) {
	for i := range f.Discovery {
		d, field := &f.Discovery[i], fmt.Sprintf("discovery[%d]", i)
		d.validate(e, field)
		f.validateFurtherTemplates(e, field, d)
		targets := d.targets(classes, d.plain())
		for j := range targets {
			targets[j].validate(e, fmt.Sprintf("%s.targets[%d]", field, j), paths, classes)
			f.validateKeys(e, fmt.Sprintf("%s.targets[%d].key_file", field, j), classes[targets[j].Probe], targets[j].KeyFile)
			same := func(t Target) bool {
				return t.Path == targets[j].Path && t.Tenant == targets[j].Tenant && t.Probe == targets[j].Probe
			}
			if slices.ContainsFunc(targets[:j], same) {
				e.add(fmt.Sprintf("%s.targets[%d]", field, j), nil, "has the same path, tenant and probe as another", "remove one, or make one of the three differ")
			}
		}
		validateTwins(e, field+".targets", targets, classes)
	}
}

func (d *Discovery) validate(e *faults, field string) {
	switch u, err := url.Parse(d.URL); {
	case d.URL == "" && len(d.Files) == 0:
		e.add(field, nil, "has neither files nor url", "add one, for example files: [/etc/vigia/nodes.json]")
	case d.URL != "" && len(d.Files) > 0:
		e.add(field, nil, "has both files and url", "write two entries")
	case d.URL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"):
		e.add(field+".url", "(not shown)", "is not an HTTP address", "write for example http://inventory.example.net/nodes")
	}
	if r := d.source().Refresh; r < minRefresh || r > maxInterval {
		e.add(field+".refresh", r, "is out of bounds", fmt.Sprintf("write %v to %v", minRefresh, maxInterval))
	}
	if g := d.source().Grace; g < 0 || g > maxGrace {
		e.add(field+".grace", g, "is out of bounds", fmt.Sprintf("write at most %v", maxGrace))
	}
	if d.PerNode < 0 || d.PerNode > maxPerNode {
		e.add(field+".per_node", d.PerNode, "is out of bounds", fmt.Sprintf("write 0, for all, to %d", maxPerNode))
	}
	if d.PerZone < 0 || d.PerZone > maxPerNode {
		e.add(field+".per_zone", d.PerZone, "is out of bounds", fmt.Sprintf("write 0 to %d", maxPerNode))
	}
	if a := mesh.Area(d.Within); a != "" && a != mesh.WithinRack && a != mesh.WithinZone {
		e.add(field+".within", d.Within, "is no part of a site", fmt.Sprintf("write %s or %s", mesh.WithinRack, mesh.WithinZone))
	}
	if len(d.Show) > maxShow {
		e.add(field+".show", len(d.Show), "are too many", fmt.Sprintf("write at most %d, or %q for all", maxShow, showAll))
	}
	for j, name := range d.Show {
		if name != showAll && !labelRE.MatchString(name) {
			e.add(fmt.Sprintf("%s.show[%d]", field, j), name, "cannot be a node", labelFix+", or "+showAll+" for all")
		}
	}
	if len(d.Targets) == 0 {
		e.add(field+".targets", nil, "are missing", "say what is probed on each node")
	}
	for j, t := range d.Targets {
		if t.At != "" && !labelRE.MatchString(t.At) {
			e.add(fmt.Sprintf("%s.targets[%d].at", field, j), t.At, "cannot be the rest of a label", labelFix)
		}
		if t.Port < 0 || t.Port > 65535 {
			e.add(fmt.Sprintf("%s.targets[%d].port", field, j), t.Port, "is out of bounds", "write 1 to 65535")
		}
	}
}

func (d *Discovery) source() discovery.Source {
	s := discovery.Source{Files: d.Files, URL: d.URL, Refresh: time.Duration(d.Refresh), Grace: time.Duration(d.Grace)}
	if d.Refresh == 0 {
		s.Refresh = defaultRefresh
	}
	if d.Grace == 0 {
		s.Grace = defaultGrace
	}
	return s
}

// plain returns the templates as they are written.
func (d *Discovery) plain() (out []template) {
	for _, t := range d.Targets {
		out = append(out, template{Template: t})
	}
	return out
}

// targets makes targets of the templates, as if there were a node of that name.
func (d *Discovery) targets(classes map[string]*Class, templates []template) []Target {
	out := make([]Target, 0, len(templates))
	for _, t := range templates {
		usual := uint16(stamp.Port)
		if c := classes[t.Probe]; c != nil && c.protocol != nil {
			usual = c.traits.Port
		}
		address := anyNode
		if usual != 0 {
			address = net.JoinHostPort(anyNode, strconv.Itoa(cmp.Or(t.Port, int(usual))))
		}
		out = append(out, Target{
			Dst: anyNode, Path: t.Path, Tenant: t.Tenant, Probe: t.Probe, Netns: t.Netns, Source: t.Source,
			Device: t.Device, Twin: t.Twin, KeyFile: t.KeyFile, Address: address,
		})
	}
	return out
}

// sites converts what Validate has found right, given our own networks.
func (f *File) sites(classes map[string]*Class, own []networks.Network) (out []Site) {
	for i := range f.Discovery {
		d := &f.Discovery[i]
		templates := d.in(f.Paths, own)
		site := Site{
			Source: d.source(), Show: d.Show, own: d.Own, templates: f.convert(d.targets(classes, templates), classes),
			Rule:  mesh.Rule{Within: mesh.Area(d.Within), PerNode: d.PerNode, PerZone: d.PerZone},
			asked: f.asked(d, classes),
		}
		for _, t := range templates {
			site.at = append(site.at, t.At)
			site.networks = append(site.networks, t.network)
		}
		out = append(out, site)
	}
	return out
}

// Share is this node's share of a mesh.
type Share struct {
	Mesh    *mesh.Mesh // of the nodes that are there
	Self    mesh.Node
	Peers   map[string]mesh.Node // those of Targets, by name
	Targets []sender.Target
	Asked   []networks.Peer // for their networks
	// Refused says why a node cannot be probed, if there is one.
	Refused error
}

// Share returns what self probes of the nodes in a state. Nodes that have vanished keep
// their series and are not probed, and nodes that cannot be probed are refused.
func (s *Site) Share(self string, st discovery.State) (share Share) {
	all := make(map[string]discovery.Peer)
	gone := make(map[string]bool)
	for _, p := range st.Vanished {
		all[p.Name], gone[p.Name] = p, true
	}
	for _, p := range st.Peers {
		all[p.Name], gone[p.Name] = p, false
	}
	nodes := make([]mesh.Node, 0, len(all))
	share = Share{Self: mesh.Node{Name: self}, Peers: make(map[string]mesh.Node)}
	for _, p := range all {
		if err := checkPeer(&p); err != nil {
			share.Refused = err
			continue
		}
		n := mesh.Node{Name: p.Name, Rack: p.Rack, Zone: p.Zone}
		if p.Name == self {
			share.Self = n
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b mesh.Node) int { return strings.Compare(a.Name, b.Name) })
	present := slices.DeleteFunc(slices.Clone(nodes), func(n mesh.Node) bool { return gone[n.Name] })
	share.Mesh = mesh.New(present, s.Rule)
	for _, n := range s.peers(share.Mesh, share.Self) {
		share.Peers[n.Name] = n
		share.take(s, all[n.Name], false)
	}
	if len(present) == len(nodes) {
		return share
	}
	for _, n := range s.peers(mesh.New(nodes, s.Rule), share.Self) {
		if gone[n.Name] {
			share.Peers[n.Name] = n
			share.take(s, all[n.Name], true)
		}
	}
	return share
}

// take takes a node that is probed.
func (share *Share) take(s *Site, p discovery.Peer, paused bool) {
	share.Targets = append(share.Targets, s.of(p, paused)...)
	if s.asked != nil {
		one := *s.asked
		one.Node, one.Host, one.Paused = p.Name, p.Host, paused
		share.Asked = append(share.Asked, one)
	}
}

// peers returns the nodes of a mesh that are probed.
func (s *Site) peers(m *mesh.Mesh, self mesh.Node) []mesh.Node {
	if !s.own {
		return m.Peers(self)
	}
	if n, ok := m.Node(self.Name); ok {
		return []mesh.Node{n}
	}
	return nil
}

// of returns the targets of one node.
func (s *Site) of(p discovery.Peer, paused bool) []sender.Target {
	out := make([]sender.Target, 0, len(s.templates))
	for i, t := range s.templates {
		t.Labels.Dst, t.Host, t.Paused = p.Name, p.Host, paused
		if t.Twin.Size > 0 {
			t.Twin.Group.Dst = p.Name
		}
		if network := s.networks[i]; network != "" && !inNetwork(&t, network, s.Places) {
			continue
		}
		if name := s.at[i]; name != "" {
			host, port, ok := otherAddress(p.Other(name))
			if !ok {
				continue
			}
			t.Host = host
			if port != 0 && t.Port != 0 {
				t.Port = port
			}
		}
		out = append(out, t)
	}
	return out
}

// otherAddress splits a further address of a node; ok is false for one that cannot be probed.
func otherAddress(text string) (host string, port uint16, ok bool) {
	host = text
	if h, p, err := net.SplitHostPort(text); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return "", 0, false
		}
		host, port = h, uint16(n)
	}
	host, _, problem := parseHost(strings.Trim(host, "[]"))
	return host, port, problem == ""
}

func checkPeer(p *discovery.Peer) error {
	if !labelRE.MatchString(p.Name) {
		return fmt.Errorf("node %q cannot be a label; %s", p.Name, labelFix)
	}
	for key, value := range map[string]string{"rack": p.Rack, "zone": p.Zone} {
		if value != "" && !labelRE.MatchString(value) {
			return fmt.Errorf("node %q: the %s %q cannot be a label; %s", p.Name, key, value, labelFix)
		}
	}
	if _, _, problem := parseHost(p.Host); problem != "" {
		return fmt.Errorf("node %q: the host %q %s", p.Name, p.Host, problem)
	}
	return nil
}

// Sources returns where nodes are looked for.
func (l *Live) Sources() (out []discovery.Source) {
	for i := range l.Sites {
		out = append(out, l.Sites[i].Source)
	}
	return out
}
