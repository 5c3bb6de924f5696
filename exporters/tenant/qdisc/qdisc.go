// Package qdisc is the source of what qdiscs and classes drop and hold back: at
// ports, where it is attributed to the tenant, and at devices that tenants share.
package qdisc

import (
	"fmt"

	"vigia/exporters/tenant/netdev"
	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
	"vigia/internal/ports"
	"vigia/internal/rtnl"
	"vigia/internal/tc"
)

// Source reads qdiscs and classes by rtnetlink.
type Source struct {
	conn  *tc.Conn
	links *rtnl.Conn
	// ours tells that Vigia's own limits drop inside clsact, which counts them.
	ours    bool
	uplinks *attribution
	counted map[place]wide
	round   uint64
	qdiscs  []tc.Qdisc
	classes []tc.Class
	names   map[int]string

	backlog                                  *exposition.Family
	bytes, packets, drops, qdiscBacklog      *exposition.Family
	classBytes, classPackets, classDrops     *exposition.Family
	classBacklog, classGuarantee, resourceOf *exposition.Family
}

// place is a counter of the kernel that has 32 bits only.
type place struct {
	link   int
	parent tc.Handle
	handle tc.Handle
	class  bool
}

// wide makes 64 bits of it: it is read often enough to see every wrap.
type wide struct {
	last  uint32
	total uint64
	round uint64
}

// New returns the source for the namespace given by name or path. ours tells that
// Vigia's programs are attached by clsact filters.
func New(f source.Families, netns string, ours bool, u Uplinks) (*Source, error) {
	conn, err := tc.Dial(netns)
	if err != nil {
		return nil, err
	}
	links, err := rtnl.Dial(netns)
	if err != nil {
		conn.Close()
		return nil, err
	}
	get := func(name string) *exposition.Family { return source.Family(f, name) }
	return &Source{
		conn: conn, links: links, ours: ours, uplinks: newAttribution(u), counted: make(map[place]wide), names: make(map[int]string),
		backlog: get("vigia_port_queue_backlog_bytes"),
		bytes:   get("vigia_qdisc_bytes_total"), packets: get("vigia_qdisc_packets_total"),
		drops: get("vigia_qdisc_drops_total"), qdiscBacklog: get("vigia_qdisc_backlog_bytes"),
		classBytes: get("vigia_qdisc_class_bytes_total"), classPackets: get("vigia_qdisc_class_packets_total"),
		classDrops: get("vigia_qdisc_class_drops_total"), classBacklog: get("vigia_qdisc_class_backlog_bytes"),
		classGuarantee: get("vigia_qdisc_class_rate_bytes_per_second"),
		resourceOf:     get("vigia_resource_drops_total"),
	}, nil
}

// AttributesDrops marks a source that adds to View.Drops.
func (s *Source) AttributesDrops() {}

// Close frees the sockets.
func (s *Source) Close() error {
	s.links.Close()
	return s.conn.Close()
}

// Collect emits the qdiscs of all devices and the classes of those with classes.
func (s *Source) Collect(v *source.View, out *exposition.Page) error {
	qdiscs, err := s.conn.AllQdiscs(s.qdiscs[:0])
	if err != nil {
		return err
	}
	s.qdiscs = qdiscs
	s.round++
	if err := s.uplinks.begin(); err != nil {
		return err
	}
	classful := make(map[int]*tc.Qdisc) // their roots
	for i := range qdiscs {
		q := &qdiscs[i]
		if q.Kind == "noqueue" {
			continue // it cannot drop
		}
		if q.Kind == "htb" || q.Kind == "hfsc" || q.Kind == "drr" || q.Kind == "ets" || q.Kind == "qfq" {
			if classful[q.Link] == nil || q.Parent == tc.Root {
				classful[q.Link] = q
			}
		}
		if p := v.ByIndex(q.Link); p != nil {
			s.port(v, p, q, out)
			continue
		}
		if q.Stats.Bytes == 0 && q.Stats.Drops == 0 {
			continue // nothing has come by
		}
		if err := s.device(v, q, out); err != nil {
			return err
		}
	}
	for _, root := range classful { // after the ports: what they drop themselves has been said
		if v.ByIndex(root.Link) == nil || v.Detail {
			if err := s.class(v, root, out); err != nil {
				return err
			}
		}
	}
	if err := s.uplinks.end(v); err != nil {
		return err
	}
	for key, w := range s.counted {
		if w.round != s.round {
			delete(s.counted, key)
		}
	}
	return nil
}

// widen counts on from a counter of 32 bits.
func (s *Source) widen(key place, now uint32) uint64 {
	w, known := s.counted[key]
	if !known && now == 0 {
		return 0
	}
	if known {
		w.total += uint64(now - w.last)
	} else {
		w.total = uint64(now)
	}
	w.last, w.round = now, s.round
	s.counted[key] = w
	return w.total
}

// port lays the drops of a port's qdiscs down. What the root drops includes what
// its children drop. What clsact drops, a filter or policer dropped.
func (s *Source) port(v *source.View, p *ports.Port, q *tc.Qdisc, out *exposition.Page) {
	received, transmitted := netdev.Viewpoint(p).Directions()
	switch q.Parent {
	case tc.Root:
		n := s.widen(place{q.Link, q.Parent, q.Handle, false}, q.Stats.Drops)
		v.Drops.Add(p.ID, p.Tenant, transmitted, source.QueueFull, n, source.Beside)
		if v.Detail {
			out.Emit(s.backlog, float64(q.Stats.Backlog), p.ID, p.Tenant, transmitted)
		}
	case tc.Clsact:
		n := s.widen(place{q.Link, q.Parent, q.Handle, false}, q.Stats.Drops)
		if s.ours { // the collector bpf has said that part already
			n -= min(n, v.Drops.Counts[source.DropKey{Port: p.ID, Tenant: p.Tenant, Direction: received, Reason: source.RateLimit}])
		}
		v.Drops.Add(p.ID, p.Tenant, received, source.Policy, n, source.Beside)
	}
}

// device emits a qdisc of a device that is no port.
func (s *Source) device(v *source.View, q *tc.Qdisc, out *exposition.Page) error {
	name, err := s.name(q.Link)
	if err != nil || name == "" {
		return err
	}
	parent := "root"
	switch q.Parent {
	case tc.Root:
	case tc.Clsact:
		parent = "ingress"
	default:
		parent = q.Parent.String()
	}
	n := s.widen(place{q.Link, q.Parent, q.Handle, false}, q.Stats.Drops)
	out.Emit(s.bytes, float64(q.Stats.Bytes), name, q.Kind, parent)
	out.Emit(s.packets, float64(q.Stats.Packets), name, q.Kind, parent)
	out.Emit(s.drops, float64(n), name, q.Kind, parent)
	out.Emit(s.qdiscBacklog, float64(q.Stats.Backlog), name, q.Kind, parent)
	if q.Parent == tc.Root {
		v.Queues[name] = source.Queue{Bytes: q.Stats.Bytes}
		out.Emit(s.resourceOf, float64(n), "queue/"+name, "queue", string(source.QueueFull))
	}
	return nil
}

// class has the classes of contracts and limits attributed, and emits the classes of a device
// in the tier "detail": an uplink has two a tenant, with six series each.
func (s *Source) class(v *source.View, root *tc.Qdisc, out *exposition.Page) error {
	link := root.Link
	name, err := s.name(link)
	if err != nil || name == "" {
		return err
	}
	s.classes, err = s.conn.Classes(link, s.classes[:0])
	if err != nil {
		return err
	}
	if q, there := v.Queues[name]; there {
		q.Ceiling = ceiling(s.classes)
		v.Queues[name] = q
	}
	if v.Detail {
		s.emitClasses(link, name, out)
	}
	if !isScheduler(root) {
		return nil
	}
	return s.uplinks.device(v, name, root, s.classes)
}

// ceiling returns what the classes below the root may have together; 0 if one of them has no bound.
func ceiling(classes []tc.Class) (sum uint64) {
	for i := range classes {
		k := &classes[i]
		if k.Parent != tc.Root && k.Parent.Minor() != 0 {
			continue
		}
		if k.Ceil == 0 {
			return 0
		}
		sum += k.Ceil
	}
	return sum
}

func (s *Source) emitClasses(link int, name string, out *exposition.Page) {
	for i := range s.classes {
		k := &s.classes[i]
		id := k.Handle.String()
		n := s.widen(place{link, k.Parent, k.Handle, true}, k.Stats.Drops)
		out.Emit(s.classBytes, float64(k.Stats.Bytes), name, id)
		out.Emit(s.classPackets, float64(k.Stats.Packets), name, id)
		out.Emit(s.classDrops, float64(n), name, id)
		out.Emit(s.classBacklog, float64(k.Stats.Backlog), name, id)
		if k.Rate > 0 {
			out.Emit(s.classGuarantee, float64(k.Rate), name, id, "guarantee")
			out.Emit(s.classGuarantee, float64(k.Ceil), name, id, "ceiling")
		}
	}
}

// name returns a device's name; empty if it went meanwhile. The names are read
// again when an unknown index turns up.
func (s *Source) name(link int) (string, error) {
	if name, ok := s.names[link]; ok {
		return name, nil
	}
	links, err := s.links.Links()
	if err != nil {
		return "", fmt.Errorf("name interface %d: %w", link, err)
	}
	clear(s.names)
	for _, l := range links {
		s.names[l.Index] = l.Name
	}
	return s.names[link], nil
}
