package fastloop

import (
	"net/netip"
	"time"

	"vigia/isolation-agent/enforcer/notice"
)

// peer is what is known of another node's enforcer.
type peer struct {
	notice.Peer
	challengedAt time.Time
	heardAt      time.Time
	unresponsive bool
}

func (l *Loop) peer(name string) *peer {
	p := l.peers[name]
	if p == nil {
		p = &peer{}
		l.peers[name] = p
	}
	return p
}

func (l *Loop) setUnresponsive(name string, p *peer, unresponsive bool) {
	if p.unresponsive == unresponsive {
		return
	}
	p.unresponsive = unresponsive
	l.events.Peer(name, unresponsive)
	if unresponsive {
		l.logger.Warn("peer does not limit its source; act at another point", "node", name)
		return
	}
	l.logger.Info("peer responds again", "node", name)
}

// PeerView is a peer as the API shows it.
type PeerView struct {
	Node         string
	Address      netip.AddrPort
	Known        bool      // its process has proven to be live
	HeardAt      time.Time // zero = never
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
		out = append(out, PeerView{name, n.address, p.Known(), p.heardAt, p.unresponsive})
	}
	return out
}
