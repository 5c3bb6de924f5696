package sender

import (
	"vigia/probes/delay"
	"vigia/probes/protocol"
	"vigia/probes/sockets"
	"vigia/probes/timestamping"
)

const (
	// countRing is how many send stamps may be outstanding on a socket.
	countRing = 1024
	// maxUnread is how many of them may wait to be read: they take room in the receive
	// buffer, from answers.
	maxUnread = 8
)

// socket is an open socket and the sessions that share it.
type socket struct {
	*timestamping.Socket // nil for a session that needs none
	*protocol.Table
	key     sockets.Key
	token   int32
	watched bool
	handler protocol.Handler // nil for an exchange, and until the first session
	pending []launch

	sent        [countRing]sentProbe // by the kernel's count
	count       uint32
	stampsRead  uint32 // count when the send stamps were read last
	readUntil   int64  // all that arrived before this time has been read
	dropsReadAt int64  // the drop counter was read when readUntil was this
	drops       drops
	traces      []*Trace // few, and mostly none
}

// launch is a probe about to be sent.
type launch struct {
	session  *session
	slot     *protocol.Slot
	intended int64
	closing  bool
}

// sentProbe remembers which probe the kernel knows by a count.
type sentProbe struct {
	session  *session
	sequence uint64
	count    uint32
	taken    [2]bool // its stamps, by delay.Source
}

func newSocket(key sockets.Key, s *timestamping.Socket, token int32, firstID uint16) *socket {
	return &socket{Socket: s, Table: protocol.NewTable(firstID), key: key, token: token, pending: make([]launch, 0, batch)}
}

// adopt lets the session use this socket. Where there is no identifier left for it, it
// stays without a socket.
func (k *socket) adopt(env *protocol.LocalClock, s *session) {
	if !k.Add(&s.Session) {
		return
	}
	s.socket, s.Socket = k, k.Socket
	if p, ok := s.target.Protocol.(protocol.Packets); ok && k.handler == nil {
		k.handler = p.NewHandler(env, k.Table, k.Socket)
	}
}

// forget removes the session.
func (k *socket) forget(s *session) {
	k.Table.Remove(&s.Session)
	for i := range k.sent {
		if k.sent[i].session == s {
			k.sent[i] = sentProbe{}
		}
	}
	s.socket, s.Socket = nil, nil
}

// handed notes which probe the kernel counts next.
func (k *socket) handed(s *session, sequence uint64) {
	k.sent[k.count%countRing] = sentProbe{session: s, sequence: sequence, count: k.count}
	k.count++
}

// stampsDue reports whether send stamps must be read before there are too many.
func (k *socket) stampsDue() bool { return k.count-k.stampsRead >= maxUnread }

// takeSent returns the probe that the kernel knows by count, once for each source of
// stamps.
func (k *socket) takeSent(count uint32, source delay.Source) (*session, *protocol.Slot) {
	e := &k.sent[count%countRing]
	if e.session == nil || e.count != count || e.taken[source] {
		return nil, nil
	}
	e.taken[source] = true
	return e.session, e.session.Window.Lookup(e.sequence)
}

// recount starts the kernel's count and ours from 0. Stamps that are under way
// are lost with it.
func (k *socket) recount() error {
	clear(k.sent[:])
	k.count, k.stampsRead = 0, 0
	return k.RestartCount()
}
