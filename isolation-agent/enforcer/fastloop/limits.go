package fastloop

import (
	"errors"
	"time"

	"vigia/internal/bpf/vport"
	vports "vigia/internal/node"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/scheduling"
)

const (
	policerBurst    = 20 * time.Millisecond
	minPolicerBurst = 64 << 10 // a datagram of the largest size
	minStart        = 2 * 1514 // frames
	// outlives is how long a limit outlives the last touch of this process.
	outlives = 2 * time.Second
)

// enforce brings the kernel to a limit: by shaping, which delays what adapts and drops what
// does not, where an uplink's scheduler can, and by policing elsewhere.
func (l *Loop) enforce(limit *control.Limit, index int) error {
	rate := min(uint64(limit.Rate), vport.MaxRate) // on a link that is faster than the policer reckons with
	burst := rate * uint64(policerBurst) / uint64(time.Second)
	// Who gets a notice has just sent too much: a bucket that begins full would add to it.
	pair := vport.Pair{Rate: max(rate, 1), Burst: max(minPolicerBurst, burst), Start: max(minStart, burst), TTL: outlives}
	before := l.classes[limit.LimitKey]
	class, err := l.shape(limit, rate)
	if err != nil && !errors.Is(err, scheduling.ErrNoClass) { // held all the same
		l.logger.Debug("cannot shape a limit, it is policed", "port", limit.Port, "destination", limit.Destination, "err", err)
	}
	pair.Class = class
	unused := before // a class that nothing is sent to any more
	err = l.kernel.SetPair(index, vport.Destination(limit.Destination), pair)
	switch {
	case err != nil:
		unused = pair.Class
	case pair.Class != 0:
		l.classes[limit.LimitKey] = pair.Class
	default:
		delete(l.classes, limit.LimitKey)
	}
	if unused != 0 && before != pair.Class {
		l.unshape(limit.LimitKey, unused)
	}
	return err
}

// shape makes or changes the class of a limit, below that of the port's contract.
func (l *Loop) shape(limit *control.Limit, rate uint64) (uint32, error) {
	port, ok := l.inventory.Lookup(limit.Port)
	if !ok || vports.Hook(&port) != vport.TCX { // before the socket buffer there is no class
		return 0, scheduling.ErrNoClass
	}
	bought := l.contract(port.Tenant, port.ID)
	if bought == nil {
		return 0, scheduling.ErrNoClass
	}
	return l.scheduler.SetLimitClass(l.classes[limit.LimitKey], bought.Owner, rate)
}

func (l *Loop) unshape(key control.LimitKey, class uint32) {
	if err := l.scheduler.RemoveLimitClass(class); err != nil {
		l.logger.Warn("cannot remove the class of a limit", "port", key.Port, "destination", key.Destination, "err", err)
	}
}

// release ends a limit.
func (l *Loop) release(key control.LimitKey) {
	if l.sender.End(key) {
		l.lift(key)
	}
}

// lift removes a limit that has ended from the kernel.
func (l *Loop) lift(key control.LimitKey) {
	if port, ok := l.inventory.Lookup(key.Port); ok {
		if err := l.kernel.RemovePair(port.Index, vport.Destination(key.Destination)); err != nil && !errors.Is(err, vport.ErrNotAttached) {
			l.logger.Warn("cannot remove a limit", "port", key.Port, "destination", key.Destination, "err", err)
		}
	}
	if class, shaped := l.classes[key]; shaped {
		delete(l.classes, key)
		l.unshape(key, class)
	}
}

// giveBack ends what the asking node ordered of a limit.
func (l *Loop) giveBack(now time.Time, o *control.Order) {
	changed, over := l.sender.Release(now, o.Group, o.LimitKey)
	if over {
		l.lift(o.LimitKey)
	}
	l.change(changed)
}

// grow lets limits grow step by step, and ends those that have grown out. Those that share a
// floor share it by what they are offered now.
func (l *Loop) grow(now time.Time) {
	l.change(l.sender.Measure(now, l.offered))
	changed, over := l.sender.Grow(now)
	l.change(changed)
	for _, key := range over {
		l.lift(key)
	}
}

// offered returns how many bytes the kernel has counted at a limit.
func (l *Loop) offered(key control.LimitKey) (bytes uint64, ok bool) {
	port, ok := l.inventory.Lookup(key.Port)
	if !ok {
		return 0, false
	}
	bytes, err := l.kernel.PairOffered(port.Index, vport.Destination(key.Destination))
	if err != nil && !errors.Is(err, vport.ErrNotAttached) {
		l.logger.Debug("cannot read what a limit was offered", "port", key.Port, "destination", key.Destination, "err", err)
	}
	return bytes, err == nil
}

// change brings the kernel to limits that have changed.
func (l *Loop) change(limits []*control.Limit) {
	for _, limit := range limits {
		port, ok := l.inventory.Lookup(limit.Port)
		if !ok {
			l.release(limit.LimitKey)
			continue
		}
		if err := l.enforce(limit, port.Index); err != nil && !errors.Is(err, vport.ErrNotAttached) {
			l.logger.Warn("cannot change a limit", "port", limit.Port, "destination", limit.Destination, "err", err)
		}
	}
}

// Limits lists the limits that receivers asked this node for.
func (l *Loop) Limits() []control.Limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sender.List()
}

// ReleaseAll ends every limit and returns how many there were.
func (l *Loop) ReleaseAll() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.sender.List()
	for i := range list {
		l.release(list[i].LimitKey)
	}
	return len(list)
}
