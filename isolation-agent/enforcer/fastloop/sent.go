package fastloop

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
)

const (
	// lease is how long a notice counts without another, as it says itself.
	lease = 2 * time.Second
	// challengeInterval is the least time between challenges to one peer.
	challengeInterval = 100 * time.Millisecond
)

// notify sends notices to the enforcers of a congested class's sources.
func (l *Loop) notify(now time.Time, s *linkState, c *control.Congestion) {
	top, n := l.sources.Top(s.ifb, c.Class)
	if l.config.Variant == control.Paper && len(top) > 1 {
		top = top[:1] // the one that most likely sent the last packet that was dropped
	}
	for i := range top {
		l.notifySource(now, c, &top[i], n)
	}
}

func (l *Loop) notifySource(now time.Time, c *control.Congestion, share *control.Share, sources int) {
	origin := l.directory.origin(c.Config.Tenant, &share.Source)
	if origin == nil || origin.name == l.directory.self {
		l.events.Notice(notice.Congest, notice.UnknownSource)
		return
	}
	destination := share.Source.Destination
	if l.config.Variant == control.Paper {
		destination = control.AllDestinations
	}
	advice := l.advices.Begin(now, control.AdviceKey{Node: origin.name, From: share.Source.From, To: destination}, c.Renewal)
	if advice == nil {
		return // it is not limited any more
	}
	rate, due := advice.Next(now, l.config.Variant, c, share, sources)
	if !due {
		return
	}
	if !c.Renewal {
		p := l.peer(origin.name)
		l.setUnresponsive(origin.name, p, advice.Unresponsive(now, p.heardAt, share.Rate))
		advice.Congested(now)
	}
	advice.Sent(now, rate, l.seq+1)
	m := notice.Notice{
		Kind: notice.Congest, Source: share.Source.From, Destination: destination, Tenant: notice.ID(c.Config.Tenant),
		Measured: uint64(share.Rate), Dropped: uint64(c.Dropped * share.Share), Rate: uint64(rate), Lease: lease,
		Severity: advice.Severity(), Sources: uint16(min(sources, 1<<16-1)),
	}
	if l.config.Variant == control.Paper {
		m.Flags = notice.Plain
	}
	l.send(origin, &m)
	l.logger.Debug("notice sent", "node", origin.name, "tenant", c.Config.Tenant, "source", share.Source.From, "measured", m.Measured, "dropped", m.Dropped, "advised", m.Rate, "severity", m.Severity, "renewal", c.Renewal, "first_drop_seconds", now.Sub(c.Since).Seconds())
	if c.First && !c.Renewal {
		l.events.Detected(now.Sub(c.Since))
	}
}

// challenge greets a process that is not known, with a nonce that it must answer.
func (l *Loop) challenge(now time.Time, n *node, p *peer) {
	if now.Sub(p.challengedAt) < challengeInterval {
		return
	}
	p.challengedAt = now
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return
	}
	nonce := binary.NativeEndian.Uint64(random[:]) | 1
	p.Challenge(nonce)
	l.send(n, &notice.Notice{Kind: notice.Hello, Nonce: nonce})
}

// send completes, signs and sends a notice. A lost one is made good by the next.
func (l *Loop) send(n *node, m *notice.Notice) {
	l.seq++
	m.From, m.To, m.Boot, m.Seq, m.KeyID = l.directory.selfID, n.id, l.boot, l.seq, l.directory.sendKey
	raw := m.Append(make([]byte, 0, notice.Size), n.keys[m.KeyID])
	if _, err := l.socket.WriteToUDPAddrPort(raw, n.address); err != nil {
		l.events.Notice(m.Kind, notice.SendError)
		return
	}
	l.events.Notice(m.Kind, notice.Sent)
}
