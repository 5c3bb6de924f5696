package scheduling

import (
	"vigia/internal/tc"
	"vigia/isolation-agent/enforcer/contract"
)

// RootClass is the class that holds a link's whole limit.
const RootClass = tc.Handle(uint32(Major)<<16 | rootMinor)

// Usage is what a contract's classes on one device have carried and hold.
type Usage struct {
	Owner     contract.Owner
	Guarantee uint64 // bytes per second
	Ceiling   uint64 // bytes per second
	Bytes     uint64 // that left, so far
	Drops     uint32 // packets that found the queue full, so far
	Backlog   uint32 // bytes that wait now
}

// Usages returns the contracts' parts of a device's classes, as read from the kernel: of an
// uplink what tenants send, of its IFB device (received) what they receive. What waits in the
// class of a limit waits for the limit, and is not in it.
func (d *Desired) Usages(classes []tc.Class, received bool, into []Usage) []Usage {
	at := make(map[uint16]*tc.Class, len(classes))
	for i := range classes {
		if classes[i].Handle.Major() == Major {
			at[classes[i].Handle.Minor()] = &classes[i]
		}
	}
	list := d.Contracts.All()
	for i := range list {
		minor := d.minors[list[i].Owner]
		leaf := at[minor+leafOffset]
		whole := at[minor]
		if received {
			whole = leaf
		}
		if leaf == nil || whole == nil {
			continue // not made yet
		}
		into = append(into, Usage{
			Owner: list[i].Owner, Guarantee: whole.Rate, Ceiling: whole.Ceil, Bytes: whole.Stats.Bytes,
			Drops: leaf.Stats.Drops, Backlog: leaf.Stats.Backlog,
		})
	}
	return into
}
