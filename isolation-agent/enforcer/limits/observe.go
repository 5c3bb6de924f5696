package limits

import (
	"errors"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
)

// Observe looks at what is in force once: it adopts limits that an earlier process
// set, has a limit put by a better mechanism once one suits it, ends those that do not
// end by themselves, notices those that have expired, and holds ports to the packets
// and new flows of their contracts.
func (l *Limits) Observe() {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, _ := l.config.Inventory.Ports()
	if err := l.config.Kernel.SyncBounds(l.bounds(list)); err != nil {
		l.config.Logger.Warn("cannot hold ports to their contracts", "err", err)
	}
	l.removeLeft()
	anew := l.replace
	l.replace = false
	there := make(map[string]bool, len(list))
	for i := range list {
		port := &list[i]
		there[port.ID] = true
		if l.mayHave(port) {
			l.observe(port, anew)
		}
	}
	l.forget(there)
}

// forget forgets ports that are gone. What their limits have taken is freed when their
// time is over: a port may come back before.
func (l *Limits) forget(there map[string]bool) {
	for id := range l.looked {
		if !there[id] {
			delete(l.looked, id)
		}
	}
	for id, was := range l.active {
		if !there[id] && !l.now().Before(was.until) {
			l.end(&ports.Port{ID: id}, was)
		}
	}
}

func (l *Limits) observe(port *ports.Port, anew bool) {
	was, known := l.active[port.ID]
	got, err := l.read(port)
	switch {
	case err != nil:
		l.config.Logger.Warn("cannot read the limit of a port", "port", port.ID, "err", err)
		l.replace = l.replace || anew
		return
	case !got.there && l.unheld(port, &got):
		return // the port is coming or going; what it has is seen once it is there
	case !got.there && known:
		l.end(port, was)
	case got.there && !known:
		l.adopt(port, &got)
	case got.there && was.ours && !l.now().Before(was.until):
		l.end(port, was)
	case got.there:
		if !was.ours {
			l.remember(port, got.ID, got.row, got.ExpiresIn)
		}
		l.improve(port, &got, anew)
	}
	l.looked[port.ID] = port.Index
}

// adopt takes over a limit that an earlier process set.
func (l *Limits) adopt(port *ports.Port, got *reading) {
	l.remember(port, got.ID, got.row, got.ExpiresIn)
	if l.active[port.ID].ours && got.ExpiresIn == 0 { // when it should end, that process knew
		l.end(port, l.active[port.ID])
		return
	}
	l.config.Logger.Info("limit adopted", "port", port.ID, "tenant", port.Tenant, "action", got.ID, "expires_in", got.ExpiresIn)
	l.improve(port, got, false)
}

// end frees what a limit that is over has taken, and ends it where it does not end by
// itself.
func (l *Limits) end(port *ports.Port, was active) {
	row := &l.config.Mechanisms[was.row]
	if err := row.Mechanism.Remove(port); err != nil {
		l.config.Logger.Warn("cannot remove what is left of a limit", "port", port.ID, "mechanism", row.Name, "err", err)
		if was.ours {
			return // it is in force, and tried again
		}
	}
	delete(l.active, port.ID)
	l.config.Count(Expire)
	l.config.Logger.Info("limit expired", "port", port.ID, "tenant", port.Tenant, "action", was.id)
}

// improve has a limit put by a mechanism that comes before its present one, if one
// suits it now; and by any, if it has to be put anew.
func (l *Limits) improve(port *ports.Port, got *reading, anew bool) {
	anew = anew || got.Stale
	rows := got.row
	if anew {
		rows = len(l.config.Mechanisms)
	}
	if rows == 0 {
		return // no mechanism is better
	}
	ttl := l.active[port.ID].until.Sub(l.now())
	t := Target{Port: *port, Contract: l.config.Contracts.Of(port.Tenant, port.ID), Age: got.Age}
	row, err := l.applyFirst(rows, t, got.Limit, ttl, got)
	if err != nil {
		if anew || !errors.Is(err, ErrUnsuited) {
			l.config.Logger.Warn("cannot apply a limit anew; it stays as it is", "port", port.ID, "err", err)
		}
		return
	}
	l.remember(port, got.ID, row, ttl)
	if row == got.row {
		return
	}
	if err := l.supersede(port, got.row); err != nil {
		l.config.Logger.Warn("cannot end a limit that another mechanism has taken over", "port", port.ID, "err", err)
	}
	l.config.Logger.Info("limit handed over", "port", port.ID, "tenant", port.Tenant, "action", got.ID,
		"from", l.config.Mechanisms[got.row].Name, "to", l.config.Mechanisms[row].Name)
}

// bounds returns what every port is held to in packets and new flows, by interface.
func (l *Limits) bounds(list []ports.Port) map[int]vport.Bounds {
	out := make(map[int]vport.Bounds, len(list))
	for i := range list {
		if list[i].Index == 0 {
			continue // without a device there is no program
		}
		var b vport.Bounds
		if c := l.config.Contracts.Of(list[i].Tenant, list[i].ID); c != nil {
			b = vport.Bounds{
				Packets: c.SendPacketsPerSecond, NewFlows: c.NewFlowsPerSecond, Receive: c.ReceivePacketsPerSecond,
				MACPairs: c.NewMACPairsPerSecond, Guarantee: min(c.Send.GuaranteeBytesPerSecond, vport.MaxRate),
			}
		}
		out[list[i].Index] = b
	}
	return out
}
