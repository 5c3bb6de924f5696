package limits

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/contracts"
)

// Shaper makes classes of the uplinks' schedulers; contracts.Keeper is one.
type Shaper interface {
	Shape(contract string, id uint16, rate uint64) (uint32, error)
	Unshape(id uint16) error
}

const (
	// ShapeAfter is when shaping takes over from policing: a policer cuts
	// datagrams that travel in fragments, a shaper delays them whole.
	ShapeAfter = 2 * time.Second
	// Classes of these limits; those below belong to the fast loop.
	firstShape = 0x2000
	lastShape  = 0x3fff
)

// SetShaper lets limits be shaped.
func (l *Limits) SetShaper(s Shaper) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shaper = s
}

// classFor returns the class that shall shape a limit, 0 while it is policed: in
// its first two seconds, where the program sits before the socket buffer, and where
// no uplink has a scheduler.
func (l *Limits) classFor(port *ports.Port, age time.Duration, rate uint64) uint32 {
	if l.shaper == nil || rate == 0 || age < ShapeAfter || port.Hook() != vport.TCX {
		return 0
	}
	id, known := l.shapes[port.ID]
	if !known {
		if id = l.freeShape(); id == 0 {
			return 0
		}
	}
	_, owner, _ := l.contracts.Of(port)
	class, err := l.shaper.Shape(contracts.Name(owner.Tenant, owner.Port), id, rate)
	if err != nil {
		if !errors.Is(err, contracts.ErrNoShape) {
			l.logger.Warn("a limit cannot be shaped and is policed", "port", port.ID, "err", err)
		}
		return 0
	}
	l.shapes[port.ID] = id
	return class
}

func (l *Limits) freeShape() uint16 {
	taken := make(map[uint16]bool, len(l.shapes))
	for _, id := range l.shapes {
		taken[id] = true
	}
	for id := uint16(firstShape); id <= lastShape; id++ {
		if !taken[id] {
			return id
		}
	}
	return 0
}

// handOver lets shaping take over from policing, or a new process's class from
// one that died with its process.
func (l *Limits) handOver(port *ports.Port, got *vport.Limit) {
	if _, ours := l.shapes[port.ID]; ours && got.Class != 0 {
		return
	}
	class := l.classFor(port, got.Age, got.Rate)
	if class == got.Class {
		return
	}
	err := l.kernel.SetLimit(port.Index, vport.LimitRequest{
		ID: got.ID, Everything: got.Everything, Rate: got.Rate, Burst: got.Burst, Packets: got.Packets, NewFlows: got.NewFlows,
		Class: class, TTL: got.Expires,
	})
	if err != nil {
		l.logger.Warn("hand a limit over to the shaper", "port", port.ID, "err", err)
		return
	}
	l.logger.Info("limit shaped", "port", port.ID, "tenant", port.Tenant, "action", uuid.UUID(got.ID), "shaped", class != 0)
}

// unshape gives the class of a limit that is over back.
func (l *Limits) unshape(portID string) {
	id, known := l.shapes[portID]
	if !known {
		return
	}
	delete(l.shapes, portID)
	if err := l.shaper.Unshape(id); err != nil {
		l.logger.Warn("remove the class of a limit", "port", portID, "err", err)
	}
}

// bounds returns what every port is held to in packets and new flows, by interface.
func (l *Limits) bounds(list []ports.Port) map[int]vport.Bounds {
	out := make(map[int]vport.Bounds, len(list))
	for i := range list {
		c, _, _ := l.contracts.Of(&list[i])
		out[list[i].Index] = vport.Bounds{Packets: c.Packets, NewFlows: c.NewFlows, Receive: c.Receive}
	}
	return out
}
