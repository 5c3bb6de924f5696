package source

import (
	"maps"
	"time"

	"vigia/internal/ports"
)

// View is what all sources of one scrape see.
type View struct {
	Ports  []ports.Port        // that exist, sorted by id
	Gone   []ports.Port        // that are gone, for as long as their series stay
	States []ports.SourceState // of the sources of identity
	// Deviceless is how many of Ports only a switch knows: their Index is 0.
	Deviceless int
	Drops      *Drops
	// Carried is what each of Ports carried, as netdev and openflow record it by Carry for
	// the attribution of shared elements; nil while no source has.
	Carried []Carried
	// Queues are those of devices that are no ports, by device, as qdisc records them.
	Queues map[string]Queue
	Detail bool // whether the tier "detail" is on
	Now    time.Time

	roster *roster
	memory []Carried // for Carried
}

// Queue is the root queueing discipline of a device.
type Queue struct {
	Bytes   uint64 // that it let through so far
	Ceiling uint64 // bytes per second that its classes may have at most; 0 without classes
}

// Carried is what a port carried so far.
type Carried struct {
	Packets uint64 // both directions
	Sent    uint64 // bytes from the tenant
	Known   bool
}

// roster is what is looked up in a list of ports.
type roster struct {
	ports      []ports.Port
	deviceless int
	byIndex    map[int]int    // positions in ports
	byDevice   map[string]int // likewise
	ids        map[string]bool
	tenants    []string
	tenant     []int // position in tenants, by position in ports
}

func newRoster(list []ports.Port) *roster {
	r := &roster{
		ports: list, byIndex: make(map[int]int, len(list)), byDevice: make(map[string]int, len(list)), ids: make(map[string]bool, len(list)),
		tenant: make([]int, len(list)),
	}
	known := make(map[string]int)
	for i := range list {
		p := &list[i]
		r.ids[p.ID], r.byDevice[p.Device] = true, i
		t, ok := known[p.Tenant]
		if !ok {
			t = len(r.tenants)
			known[p.Tenant], r.tenants = t, append(r.tenants, p.Tenant)
		}
		r.tenant[i] = t
		if p.Index == 0 {
			r.deviceless++
			continue
		}
		r.byIndex[p.Index] = i
	}
	return r
}

// Views makes the view of each scrape. What depends on the list of ports alone is made
// once for as long as the list stays, and memory is used again.
type Views struct {
	roster  *roster
	drops   *Drops
	carried []Carried
}

// Next returns the view of a scrape; the one before is valid no longer. list must not
// be altered ever after.
func (w *Views) Next(list, gone []ports.Port, states []ports.SourceState, now time.Time) *View {
	if w.roster == nil || !SameList(w.roster.ports, list) {
		w.roster = newRoster(list)
	}
	if w.drops == nil {
		w.drops = NewDrops()
	}
	w.drops.reset()
	v := &View{
		Ports: list, Gone: gone, States: states, Deviceless: w.roster.deviceless, Drops: w.drops, Now: now,
		Queues: make(map[string]Queue), roster: w.roster,
	}
	if cap(w.carried) < len(list) {
		w.carried = make([]Carried, len(list))
	}
	v.memory = w.carried[:len(list)]
	clear(v.memory)
	return v
}

// SameList tells whether two lists are one in the same memory.
func SameList(a, b []ports.Port) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Carry records what the port at a position in Ports carried so far.
func (v *View) Carry(position int, packets, sent uint64) {
	v.Carried = v.memory
	v.Carried[position] = Carried{Packets: packets, Sent: sent, Known: true}
}

// ByIndex returns the port with that interface index, or nil.
func (v *View) ByIndex(index int) *ports.Port {
	if i, ok := v.roster.byIndex[index]; ok {
		return &v.Ports[i]
	}
	return nil
}

// ByDevice returns the position in Ports of the port with that device.
func (v *View) ByDevice(device string) (position int, ok bool) {
	position, ok = v.roster.byDevice[device]
	return position, ok
}

// IDs returns the ports that have series. It must not be altered.
func (v *View) IDs() map[string]bool {
	if len(v.Gone) == 0 {
		return v.roster.ids
	}
	all := maps.Clone(v.roster.ids)
	for i := range v.Gone {
		all[v.Gone[i].ID] = true
	}
	return all
}

// Tenants returns the tenants of Ports, and for each of Ports the position of its
// tenant there. Neither may be altered.
func (v *View) Tenants() (tenants []string, of []int) { return v.roster.tenants, v.roster.tenant }
