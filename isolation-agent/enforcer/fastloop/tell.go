package fastloop

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"time"

	"vigia/internal/bpf/classify"
	"vigia/isolation-agent/enforcer/notice"
)

const (
	// Without an answer for so long, or without effect after so many rounds, a
	// peer is unresponsive, and somebody else must act.
	answerTimeout = 300 * time.Millisecond
	roundsAllowed = 3
	// floorHold is how long nothing is repeated to a source that has confirmed to
	// be at its floor.
	floorHold = 500 * time.Millisecond
	// again within so long of the last notice, a congestion is the same one.
	sameEpisode = time.Second
	// A rate that has changed by less than this factor is repeated only so often.
	changed        = 1.03
	repeatInterval = 250 * time.Millisecond
)

// tell tells the sources of a congested class.
func (l *Loop) tell(now time.Time, s *linkState, c *Congestion) {
	top, n := l.sources.Top(s.ifb, c.Class)
	if l.config.Variant == Paper && len(top) > 1 {
		top = top[:1] // the one that most likely sent the last packet that was dropped
	}
	for i := range top {
		l.tellSource(now, c, &top[i], n)
	}
}

func (l *Loop) tellSource(now time.Time, c *Congestion, share *Share, sources int) {
	origin := l.directory.origin(c.Config.Tenant, &share.Source)
	if origin == nil || origin.name == l.directory.self {
		l.events.Notice("congest", "unknown_source")
		return
	}
	destination := share.Source.Destination
	if l.config.Variant == Paper {
		destination = classify.Address{}
	}
	key := outKey{origin.name, share.Source.From, destination}
	o := l.out[key]
	if c.Renewal && (o == nil || now.Sub(o.sent) > forgetHeld) {
		return // it is not held
	}
	if o == nil {
		o = &outgoing{tenant: c.Config.Tenant, severity: 1}
		l.out[key] = o
	}
	floor := float64(c.Config.Guarantee) / float64(max(sources, 1))
	advised := max(floor, c.Rate*share.Share)
	if l.config.Variant == Paper {
		advised = 0
	} else if o.atFloor && now.Sub(o.ackedAt) < floorHold && advised >= o.ackedRate*0.99 && !(c.Renewal && advised > o.ackedRate*changed) {
		return // it does what it can
	} else if c.Renewal && now.Sub(o.sent) < repeatInterval && advised < o.advised*changed && advised > o.advised/changed {
		return // it knows
	}
	if !c.Renewal {
		l.judgePeer(now, origin, o, share.Rate)
		o.count(now)
	}
	o.advised, o.sent, o.seq = advised, now, l.seq+1
	m := notice.Notice{
		Kind: notice.Congest, Source: share.Source.From, Destination: destination, Tenant: notice.ID(c.Config.Tenant),
		Measured: uint64(share.Rate), Dropped: uint64(c.Dropped * share.Share), Rate: uint64(advised), Lease: DefaultLease,
		Severity: o.severity, Sources: uint16(min(sources, 1<<16-1)),
	}
	if l.config.Variant == Paper {
		m.Flags = notice.Plain
	}
	l.send(origin, &m)
	l.logger.Debug("source told", "node", origin.name, "tenant", c.Config.Tenant, "source", share.Source.From, "measured", m.Measured, "dropped", m.Dropped, "advised", m.Rate, "severity", m.Severity, "renewal", c.Renewal, "first_drop_seconds", now.Sub(c.Since).Seconds())
	if c.First && !c.Renewal {
		l.events.Detected(now.Sub(c.Since))
	}
}

// count keeps the severity: it goes up with every third notice of an episode and
// down with every second of calm, and slows the sender's recovery.
func (o *outgoing) count(now time.Time) {
	if now.Sub(o.congested) > sameEpisode {
		o.since, o.rounds = now, 0
		if calm := int(now.Sub(o.congested) / time.Second); !o.congested.IsZero() {
			o.severity = uint8(max(1, int(o.severity)-calm))
		}
	}
	o.congested = now
	o.rounds++
	if o.rounds%3 == 0 && o.severity < maxSeverity {
		o.severity++
	}
	o.unanswered++
}

// judgePeer finds peers that do not answer, or whose answers have no effect.
func (l *Loop) judgePeer(now time.Time, n *node, o *outgoing, measured float64) {
	p := l.peer(n.name)
	silent := o.unanswered >= roundsAllowed && now.Sub(o.since) > answerTimeout && now.Sub(p.heard) > answerTimeout
	idle := o.rounds >= 2*roundsAllowed && o.advised > 0 && measured > 2*o.advised && now.Sub(o.since) > answerTimeout
	l.setUnresponsive(n.name, p, silent || idle)
}

func (l *Loop) setUnresponsive(name string, p *peer, unresponsive bool) {
	if p.unresponsive == unresponsive {
		return
	}
	p.unresponsive = unresponsive
	l.events.Peer(name, unresponsive)
	if unresponsive {
		l.logger.Warn("peer does not hold its source back; act at another point", "node", name)
		return
	}
	l.logger.Info("peer responds again", "node", name)
}

func (l *Loop) peer(name string) *peer {
	p := l.peers[name]
	if p == nil {
		p = &peer{}
		l.peers[name] = p
	}
	return p
}

// challenge greets a process that is not known, with a nonce that it must answer.
func (l *Loop) challenge(now time.Time, n *node, p *peer) {
	if now.Sub(p.hello) < 100*time.Millisecond {
		return
	}
	p.hello = now
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
		l.events.Notice(m.Kind.String(), "send_error")
		return
	}
	l.events.Notice(m.Kind.String(), "sent")
}

// answered takes an Ack or Nack in.
func (l *Loop) answered(now time.Time, n *node, m *notice.Notice) {
	key := outKey{n.name, m.Source, classify.Address(m.Destination)}
	o := l.out[key]
	if o == nil {
		return
	}
	if m.Nonce == o.seq {
		l.events.Round(now.Sub(o.sent))
	}
	if m.Kind == notice.Nack {
		o.rounds += roundsAllowed // it will not happen
		return
	}
	o.unanswered, o.ackedRate, o.ackedAt, o.atFloor = 0, float64(m.Rate), now, m.Flags&notice.AtFloor != 0
}

// PeerView is a peer as the API shows it.
type PeerView struct {
	Node         string
	Address      netip.AddrPort
	Known        bool
	Heard        time.Time
	Unresponsive bool
}

// Peers lists the other nodes.
func (l *Loop) Peers() []PeerView {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []PeerView
	for name, n := range l.directory.nodes {
		if name == l.directory.self {
			continue
		}
		p := l.peer(name)
		out = append(out, PeerView{name, n.address, p.Known(), p.heard, p.unresponsive})
	}
	return out
}
