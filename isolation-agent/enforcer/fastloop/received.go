package fastloop

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"vigia/internal/bpf/vport"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
)

// receive takes notices in until ctx ends and the socket is closed.
func (l *Loop) receive(ctx context.Context) {
	buf := make([]byte, notice.Size+1)
	for ctx.Err() == nil {
		n, _, err := l.socket.ReadFromUDPAddrPort(buf)
		if err != nil {
			if ctx.Err() == nil {
				l.logger.Warn("cannot receive notices", "err", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(control.Tick):
			}
			continue
		}
		l.mu.Lock()
		l.received(time.Now(), buf[:n])
		l.mu.Unlock()
	}
}

// received acts on one datagram. Nothing in it is believed before it has passed.
func (l *Loop) received(now time.Time, raw []byte) {
	m, err := notice.Parse(raw, l.directory.key)
	if err != nil {
		l.events.Notice(notice.Any, notice.OutcomeOf(err))
		return
	}
	if m.To != l.directory.selfID {
		l.events.Notice(m.Kind, notice.Misdirected)
		return
	}
	from := l.directory.byID[m.From]
	p := l.peer(from.name)
	if err := p.Accept(&m); err != nil {
		l.events.Notice(m.Kind, notice.OutcomeOf(err))
		if errors.Is(err, notice.ErrUnproven) {
			l.challenge(now, from, p)
		}
		return
	}
	if m.Kind != notice.Hello { // which anybody may have kept and sent again
		p.heardAt = now
	}
	l.events.Notice(m.Kind, notice.Received)
	switch m.Kind {
	case notice.Hello:
		l.send(from, &notice.Notice{Kind: notice.HelloAck, Nonce: m.Nonce})
		if !p.Known() {
			l.challenge(now, from, p)
		}
	case notice.HelloAck: // it lives, and has forgotten what it was asked for
		l.setUnresponsive(from.name, p, false)
	case notice.Congest, notice.Release:
		l.obey(now, from, &m)
	case notice.Ack, notice.Nack:
		l.answered(now, from, &m)
		if m.Kind == notice.Ack {
			l.setUnresponsive(from.name, p, false)
		}
	}
}

// obey puts limits on the sources of this node that a notice is about, if the asking node
// may have it so. The answer says what is in force for all of them together.
func (l *Loop) obey(now time.Time, from *node, m *notice.Notice) {
	answer := notice.Notice{Kind: notice.Nack, Nonce: m.Seq, Source: m.Source, Destination: m.Destination, Tenant: m.Tenant}
	list, reason := l.authorise(from, m)
	if reason != notice.NoReason {
		answer.Reason = reason
		l.events.Notice(m.Kind, notice.Unauthorised)
		l.send(from, &answer)
		return
	}
	if m.Kind == notice.Release {
		for i := range list {
			l.giveBack(now, &list[i])
		}
		return
	}
	l.limit(now, list)
	answer.Kind, answer.Flags = notice.Ack, notice.AtFloor
	for i := range list {
		limit := l.sender.Get(list[i].LimitKey)
		if limit == nil { // the kernel does not take it
			answer.Kind, answer.Reason, answer.Flags, answer.Rate = notice.Nack, notice.Failed, 0, 0
			l.send(from, &answer)
			return
		}
		answer.Rate += uint64(limit.Rate)
		if !limit.AtFloor() {
			answer.Flags = 0
		}
	}
	l.events.Applied(time.Since(now))
	l.send(from, &answer)
}

// limit obeys the orders of a notice. Other limits may change, too: they share a floor.
func (l *Loop) limit(now time.Time, orders []control.Order) {
	for i, limit := range l.sender.Obey(now, orders...) {
		if i < len(orders) && limit.Clamped {
			l.events.Notice(notice.Congest, notice.Clamped)
		}
		port, ok := l.inventory.Lookup(limit.Port)
		if !ok {
			l.release(limit.LimitKey)
			continue
		}
		if err := l.enforce(limit, port.Index); err != nil {
			level := slog.LevelError
			if errors.Is(err, vport.ErrTooManyPairs) { // its tenant has it so; who asked asks for the whole port next
				level = slog.LevelDebug
			}
			l.logger.Log(context.Background(), level, "cannot limit a source", "port", limit.Port, "destination", limit.Destination, "err", err)
			l.release(limit.LimitKey)
			continue
		}
		l.logger.Debug("source limited", "port", limit.Port, "destination", limit.Destination, "bytes_per_second", uint64(limit.Rate), "floor", uint64(limit.Floor))
	}
	for i := range orders {
		if l.sender.Get(orders[i].LimitKey) == nil {
			continue // the kernel does not take it, and the others are better than none
		}
		for _, key := range l.sender.Replaced(now, &orders[i]) {
			l.giveBack(now, &control.Order{LimitKey: key, Group: orders[i].Group})
		}
	}
}

// authorise checks a notice against the inventory: the asking node must have a port of
// the source's tenant, and the source must be on this node: a port, or all of the tenant's
// when the asking node cannot tell them apart.
func (l *Loop) authorise(from *node, m *notice.Notice) ([]control.Order, notice.Reason) {
	t := l.directory.ofID(m.Tenant)
	if !t.hosts(from.name) {
		return nil, notice.NotYours
	}
	guests := t.nodes[l.directory.self]
	if m.Source != ([6]byte{}) {
		g := t.guests[m.Source]
		if g == nil || g.Node != l.directory.self {
			return nil, notice.NotHere
		}
		guests = []*guest{g}
	}
	var list []control.Order
	for _, g := range guests {
		o, ok := l.order(from, m, t, g)
		if ok && !slices.ContainsFunc(list, func(other control.Order) bool { return other.LimitKey == o.LimitKey }) {
			list = append(list, o) // a port may have several MAC addresses
		}
	}
	if len(list) == 0 {
		return nil, notice.NotHere
	}
	return list, notice.NoReason
}

// order returns what a notice means for a port. A destination that the inventory does not
// have on the asking node is a second address, or one that a tenant made up: the whole port
// is held, and never below what it bought.
func (l *Loop) order(from *node, m *notice.Notice, t *tenant, g *guest) (control.Order, bool) {
	port, ok := l.inventory.Lookup(g.Port)
	if !ok || port.Tenant != t.name {
		return control.Order{}, false
	}
	bought := l.contract(t.name, port.ID)
	if bought == nil { // its floor is unknown
		return control.Order{}, false
	}
	// The guarantee of a pair is the smaller of both ends' guarantees. All ports and pairs of the
	// contract share it, for each asking node, by what they are seen to send here: not by the senders
	// that the asking node says there are, which nobody here could check.
	guarantee := float64(bought.Send.GuaranteeBytesPerSecond)
	destination, floor := control.Address(m.Destination), guarantee
	if m.Source != ([6]byte{}) && t.at(from.name, destination) {
		floor = math.Min(guarantee, float64(bought.Receive.GuaranteeBytesPerSecond))
	} else {
		destination = control.AllDestinations
	}
	rate := l.linkRate()
	order := control.Order{
		LimitKey: control.LimitKey{Port: port.ID, Destination: destination}, Group: control.Group{Contract: bought.String(), Asker: from.name}, Advised: float64(m.Rate), Measured: float64(m.Measured),
		Floor: floor, Ceiling: math.Min(float64(bought.Send.CeilingBytesPerSecond), rate), Link: rate, Severity: m.Severity,
	}
	if destination == control.AllDestinations && m.Flags&notice.Plain != 0 {
		order.Advised, order.Measured = 0, 0 // half of what it has, whatever arrives
	}
	return order, true
}

// answered takes an Ack or Nack in.
func (l *Loop) answered(now time.Time, n *node, m *notice.Notice) {
	key := control.AdviceKey{Node: n.name, Tenant: l.directory.ofID(m.Tenant).name, From: m.Source, To: m.Destination}
	advice := l.advices.Get(key)
	if advice == nil {
		return
	}
	if took, latest := advice.RoundTrip(now, m.Nonce); latest {
		l.events.Round(took)
	}
	if m.Kind == notice.Nack {
		l.events.Notice(notice.Congest, notice.Refused)
		l.logger.Debug("notice refused", "node", n.name, "tenant", key.Tenant, "source", key.From, "destination", key.To, "reason", m.Reason)
		advice.Refused(now)
		return
	}
	advice.Acknowledged(now, float64(m.Rate), m.Flags&notice.AtFloor != 0)
}
