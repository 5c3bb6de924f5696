package daemon

import (
	"net"
	"net/http"
	"sync"
)

// unasked has the connections on which nobody has asked for anything yet, such as those that browsers and proxies open
// in advance. http.Server.Shutdown waits five seconds for a first request on each of them.
type unasked struct {
	mu          sync.Mutex
	connections map[net.Conn]bool
	ended       bool
}

// changed takes note of a connection's state. It is a http.Server's ConnState.
func (u *unasked) changed(c net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.connections, c)
	case u.ended: // it was accepted just before
		go c.Close()
	default:
		if u.connections == nil {
			u.connections = make(map[net.Conn]bool)
		}
		u.connections[c] = true
	}
}

// close closes them, and any that comes later. Over TLS each may take seconds.
func (u *unasked) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	for c := range u.connections {
		go c.Close() // the peer may have done so; nothing was asked that could be lost
	}
}
