package source

import "fmt"

// Reason is why frames are dropped; the list is closed.
type Reason string

// The values of the label "reason".
const (
	RateLimit         Reason = "rate_limit"         // a policer or Vigia's own limit
	Meter             Reason = "meter"              // an OpenFlow meter
	QueueFull         Reason = "queue_full"         // a qdisc or a socket's receive queue
	RingFull          Reason = "ring_full"          // the receive ring of a device
	Policy            Reason = "policy"             // a filter, a security group, an explicit drop
	Spoof             Reason = "spoof"              // a source address that is not the port's
	MACVLANFilter     Reason = "mac_vlan_filter"    // a frame for nobody here
	ConntrackFull     Reason = "conntrack_full"     //
	ConntrackInvalid  Reason = "conntrack_invalid"  //
	NoFlow            Reason = "no_flow"            // no OpenFlow rule, no socket
	UpcallLost        Reason = "upcall_lost"        // the way to ovs-vswitchd was full
	TunnelError       Reason = "tunnel_error"       //
	MTU               Reason = "mtu"                // the packet is too big
	Checksum          Reason = "checksum"           //
	TTL               Reason = "ttl"                //
	LinkDown          Reason = "link_down"          //
	CPUBacklog        Reason = "cpu_backlog"        // the queue of a processor
	VhostBackpressure Reason = "vhost_backpressure" // the guest does not fetch its frames
	NICError          Reason = "nic_error"          //
	BridgeState       Reason = "bridge_state"       // a port that does not forward
	NoMemory          Reason = "no_memory"          //
	Other             Reason = "other"              // a known cause without a reason of its own
	Unattributed      Reason = "unattributed"       // the remainder of the device's count
)

// Reasons returns the closed list.
func Reasons() []Reason {
	return []Reason{
		RateLimit, Meter, QueueFull, RingFull, Policy, Spoof, MACVLANFilter, ConntrackFull, ConntrackInvalid, NoFlow, UpcallLost,
		TunnelError, MTU, Checksum, TTL, LinkDown, CPUBacklog, VhostBackpressure, NICError, BridgeState, NoMemory, Other, Unattributed,
	}
}

// Where tells whether a drop is part of what the port's device counts as dropped.
type Where bool

// Places of drops.
const (
	Within Where = true  // the device counts it too: it comes off the remainder
	Beside Where = false // the device does not count it: qdiscs, tc programs, meters
)

// DropKey names a series of vigia_port_drops_total.
type DropKey struct {
	Port, Tenant, Direction string
	Reason                  Reason
}

type place struct{ port, tenant, direction string }

// Drops is where the sources of one scrape record their drops, so that the
// reasons add up to the port's count. Two sources must not both report a drop:
// qdiscs report what qdiscs drop (kfree_skb's QDISC_*), Vigia's own programs what
// they police (TC_INGRESS, XDP), kfree_skb the rest.
type Drops struct {
	Counts map[DropKey]uint64
	// Marked are the ports that have had drops. Zeros of others say nothing
	// and are not kept, which most ports' are; nil keeps all.
	Marked map[string]bool

	device map[place]uint64
	within map[place]uint64
	last   Reason // that was found to be in the list
}

// NewDrops returns an empty account.
func NewDrops() *Drops {
	return &Drops{Counts: make(map[DropKey]uint64), device: make(map[place]uint64), within: make(map[place]uint64)}
}

// reset empties the account and keeps its memory.
func (d *Drops) reset() {
	clear(d.Counts)
	clear(d.device)
	clear(d.within)
	d.Marked = nil
}

// Add records drops that a source has counted since the port's counters
// started. A reason that is not in the closed list is a mistake in the program.
func (d *Drops) Add(port, tenant, direction string, reason Reason, count uint64, where Where) {
	if d.idle(port, count) {
		return
	}
	if reason != d.last && !known[reason] {
		panic(fmt.Sprintf("drop reason %q is not in the list", reason))
	}
	d.last = reason
	d.Counts[DropKey{port, tenant, direction, reason}] += count
	if where == Within {
		d.within[place{port, tenant, direction}] += count
	}
}

// NoLoss records what the port's device counts as dropped though nobody has lost it.
func (d *Drops) NoLoss(port, tenant, direction string, count uint64) {
	if d.idle(port, count) {
		return
	}
	d.within[place{port, tenant, direction}] += count
}

// Device records what the port's device counts as dropped in a direction.
func (d *Drops) Device(port, tenant, direction string, count uint64) {
	if d.idle(port, count) {
		return
	}
	d.device[place{port, tenant, direction}] += count
}

func (d *Drops) idle(port string, count uint64) bool {
	return count == 0 && d.Marked != nil && !d.Marked[port]
}

// Settle turns what the devices count beyond the known reasons into the
// remainder, Unattributed.
func (d *Drops) Settle(r *Remainders) {
	for p, count := range d.device {
		d.Counts[DropKey{p.port, p.tenant, p.direction, Unattributed}] += r.next(p, count, d.within[p])
	}
	if len(r.last) == len(d.device) { // which are the same then
		return
	}
	for p := range r.last {
		if _, ok := d.device[p]; !ok {
			delete(r.last, p)
		}
	}
}

// Remainders remember the remainders of the scrape before: sources are read one
// after the other, so the difference of two growing counts may fall by a little,
// which a counter must not.
type Remainders struct {
	last map[place]remainder
}

type remainder struct{ device, rest uint64 }

// NewRemainders returns an empty memory.
func NewRemainders() *Remainders { return &Remainders{last: make(map[place]remainder)} }

func (r *Remainders) next(p place, device, within uint64) uint64 {
	now := remainder{device, device - min(device, within)}
	before, known := r.last[p]
	if known && device >= before.device {
		now.rest = max(now.rest, before.rest)
	}
	if !known || now != before {
		r.last[p] = now
	}
	return now.rest
}

var known = func() map[Reason]bool {
	m := make(map[Reason]bool)
	for _, r := range Reasons() {
		m[r] = true
	}
	return m
}()
