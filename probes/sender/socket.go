package sender

import (
	"net/netip"
	"slices"

	"vigia/probes/delay"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
)

// countRing is how many send stamps may be outstanding on a socket.
const countRing = 1024

// socket is an open socket and the sessions that share it.
type socket struct {
	*timestamping.Socket
	key     sockets.Key
	token   int32
	bySSID  map[uint16]*session
	byPeer  map[netip.AddrPort][]*session
	nextID  uint16
	used    [1 << 16 / 64]uint64 // SSIDs ever given out
	pending []launch
	secured int // sessions in authenticated mode

	sent    [countRing]sentProbe // by the kernel's count
	count   uint32
	drained int64 // all that arrived before this time has been read
	counted int64 // the drop counter was read when drained was this
	drops   drops
}

// launch is a probe about to be sent.
type launch struct {
	session  *session
	slot     *slot
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
	return &socket{
		Socket: s, key: key, token: token, nextID: firstID,
		bySSID: make(map[uint16]*session), byPeer: make(map[netip.AddrPort][]*session),
		pending: make([]launch, 0, batch),
	}
}

// maxSessions is how many identifiers there are.
const maxSessions = 1<<16 - 1

// adopt gives the session an identifier of its own on this socket (RFC 8972
// section 3: not zero). Beyond maxSessions, which only a reload of very many
// targets can reach for a moment, the session stays without a socket.
func (k *socket) adopt(s *session) {
	if len(k.bySSID) == maxSessions {
		return
	}
	for k.nextID == 0 || k.bySSID[k.nextID] != nil {
		k.nextID++
	}
	s.ssid, s.socket = k.nextID, k
	k.bySSID[s.ssid] = s
	if s.keys != nil {
		k.secured++
	}
	k.used[s.ssid/64] |= 1 << (s.ssid % 64)
	k.nextID++
	k.watchPeer(s)
}

func (k *socket) watchPeer(s *session) {
	if s.address.IsValid() {
		k.byPeer[s.address] = append(k.byPeer[s.address], s)
	}
}

// forget removes the session.
func (k *socket) forget(s *session) {
	delete(k.bySSID, s.ssid)
	if s.keys != nil {
		k.secured--
	}
	k.unwatchPeer(s)
	for i := range k.sent {
		if k.sent[i].session == s {
			k.sent[i] = sentProbe{}
		}
	}
	s.socket = nil
}

func (k *socket) unwatchPeer(s *session) {
	peers := slices.DeleteFunc(k.byPeer[s.address], func(o *session) bool { return o == s })
	if len(peers) == 0 {
		delete(k.byPeer, s.address)
		return
	}
	k.byPeer[s.address] = peers
}

// handed notes which probe the kernel counts next.
func (k *socket) handed(s *session, sequence uint64) {
	k.sent[k.count%countRing] = sentProbe{session: s, sequence: sequence, count: k.count}
	k.count++
}

// takeSent returns the probe that the kernel knows by count, once for each source of
// stamps.
func (k *socket) takeSent(count uint32, source delay.Source) (*session, *slot) {
	e := &k.sent[count%countRing]
	if e.session == nil || e.count != count || e.taken[source] {
		return nil, nil
	}
	e.taken[source] = true
	return e.session, e.session.window.Lookup(e.sequence)
}

// recount starts the kernel's count and ours from 0. Stamps that are under way
// are lost with it.
func (k *socket) recount() error {
	clear(k.sent[:])
	k.count = 0
	return k.RestartCount()
}

// mode returns the mode of the sessions with a reflector, which has one for all.
func (k *socket) mode(peer netip.AddrPort) stamp.Mode {
	if k.secured == 0 {
		return stamp.Unauthenticated
	}
	if peers := k.byPeer[peer]; len(peers) > 0 {
		return peers[0].layout.Mode
	}
	return stamp.Unauthenticated
}

// match finds the session that a reply belongs to. ours is false when it comes
// from no target of this socket.
func (k *socket) match(from netip.AddrPort, r *stamp.Reply) (s *session, ours bool) {
	if s = k.bySSID[r.SSID]; s != nil && s.address == from {
		return s, true
	}
	peers := k.byPeer[from]
	if len(peers) == 0 {
		return nil, false
	}
	// A reflector that knows nothing of identifiers returns zeros there (RFC
	// 8762); the echoed time stamp tells its sessions apart.
	if r.SSID == 0 {
		for _, s := range peers {
			if s.echoes(r) {
				return s, true
			}
		}
	}
	if k.used[r.SSID/64]&(1<<(r.SSID%64)) != 0 && k.bySSID[r.SSID] == nil {
		return nil, false // an answer to a session that is gone
	}
	return nil, true
}
