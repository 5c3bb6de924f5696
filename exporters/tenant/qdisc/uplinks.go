package qdisc

import (
	"maps"
	"strings"

	"vigia/exporters/tenant/source"
	"vigia/internal/bpf/classify"
	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/internal/tc"
)

// SharedPort stands for the ports of a tenant that share a class: a scheduler does not
// say whose frame it drops.
const SharedPort = "_shared"

// Uplinks tell whose the classes of the node's uplinks are.
type Uplinks struct {
	Owners func() (map[uint32]classify.Owner, error) // of contracts' classes
	Shaped func() (map[uint32]int, error)            // interfaces whose limits classes shape
	Memory Memory
}

// Memory is what outlives the process. *vport.ClassDrops is one.
type Memory interface {
	Counted() (map[vport.UplinkClass]vport.ClassCount, error)
	SetCounted(class vport.UplinkClass, count vport.ClassCount) error
	Forget(class vport.UplinkClass) error
	Attributed() (map[vport.DropOwner]uint64, error)
	SetAttributed(o vport.DropOwner, drops uint64) error
}

// NewUplinks returns what the enforcer that shares the pins of m says of classes.
func NewUplinks(m *vport.Manager, pinDir string) Uplinks {
	return Uplinks{
		Owners: func() (map[uint32]classify.Owner, error) { return classify.Owners(classify.Dir(pinDir)) },
		Shaped: m.Shaped, Memory: m.ClassDrops(),
	}
}

// attribution lays what classes of uplinks drop at the ports whose classes they are.
type attribution struct {
	uplinks    Uplinks
	counted    map[vport.UplinkClass]vport.ClassCount // nil until the memory was read
	attributed map[vport.DropOwner]uint64
	last       map[vport.UplinkClass]vport.DropOwner // of each class; zero = nobody's
	schedulers map[int]*scheduler                    // by interface

	asked  bool                      // at this scrape
	owners map[uint32]classify.Owner // by class
	own    map[classify.Owner]bool   // ports with a class of their own
	shaped map[uint32]int            // interfaces by class
}

// scheduler is what is left of classes that are no more: the root of an HTB scheduler
// counts what any of its classes ever dropped.
type scheduler struct {
	ended    uint32            // drops of such classes, as far as they are accounted for
	vanished []vport.DropOwner // whose those were that went last
	fresh    bool              // they went at this scrape
	bytes    uint64            // of the root: fewer than before tell that it is another one
	seen     map[vport.UplinkClass]bool
	looked   bool // at this scrape
}

func newAttribution(u Uplinks) *attribution {
	return &attribution{uplinks: u, last: make(map[vport.UplinkClass]vport.DropOwner), schedulers: make(map[int]*scheduler)}
}

// isScheduler tells whether a qdisc is the root of a scheduler that the enforcer keeps.
func isScheduler(q *tc.Qdisc) bool {
	return q.Kind == "htb" && q.Parent == tc.Root && q.Handle == tc.MakeHandle(vport.ClassMajor, 0)
}

// begin reads what outlived the process before, once.
func (a *attribution) begin() (err error) {
	a.asked = false
	for _, s := range a.schedulers {
		s.looked = false
	}
	if a.counted != nil {
		return nil
	}
	if a.attributed, err = a.uplinks.Memory.Attributed(); err != nil {
		return err
	}
	a.counted, err = a.uplinks.Memory.Counted()
	return err
}

// ask learns whose the classes are now. Nobody needs to know while none drops.
func (a *attribution) ask() (err error) {
	if a.asked {
		return nil
	}
	if a.owners, err = a.uplinks.Owners(); err != nil {
		return err
	}
	if a.shaped, err = a.uplinks.Shaped(); err != nil {
		return err
	}
	a.asked, a.own = true, make(map[classify.Owner]bool)
	for _, o := range a.owners {
		a.own[o] = o.Port != ""
	}
	return nil
}

// device takes what the scheduler of a device counts: its root first, then its classes.
func (a *attribution) device(v *source.View, name string, root *tc.Qdisc, classes []tc.Class) error {
	s, known := a.schedulers[root.Link]
	if !known {
		s = &scheduler{seen: make(map[vport.UplinkClass]bool, len(classes))}
		a.schedulers[root.Link] = s
	}
	known = known && root.Stats.Bytes >= s.bytes
	s.bytes, s.looked, s.fresh = root.Stats.Bytes, true, false
	clear(s.seen)
	live := uint32(0)
	for i := range classes {
		live += classes[i].Stats.Drops
		if err := a.class(v, s, name, &classes[i]); err != nil {
			return err
		}
	}
	if err := a.forget(root.Link, s); err != nil {
		return err
	}
	if !known { // what was before is nobody's any more
		s.ended = root.Stats.Drops - live
		return nil
	}
	return a.rest(s, root.Stats.Drops-live)
}

// class takes what a class of a device counts.
func (a *attribution) class(v *source.View, s *scheduler, device string, k *tc.Class) error {
	key := vport.UplinkClass{Link: uint32(k.Link), Class: uint32(k.Handle)}
	now := vport.ClassCount{Bytes: k.Stats.Bytes, Drops: k.Stats.Drops}
	s.seen[key] = true
	before, known := a.counted[key]
	// Fewer bytes, or fewer drops but for a wrap of 32 bits: another class has the number.
	if now.Bytes < before.Bytes || int32(now.Drops-before.Drops) < 0 {
		a.vanish(s, key, before)
		before = vport.ClassCount{}
	}
	same := known && now.Drops == before.Drops
	if _, looked := a.last[key]; same && looked {
		a.counted[key] = now
		return nil
	}
	if err := a.ask(); err != nil {
		return err
	}
	if !same {
		if err := a.uplinks.Memory.SetCounted(key, now); err != nil {
			return err
		}
	}
	a.counted[key] = now
	owner := a.owner(v, device, k.Handle)
	a.last[key] = owner
	return a.attribute(owner, now.Drops-before.Drops) // 32 bits, which may wrap
}

func (a *attribution) attribute(o vport.DropOwner, drops uint32) error {
	if o == (vport.DropOwner{}) || drops == 0 {
		return nil
	}
	a.attributed[o] += uint64(drops)
	return a.uplinks.Memory.SetAttributed(o, a.attributed[o])
}

// vanish accounts for a class that is no more as far as it was seen.
func (a *attribution) vanish(s *scheduler, key vport.UplinkClass, count vport.ClassCount) {
	s.ended += count.Drops
	if !s.fresh { // older ones have been settled
		s.vanished, s.fresh = nil, true
	}
	if o := a.last[key]; o != (vport.DropOwner{}) {
		s.vanished = append(s.vanished, o)
	}
	delete(a.last, key)
}

// forget takes note of the classes of a device that are no more.
func (a *attribution) forget(link int, s *scheduler) error {
	for key, count := range a.counted {
		if int(key.Link) != link || s.seen[key] {
			continue
		}
		a.vanish(s, key, count)
		if err := a.uplinks.Memory.Forget(key); err != nil {
			return err
		}
		delete(a.counted, key)
	}
	return nil
}

// rest attributes what classes that are no more dropped after they were last seen. The
// root is read before its classes, so that in an overload it may be behind by a little.
func (a *attribution) rest(s *scheduler, ended uint32) error {
	drops := ended - s.ended
	if int32(drops) <= 0 {
		return nil
	}
	s.ended = ended
	if len(s.vanished) == 0 {
		return nil
	}
	o := s.vanished[0]
	for _, other := range s.vanished[1:] {
		if other.Tenant != o.Tenant || other.Direction != o.Direction || other.Reason != o.Reason {
			return nil // two tenants' limits ended at once
		}
		if other.Port != o.Port {
			o.Port = SharedPort
		}
	}
	return a.attribute(o, drops)
}

// owner returns whom the drops of a class are attributed to; zero for what belongs to no
// contract and no limit.
func (a *attribution) owner(v *source.View, device string, class tc.Handle) vport.DropOwner {
	direction := source.FromTenant
	if strings.HasPrefix(device, classify.IFBPrefix) {
		direction = source.ToTenant
	}
	if minor := class.Minor(); minor >= vport.FirstShape && minor-vport.FirstShape < vport.Shapes {
		p := v.ByIndex(a.shaped[uint32(class)])
		if p == nil {
			return vport.DropOwner{}
		}
		return vport.DropOwner{Port: p.ID, Tenant: p.Tenant, Direction: direction, Reason: string(source.RateLimit)}
	}
	o, ok := a.owners[uint32(class)]
	if !ok {
		return vport.DropOwner{}
	}
	if o.Port == "" {
		o.Port = a.onlyPort(v, o.Tenant)
	}
	return vport.DropOwner{Port: o.Port, Tenant: o.Tenant, Direction: direction, Reason: string(source.QueueFull)}
}

// onlyPort returns the port of a tenant that has no class of its own, if it is the only
// one.
func (a *attribution) onlyPort(v *source.View, tenant string) string {
	for _, list := range [][]ports.Port{v.Ports, v.Gone} {
		found := ""
		for i := range list {
			p := &list[i]
			if p.Tenant != tenant || a.own[classify.Owner{Tenant: tenant, Port: p.ID}] {
				continue
			}
			if found != "" {
				return SharedPort
			}
			found = p.ID
		}
		if found != "" {
			return found
		}
	}
	return SharedPort
}

// end forgets schedulers that are no more and lays down what belongs to ports that are
// there, or have just gone.
func (a *attribution) end(v *source.View) error {
	for key := range a.counted {
		if s := a.schedulers[int(key.Link)]; s != nil && s.looked {
			continue
		}
		if err := a.uplinks.Memory.Forget(key); err != nil {
			return err
		}
		delete(a.counted, key)
		delete(a.last, key)
	}
	maps.DeleteFunc(a.schedulers, func(_ int, s *scheduler) bool { return !s.looked })
	if len(a.attributed) == 0 {
		return nil
	}
	ids := v.IDs()
	for o, drops := range a.attributed {
		if ids[o.Port] || o.Port == SharedPort {
			v.Drops.Add(o.Port, o.Tenant, o.Direction, source.Reason(o.Reason), drops, source.Beside)
		}
	}
	return nil
}
