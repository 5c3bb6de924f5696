package fastloop

import (
	"context"
	"errors"
	"math"
	"time"

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
	p.heardAt = now
	l.events.Notice(m.Kind, notice.Received)
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

// obey puts a limit on a source of this node, if the asking node may have it so.
func (l *Loop) obey(now time.Time, from *node, m *notice.Notice) {
	answer := notice.Notice{Kind: notice.Nack, Nonce: m.Seq, Source: m.Source, Destination: m.Destination, Tenant: m.Tenant}
	order, index, reason := l.authorise(from, m)
	if reason != notice.NoReason {
		answer.Reason = reason
		l.events.Notice(m.Kind, notice.Unauthorised)
		l.send(from, &answer)
		return
	}
	if m.Kind == notice.Release {
		l.release(order.LimitKey)
		return
	}
	limit := l.sender.Obey(now, order)
	if limit.Clamped {
		l.events.Notice(m.Kind, notice.Clamped)
	}
	if err := l.enforce(now, limit, index); err != nil {
		l.logger.Error("cannot limit a source", "port", limit.Port, "destination", limit.Destination, "err", err)
		l.release(limit.LimitKey)
		answer.Reason = notice.Failed
		l.send(from, &answer)
		return
	}
	l.events.Applied(time.Since(now))
	l.logger.Debug("source limited", "port", limit.Port, "destination", limit.Destination, "bytes_per_second", uint64(limit.Rate), "floor", uint64(limit.Floor))
	answer.Kind, answer.Rate = notice.Ack, uint64(limit.Rate)
	if limit.AtFloor() {
		answer.Flags = notice.AtFloor
	}
	l.send(from, &answer)
}

// authorise checks a notice against the inventory: the source must be a port of
// this node, and the destination a port of the asking node of the same tenant.
func (l *Loop) authorise(from *node, m *notice.Notice) (control.Order, int, notice.Reason) {
	tenant := l.directory.tenants[m.Tenant]
	g := l.directory.guest(tenant, m.Source)
	if g == nil || g.Node != l.directory.self {
		return control.Order{}, 0, notice.NotHere
	}
	port, ok := l.inventory.Lookup(g.Port)
	if !ok || port.Tenant != tenant {
		return control.Order{}, 0, notice.NotHere
	}
	bought := l.contract(tenant, port.ID)
	if bought == nil {
		return control.Order{}, 0, notice.NotHere // its floor is unknown
	}
	destination := control.Address(m.Destination)
	everything := destination == control.AllDestinations
	if (everything && !l.directory.hosts(from.name, tenant)) || (!everything && !l.directory.at(from.name, tenant, m.Destination)) {
		return control.Order{}, 0, notice.NotYours
	}
	// The guarantee of the pair: the smaller of both ends' guarantees, divided
	// among as many senders as the receiver counts, but no more than there are.
	senders := min(max(1, int(m.Sources)), max(1, l.directory.ports[tenant]-1))
	guarantee := float64(bought.Send.GuaranteeBytesPerSecond)
	floor := math.Min(guarantee, float64(bought.Receive.GuaranteeBytesPerSecond)/float64(senders))
	if everything {
		floor = guarantee
	}
	rate := l.linkRate()
	order := control.Order{
		LimitKey: control.LimitKey{Port: port.ID, Destination: destination}, Advised: float64(m.Rate), Measured: float64(m.Measured),
		Floor: floor, Ceiling: math.Min(float64(bought.Send.CeilingBytesPerSecond), rate), Link: rate, Severity: m.Severity,
	}
	if everything && m.Flags&notice.Plain != 0 {
		order.Advised, order.Measured = 0, 0 // half of what it has, whatever arrives
	}
	return order, port.Index, notice.NoReason
}

// answered takes an Ack or Nack in.
func (l *Loop) answered(now time.Time, n *node, m *notice.Notice) {
	advice := l.advices.Get(control.AdviceKey{Node: n.name, From: m.Source, To: m.Destination})
	if advice == nil {
		return
	}
	if took, latest := advice.RoundTrip(now, m.Nonce); latest {
		l.events.Round(took)
	}
	if m.Kind == notice.Nack {
		advice.Refused()
		return
	}
	advice.Acknowledged(now, float64(m.Rate), m.Flags&notice.AtFloor != 0)
}
