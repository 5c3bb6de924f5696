package fastloop

import (
	"context"
	"errors"
	"math"
	"time"

	"vigia/internal/bpf/vport"
	"vigia/isolation-agent/enforcer/contracts"
	"vigia/isolation-agent/enforcer/notice"
)

// receive takes notices in until the socket is closed.
func (l *Loop) receive(ctx context.Context) {
	buf := make([]byte, notice.Size+1)
	for ctx.Err() == nil {
		n, _, err := l.socket.ReadFromUDPAddrPort(buf)
		if err != nil {
			if ctx.Err() == nil {
				l.logger.Warn("receive notices", "err", err)
				time.Sleep(Tick)
			}
			continue
		}
		l.mu.Lock()
		l.hear(time.Now(), buf[:n])
		l.mu.Unlock()
	}
}

// hear acts on one datagram. Nothing in it is believed before it has passed.
func (l *Loop) hear(now time.Time, raw []byte) {
	m, err := notice.Parse(raw, l.directory.key)
	if err != nil {
		l.events.Notice("any", refusal(err))
		return
	}
	if m.To != l.directory.selfID {
		l.events.Notice(m.Kind.String(), refusal(notice.ErrNotForUs))
		return
	}
	from := l.directory.byID[m.From]
	p := l.peer(from.name)
	if err := p.Accept(&m); err != nil {
		l.events.Notice(m.Kind.String(), refusal(err))
		if errors.Is(err, notice.ErrUnproven) {
			l.challenge(now, from, p)
		}
		return
	}
	p.heard = now
	l.events.Notice(m.Kind.String(), "received")
	switch m.Kind {
	case notice.Hello:
		l.send(from, &notice.Notice{Kind: notice.HelloAck, Nonce: m.Nonce})
		if !p.Known() {
			l.challenge(now, from, p)
		}
	case notice.Congest, notice.Release:
		l.obey(now, from, &m)
	case notice.Ack, notice.Nack:
		l.answered(now, from, &m)
		if m.Kind == notice.Ack {
			l.setUnresponsive(from.name, p, false)
		}
	}
}

func refusal(err error) string {
	for _, r := range []struct {
		err  error
		name string
	}{
		{notice.ErrMalformed, "malformed"},
		{notice.ErrForged, "hmac"},
		{notice.ErrReplayed, "replay"},
		{notice.ErrUnproven, "stale"},
		{notice.ErrNotForUs, "misdirected"},
	} {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	return "failed"
}

// obey puts a limit on a source of this node, if the asking node may have it so.
func (l *Loop) obey(now time.Time, from *node, m *notice.Notice) {
	answer := notice.Notice{Kind: notice.Nack, Nonce: m.Seq, Source: m.Source, Destination: m.Destination, Tenant: m.Tenant}
	order, index, reason := l.authorise(from, m)
	if reason != notice.NoReason {
		answer.Reason = reason
		l.events.Notice(m.Kind.String(), "authz")
		l.send(from, &answer)
		return
	}
	if m.Kind == notice.Release {
		l.release(order.Key)
		return
	}
	h := l.sender.Hold(now, order)
	if h.Clamped {
		l.events.Notice(m.Kind.String(), "floor")
	}
	if err := l.enforce(now, h, index); err != nil {
		l.logger.Error("hold a source back", "port", h.Port, "err", err)
		l.sender.Drop(h.Key)
		answer.Reason = notice.Failed
		l.send(from, &answer)
		return
	}
	l.events.Applied(time.Since(now))
	l.logger.Debug("source held", "port", h.Port, "destination", h.Destination, "bytes_per_second", uint64(h.Rate), "floor", uint64(h.Floor))
	answer.Kind, answer.Rate = notice.Ack, uint64(h.Rate)
	if h.Rate <= h.Floor*1.01 {
		answer.Flags = notice.AtFloor
	}
	l.send(from, &answer)
}

// authorise holds a notice against the inventory: the source must be a port of
// this node, and the destination a port of the asking node of the same tenant.
func (l *Loop) authorise(from *node, m *notice.Notice) (Order, int, notice.Reason) {
	tenant := l.directory.tenants[m.Tenant]
	g := l.directory.guest(tenant, m.Source)
	if g == nil || g.Node != l.directory.self {
		return Order{}, 0, notice.NotHere
	}
	port, ok := l.inventory.Lookup(g.Port)
	if !ok || port.Tenant != tenant {
		return Order{}, 0, notice.NotHere
	}
	contract, ok := l.contract(tenant, port.ID)
	if !ok {
		return Order{}, 0, notice.NotHere // its floor is unknown
	}
	everything := m.Destination == vport.Everything
	if (everything && !l.hosts(from.name, tenant)) || (!everything && !l.directory.at(from.name, tenant, m.Destination)) {
		return Order{}, 0, notice.NotYours
	}
	// The guarantee of the pair: the smaller of both ends' guarantees, divided
	// among as many senders as the receiver counts, but no more than there are.
	senders := min(max(1, int(m.Sources)), max(1, l.directory.ports[tenant]-1))
	floor := math.Min(float64(contract.Send.Guarantee), float64(contract.Receive.Guarantee)/float64(senders))
	if everything {
		floor = float64(contract.Send.Guarantee)
	}
	ceiling := math.Min(float64(contract.Send.Ceiling), l.linkRate())
	order := Order{
		Key: Key{port.ID, m.Destination}, Advised: float64(m.Rate), Measured: float64(m.Measured), Floor: floor, Ceiling: ceiling,
		Link: l.linkRate(), Severity: m.Severity, Lease: m.Lease,
	}
	if everything && m.Flags&notice.Plain != 0 {
		order.Advised, order.Measured = 0, 0 // half of what it has, whatever arrives
	}
	return order, port.Index, notice.NoReason
}

// hosts tells whether a node has a port of the tenant.
func (l *Loop) hosts(node, tenant string) bool {
	for _, list := range l.directory.guests {
		for _, g := range list {
			if g.Node == node && g.Tenant == tenant {
				return true
			}
		}
	}
	return false
}

const (
	policerBurst    = 20 * time.Millisecond
	minPolicerBurst = 64 << 10 // a datagram of the largest size
	minStart        = 2 * 1514 // frames
	// keep is how long a limit outlives the last touch of this process.
	keep = DefaultLease
)

// enforce brings the kernel to a limit: at once by policing, and from two seconds
// on by shaping, where an uplink's scheduler can.
func (l *Loop) enforce(now time.Time, h *Held, index int) error {
	rate := uint64(h.Rate)
	burst := rate * uint64(policerBurst) / uint64(time.Second)
	// Who is told has just sent too much: a bucket that begins full would add to it.
	pair := vport.Pair{Rate: max(rate, 1), Burst: max(minPolicerBurst, burst), Start: max(minStart, burst), TTL: keep}
	if h.Shaped(now) {
		class, err := l.shape(h, rate)
		if err != nil && !errors.Is(err, contracts.ErrNoShape) {
			return err
		}
		pair.Class = class
	}
	return l.kernel.SetPair(index, h.Destination, pair)
}

// shape makes or changes the class of a limit.
func (l *Loop) shape(h *Held, rate uint64) (uint32, error) {
	port, ok := l.inventory.Lookup(h.Port)
	if !ok || port.Hook() != vport.TCX { // before the socket buffer there is no class
		return 0, contracts.ErrNoShape
	}
	id, known := l.shapes[h.Key]
	if !known {
		if id, ok = l.freeShape(); !ok {
			return 0, contracts.ErrNoShape
		}
	}
	contract, known := l.contract(port.Tenant, port.ID)
	if !known {
		return 0, contracts.ErrNoShape
	}
	class, err := l.keeper.Shape(contract.Name, id, rate)
	if err != nil {
		return 0, err
	}
	l.shapes[h.Key] = id
	return class, nil
}

// shapeIDs are the classes of the fast loop; those above belong to slower limits.
const shapeIDs = 0x2000

func (l *Loop) freeShape() (uint16, bool) {
	taken := make(map[uint16]bool, len(l.shapes))
	for _, id := range l.shapes {
		taken[id] = true
	}
	for id := range uint16(shapeIDs) {
		if !taken[id] {
			return id, true
		}
	}
	return 0, false
}

// release ends a limit.
func (l *Loop) release(key Key) {
	if !l.sender.Drop(key) {
		return
	}
	l.lift(key)
}

func (l *Loop) lift(key Key) {
	if port, ok := l.inventory.Lookup(key.Port); ok {
		if err := l.kernel.RemovePair(port.Index, key.Destination); err != nil && !errors.Is(err, vport.ErrNotAttached) {
			l.logger.Warn("let go of a source", "port", key.Port, "err", err)
		}
	}
	if id, ok := l.shapes[key]; ok {
		delete(l.shapes, key)
		if err := l.keeper.Unshape(id); err != nil {
			l.logger.Warn("let go of a source", "port", key.Port, "err", err)
		}
	}
}

// grow lets go of limits step by step.
func (l *Loop) grow(now time.Time) {
	changed, over := l.sender.Grow(now)
	for _, h := range changed {
		port, ok := l.inventory.Lookup(h.Port)
		if !ok {
			l.sender.Drop(h.Key)
			l.lift(h.Key)
			continue
		}
		if err := l.enforce(now, h, port.Index); err != nil && !errors.Is(err, vport.ErrNotAttached) {
			l.logger.Warn("relax a limit", "port", h.Port, "err", err)
		}
	}
	for _, key := range over {
		l.lift(key)
	}
}

// Held lists the limits that receivers asked this node for.
func (l *Loop) Held() []Held {
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
		l.release(list[i].Key)
	}
	return len(list)
}
