package settings

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"vigia/probes/networks"
	stamppackets "vigia/probes/protocol/stamp"
	"vigia/probes/reflector"
	"vigia/probes/sender"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
)

// maxFurtherName leaves room for a network's name in that of a path.
const maxFurtherName = 128 - 16

// isFurther reports whether a path stands for further networks.
func isFurther(paths []Path, name string) bool {
	return slices.ContainsFunc(paths, func(p Path) bool { return p.Further && p.Name == name })
}

// furtherName returns what the path of a network is called; ok is false where another path is called so.
func furtherName(paths []Path, further, network string) (name string, ok bool) {
	name = further + "-" + network
	return name, labelRE.MatchString(name) && !slices.ContainsFunc(paths, func(p Path) bool { return p.Name == name })
}

// validateFurther checks what is said of further networks, beside what every path needs.
func (f *File) validateFurther(e *faults, field string, p *Path) {
	if !p.Further {
		return
	}
	if len(p.FoundBy) > 0 {
		e.add(field+".found_by", nil, "cannot tell what a further network is made of", "remove it: the interfaces tell")
	}
	if p.Encap == Auto {
		e.add(field+".encap", p.Encap, "cannot be found out of further networks", "write what they are carried in, or unknown")
	}
	if len(p.Name) > maxFurtherName {
		e.add(field+".name", p.Name, "leaves no room for the networks' names", fmt.Sprintf("write at most %d characters", maxFurtherName))
	}
	if !f.Reflector.known().IsValid() {
		e.add(field+".further", p.Further, "says nothing without an address that the node is known by",
			"add reflector.listeners with an address of its own, without netns, for example {address: \"10.0.0.1:862\"}")
	}
}

// validateFurtherUse checks where paths of further networks are named beside targets.
func (f *File) validateFurtherUse(e *faults) {
	if f.Bulk != nil {
		for i, t := range f.Bulk.Targets {
			if isFurther(f.Paths, t.Path) {
				e.add(fmt.Sprintf("bulk.targets[%d].path", i), t.Path, "stands for further networks, in which there are no bulk tests", "name another path")
			}
		}
	}
	for i := range f.Classes {
		for j, o := range f.Classes[i].Objectives {
			if isFurther(f.Paths, o.Path) {
				e.add(fmt.Sprintf("classes[%d].objectives[%d].path", i, j), o.Path, "stands for further networks, which are several", "leave the path out")
			}
		}
	}
}

// validateFurtherTarget checks the targets on paths of further networks; they are discovered, one for each network.
func (f *File) validateFurtherTarget(e *faults, field string, t *Target) {
	if isFurther(f.Paths, t.Path) {
		e.add(field+".path", t.Path, "stands for further networks, and where others are in them only discovered nodes tell", "move the target to discovery")
	}
	f.validateFurtherTwin(e, field, t.Twin)
}

func (f *File) validateFurtherTwin(e *faults, field, twin string) {
	if isFurther(f.Paths, twin) {
		e.add(field+".twin", twin, "stands for further networks, which are several", "name the path that they are compared with as their twin")
	}
}

func (f *File) validateFurtherTemplates(e *faults, field string, d *Discovery) {
	for i, t := range d.Targets {
		at := fmt.Sprintf("%s.targets[%d]", field, i)
		f.validateFurtherTwin(e, at, t.Twin)
		if !isFurther(f.Paths, t.Path) {
			continue
		}
		for key, value := range map[string]string{"netns": t.Netns, "source": t.Source, "device": t.Device, "at": t.At} {
			if value != "" {
				e.add(at+"."+key, value, "is found out of further networks", "remove it")
			}
		}
		if d.Own {
			e.add(at+".path", t.Path, "stands for further networks, and our own node is not probed in them", "leave it to a discovery without own")
		}
	}
}

// known returns the address by which the node is known in its own network namespace; it is not valid without one.
func (r *Reflector) known() (at netip.AddrPort) {
	if r == nil {
		return at
	}
	for _, l := range r.Listeners {
		if a, err := netip.ParseAddrPort(l.Address); err == nil && l.Netns == "" && !a.Addr().IsUnspecified() && !a.Addr().IsLoopback() {
			return a
		}
	}
	return at
}

// template is a target of a discovery before there is a node, and where the node's address is found.
type template struct {
	Template
	network string // one of ours; empty for the usual one
}

// in returns the templates, those of further networks for each of our own.
func (d *Discovery) in(paths []Path, own []networks.Network) (out []template) {
	for _, t := range d.Targets {
		if !isFurther(paths, t.Path) {
			out = append(out, template{Template: t})
			continue
		}
		further := t.Path
		for _, n := range own {
			name, ok := furtherName(paths, further, n.Name)
			if !ok {
				continue
			}
			t.Path, t.Device, t.Source = name, n.Name, n.Address.String()
			out = append(out, template{Template: t, network: n.Name})
		}
	}
	return out
}

// asked returns how nodes are asked for their networks: as the first template with STAMP would probe them in the usual
// one, else at the port that we answer at ourselves; nil where no template is of further networks.
func (f *File) asked(d *Discovery, classes map[string]*Class) (asked *networks.Peer) {
	for _, t := range d.Targets {
		if !isFurther(f.Paths, t.Path) {
			continue
		}
		if asked == nil {
			asked = &networks.Peer{Port: f.Reflector.known().Port()}
		}
		if c := classes[t.Probe]; c.traits.Name == stamppackets.Name {
			keyed, _ := f.keyed[keyedClass{c.Name, t.KeyFile}].(stamppackets.Protocol)
			return &networks.Peer{Port: uint16(cmp.Or(t.Port, stamp.Port)), Keys: keyed.Keys}
		}
	}
	return asked
}

// PathsIn returns the paths, with one for each of our own networks in place of those that stand for them.
func PathsIn(paths []Path, own []networks.Network) []Path {
	out := make([]Path, 0, len(paths))
	for _, p := range paths {
		if !p.Further {
			out = append(out, p)
			continue
		}
		for _, n := range own {
			name, ok := furtherName(paths, p.Name, n.Name)
			if !ok {
				continue
			}
			one := p
			one.Name, one.Further = name, false
			if one.Dataplane == Auto {
				one.Dataplane = n.Kind
			}
			out = append(out, one)
		}
	}
	return out
}

// Known returns the address by which we are known, where further networks are to be found; it is not valid elsewhere.
func (s *Settings) Known() netip.Addr {
	if s.file == nil || !slices.ContainsFunc(s.Paths, func(p Path) bool { return p.Further }) {
		return netip.Addr{}
	}
	return s.file.Reflector.known().Addr()
}

// SitesIn returns where nodes are found and what is probed on each, given our own networks.
func (s *Settings) SitesIn(own []networks.Network) []Site {
	if len(own) == 0 {
		return s.Sites
	}
	return s.file.sites(s.classes, own)
}

// ReflectorIn returns what is answered, given our own networks: there as by the address that we are known by.
func (s *Settings) ReflectorIn(own []networks.Network) reflector.Config {
	c := s.Reflector
	if len(own) == 0 {
		return c
	}
	known := s.file.Reflector.known()
	c.Networks = networks.Told(own)
	c.Listeners = slices.Clone(c.Listeners)
	c.Keys = make(map[sockets.Key]stamp.Keys)
	for key, keys := range s.Reflector.Keys {
		c.Keys[key] = keys
	}
	for _, n := range own {
		key := sockets.Key{Local: netip.AddrPortFrom(n.Address, known.Port())}
		if slices.Contains(c.Listeners, key) {
			continue
		}
		c.Listeners = append(c.Listeners, key)
		if keys := c.Keys[sockets.Key{Local: known}]; keys != "" {
			c.Keys[key] = keys
		}
	}
	return c
}

// Places tells where nodes are in our networks.
type Places interface {
	Address(node, network string) (netip.Addr, bool)
}

// inNetwork has a target of a network be of one node; ok is false while nobody knows where that is.
func inNetwork(t *sender.Target, network string, places Places) (ok bool) {
	if places == nil {
		return false
	}
	address, ok := places.Address(t.Labels.Dst, network)
	t.Host = address.String()
	return ok
}
