package settings

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"vigia/internal/config"
	"vigia/probes/discovery"
	"vigia/probes/mesh"
	"vigia/probes/sender"
	"vigia/probes/stamp"
)

// Discovery says where nodes are found, and what is probed on each.
type Discovery struct {
	Files   []string        `yaml:"files" help:"patterns of files in the format of file_sd (JSON or YAML)"`
	URL     string          `yaml:"url" help:"endpoint in the format of http_sd"`
	Refresh config.Duration `yaml:"refresh" help:"how often they are read, default 30s"`
	Grace   config.Duration `yaml:"grace" help:"how long the series of a vanished node stay, default 5m"`
	PerNode int             `yaml:"per_node" help:"nodes of other racks to probe; 0 or absent: all"`
	Targets []Template      `yaml:"targets" help:"what is probed on each node"`
}

// Template is a target without its node.
type Template struct {
	Path    string `yaml:"path" help:"name of a path; required"`
	Tenant  string `yaml:"tenant" help:"label 'tenant'; required"`
	Probe   string `yaml:"probe" help:"name of a class; required"`
	Netns   string `yaml:"netns" help:"network namespace to send from"`
	Source  string `yaml:"source" help:"IP, or IP:port, to send from"`
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
	// anyNode stands for the node in templates.
	anyNode = "node"
)

// Site is a source of nodes and what is probed on each.
type Site struct {
	Source    discovery.Source
	PerNode   int
	templates []sender.Target
}

func (f *File) validateDiscovery(e *faults, paths map[string]bool, classes map[string]*Class) {
	for i := range f.Discovery {
		d, field := &f.Discovery[i], fmt.Sprintf("discovery[%d]", i)
		d.validate(e, field)
		targets := d.targets(classes)
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
	if len(d.Targets) == 0 {
		e.add(field+".targets", nil, "are missing", "say what is probed on each node")
	}
	for j, t := range d.Targets {
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

// targets makes targets of the templates, as if there were a node of that name.
func (d *Discovery) targets(classes map[string]*Class) []Target {
	out := make([]Target, 0, len(d.Targets))
	for _, t := range d.Targets {
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

// sites converts what Validate has found right.
func (f *File) sites(classes map[string]*Class) (out []Site) {
	for i := range f.Discovery {
		d := &f.Discovery[i]
		out = append(out, Site{Source: d.source(), PerNode: d.PerNode, templates: f.convert(d.targets(classes), classes)})
	}
	return out
}

// Targets returns what self probes of the nodes in a state: those of its share of
// the mesh. Nodes that have vanished keep their series and are not probed. Nodes
// that cannot be probed are refused, with the reason of the first.
func (s *Site) Targets(self string, st discovery.State) (targets []sender.Target, refused error) {
	all := make(map[string]discovery.Peer)
	gone := make(map[string]bool)
	for _, p := range st.Vanished {
		all[p.Name], gone[p.Name] = p, true
	}
	for _, p := range st.Peers {
		all[p.Name], gone[p.Name] = p, false
	}
	nodes := make([]mesh.Node, 0, len(all))
	me := mesh.Node{Name: self}
	for _, p := range all {
		if err := checkPeer(&p); err != nil {
			refused = err
			continue
		}
		if p.Name == self {
			me.Rack = p.Rack
		}
		nodes = append(nodes, mesh.Node{Name: p.Name, Rack: p.Rack})
	}
	present := slices.DeleteFunc(slices.Clone(nodes), func(n mesh.Node) bool { return gone[n.Name] })
	for _, n := range mesh.Peers(me, present, s.PerNode) {
		targets = append(targets, s.of(all[n.Name], false)...)
	}
	if len(present) == len(nodes) {
		return targets, refused
	}
	for _, n := range mesh.Peers(me, nodes, s.PerNode) {
		if gone[n.Name] {
			targets = append(targets, s.of(all[n.Name], true)...)
		}
	}
	return targets, refused
}

// of returns the targets of one node.
func (s *Site) of(p discovery.Peer, paused bool) []sender.Target {
	out := slices.Clone(s.templates)
	for i := range out {
		t := &out[i]
		t.Labels.Dst, t.Host, t.Paused = p.Name, p.Host, paused
		if t.Twin.Size > 0 {
			t.Twin.Group.Dst = p.Name
		}
	}
	return out
}

func checkPeer(p *discovery.Peer) error {
	if !labelRE.MatchString(p.Name) {
		return fmt.Errorf("node %q cannot be a label; %s", p.Name, labelFix)
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
