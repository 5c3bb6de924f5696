package fastloop

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"time"

	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/notice"
)

const (
	// lease is how long a notice counts without another, as it says itself.
	lease = 2 * time.Second
	// challengeInterval is the least time between challenges to one peer.
	challengeInterval = 100 * time.Millisecond
	// mostOrigins is how many nodes get a notice of a source that may be on any of them.
	mostOrigins = 16
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

// notifySource sends a notice to the node that a source is on, or to those that it may be on.
func (l *Loop) notifySource(now time.Time, c *control.Congestion, share *control.Share, sources int) {
	origins := l.directory.origins(l.directory.of(c.Config.Tenant), &share.Source)
	if len(origins) == 0 {
		l.events.Notice(notice.Congest, notice.UnknownSource)
		return
	}
	if len(origins) > mostOrigins { // others have their turn with the next notices
		turn := int(l.seq % uint64(len(origins)))
		origins = slices.Concat(origins[turn:], origins[:turn])[:mostOrigins]
	}
	for _, n := range origins {
		l.notifyOrigin(now, n, c, share, sources)
	}
}

// widest returns the narrowest key of a source on a node whose advice may still have effect,
// and that advice; nil if it is not limited any more.
func (l *Loop) widest(now time.Time, n *node, c *control.Congestion, share *control.Share) (control.AdviceKey, *control.Advice) {
	key := control.AdviceKey{Node: n.name, Tenant: c.Config.Tenant, From: share.Source.From, To: share.Source.Destination}
	if l.config.Variant == control.Paper {
		key.To = control.AllDestinations
	}
	for {
		advice := l.advices.Begin(now, key, c.Renewal)
		if advice == nil {
			return key, nil
		}
		wider, ok := key.Wider()
		if !ok || !advice.Widened(now, share.Rate) {
			return key, advice
		}
		key = wider
	}
}

func (l *Loop) notifyOrigin(now time.Time, n *node, c *control.Congestion, share *control.Share, sources int) {
	key, advice := l.widest(now, n, c, share)
	if advice == nil {
		return // it is not limited any more
	}
	rate, due := advice.Next(now, l.config.Variant, c, share, sources)
	if !due {
		return
	}
	if !c.Renewal {
		_, narrow := key.Wider()
		p := l.peer(n.name)
		l.setUnresponsive(n.name, p, advice.Silent(now, p.heardAt) || (!narrow && l.knows(share) && advice.Idle(now, share.Rate)))
		advice.Congested(now)
	}
	advice.Sent(now, rate, l.seq+1)
	m := notice.Notice{
		Kind: notice.Congest, Source: key.From, Destination: key.To, Tenant: notice.ID(c.Config.Tenant),
		Measured: uint64(share.Rate), Dropped: uint64(c.Dropped * share.Share), Rate: uint64(rate), Lease: lease,
		Severity: advice.Severity(), Sources: uint16(min(sources, 1<<16-1)),
	}
	if l.config.Variant == control.Paper {
		m.Flags = notice.Plain
	}
	l.send(n, &m)
	since := now // a renewal is not because of a congestion
	if !c.Renewal {
		since = c.Since
	}
	l.logger.Debug("notice sent", "node", n.name, "tenant", c.Config.Tenant, "source", key.From, "destination", key.To, "measured", m.Measured, "dropped", m.Dropped, "advised", m.Rate, "severity", m.Severity, "renewal", c.Renewal, "congested_seconds", now.Sub(since).Seconds())
	if c.First && !c.Renewal {
		l.events.Detected(now.Sub(since))
	}
}

// knows tells whether it is certain which node a source is on: outside of tunnels whoever
// sends may have written its address.
func (l *Loop) knows(share *control.Share) bool { return share.Source.Host != (control.Address{}) }

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
