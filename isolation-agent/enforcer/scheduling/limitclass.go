package scheduling

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/tc"
	"vigia/isolation-agent/enforcer/contract"
)

// limitClass is a class below a contract's, on every uplink, that a limit shapes by.
type limitClass struct {
	owner contract.Owner
	rate  uint64       // bytes per second
	on    map[int]bool // devices that have its queue
	ended bool         // nothing is sent to it any more; it goes when what waits in it has left
}

// A limit's queue has room for four of the largest datagrams, so that one that travels in fragments is delayed whole and
// not cut, and for TCP at its rate, as that of a contract: who is told to send less has on its way what it sent before.
const limitQueue = 4 * 64 << 10

// drains is how long a class outlives its limit: what waits in it was not lost while it was limited, and leaves as
// fast as the link lets it.
const drains = 100 * time.Millisecond

// ErrNoClass means that a limit cannot be shaped here: the node has no links, the
// contract none of its classes, or every class of limits is taken.
var ErrNoClass = errors.New("no scheduler of an uplink could shape it")

// limitLeaf returns the class of a limit on one device.
func limitLeaf(dev device, l *Link, parent, minor uint16, rate uint64) leaf {
	b := contract.Bandwidth{GuaranteeBytesPerSecond: ownShare(rate), CeilingBytesPerSecond: min(rate, l.Limit())}
	return newLeaf(class(dev.index, tc.MakeHandle(Major, parent), minor, b, frame), max(limitQueue, queueBytes(b.CeilingBytesPerSecond), 2*dev.largest))
}

// SetLimitClass makes a class on every uplink, below the class of owner's contract,
// that holds what is sent to it to a rate, or changes the given one; class is 0 for a
// new one. It returns the class as major:minor: another one if the given one is below
// another contract's. Nobody else gets a class until it is given back to
// RemoveLimitClass. On error there is no new class, and the given one stays.
func (r *Reconciler) SetLimitClass(class uint32, owner contract.Owner, bytesPerSecond uint64) (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	desired := r.Desired()
	if _, known := desired.minors[owner]; !known || len(desired.Links) == 0 {
		return 0, ErrNoClass
	}
	minor := tc.Handle(class).Minor()
	c := r.limits[minor]
	if class != 0 && (c == nil || c.ended) {
		return 0, fmt.Errorf("class %s belongs to no limit", tc.Handle(class))
	}
	isNew := c == nil || c.owner != owner
	if isNew {
		var ok bool
		if minor, ok = r.ids.take(); !ok {
			return 0, ErrNoClass
		}
		c = &limitClass{owner: owner, on: make(map[int]bool, len(desired.Links))}
		r.limits[minor] = c
	}
	c.rate = bytesPerSecond
	if err := r.applyLimitClass(desired, minor, c); err != nil {
		err = fmt.Errorf("shape %s: %w", owner, err)
		if isNew {
			err = errors.Join(err, r.removeLimitClass(minor))
		}
		return 0, err
	}
	return uint32(tc.MakeHandle(Major, minor)), nil
}

func (r *Reconciler) applyLimitClass(desired *Desired, minor uint16, c *limitClass) error {
	for i := range desired.Links {
		index, largest, err := r.conn.Uplink(desired.Links[i].Device)
		if err != nil {
			return err
		}
		l := limitLeaf(device{index, uint64(largest)}, &desired.Links[i], desired.minors[c.owner], minor, c.rate)
		if err := r.conn.ReplaceClass(l.class); err != nil {
			return err
		}
		if c.on[index] {
			continue
		}
		c.on[index] = true
		if err := r.conn.ReplaceQdisc(l.queue); err != nil {
			return err
		}
	}
	return nil
}

// RemoveLimitClass takes back the classes of a limit, to which nothing is sent any more: they go when what
// waits in them has had time to leave, and their number is free then. One that is not there changes nothing.
func (r *Reconciler) RemoveLimitClass(class uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	minor := tc.Handle(class).Minor()
	c := r.limits[minor]
	if c == nil || c.ended {
		return nil
	}
	desired := r.Desired()
	if _, known := desired.minors[c.owner]; !known {
		return r.removeLimitClass(minor)
	}
	c.ended = true
	for i := range desired.Links {
		c.rate = max(c.rate, desired.Links[i].Limit())
	}
	if err := r.applyLimitClass(desired, minor, c); err != nil { // it cannot drain
		return errors.Join(err, r.removeLimitClass(minor))
	}
	time.AfterFunc(drains, func() { r.drained(minor, c) })
	return nil
}

// drained removes a class that has had time to drain.
func (r *Reconciler) drained(minor uint16, c *limitClass) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limits[minor] != c {
		return
	}
	if err := r.removeLimitClass(minor); err != nil {
		r.logger.Warn("cannot remove the class of a limit that is over", "class", tc.MakeHandle(Major, minor), "err", err)
	}
}

func (r *Reconciler) removeLimitClass(minor uint16) error {
	c := r.limits[minor]
	if c == nil {
		return nil
	}
	delete(r.limits, minor)
	r.ids.release(minor)
	var errs []error
	for device := range c.on {
		if err := r.conn.DeleteClass(device, tc.MakeHandle(Major, minor)); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: the qdisc is gone
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
