// Package police is the limit mechanism that drops what exceeds a limit, in the BPF
// program at the port. It suits every port that has the program, from the first
// packet on. Its limits carry their own end: without renewal the program ignores them.
package police

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/limits"
)

// Kernel is what the mechanism needs of a vport.Manager.
type Kernel interface {
	SetLimit(ifindex int, r vport.LimitRequest) error
	RemoveLimit(ifindex int) error
	Limit(ifindex int) (vport.Limit, error)
}

// Mechanism polices.
type Mechanism struct {
	kernel Kernel
}

// New returns the mechanism.
func New(k Kernel) *Mechanism { return &Mechanism{kernel: k} }

// Apply puts the limit into the program's map.
func (m *Mechanism) Apply(t limits.Target, l limits.Limit, ttl time.Duration) error {
	return Write(m.kernel, t.Port.Index, l, 0, ttl)
}

// Read returns the limit in the program's map. One that a class shapes, and that
// nobody before this mechanism in the table knows, is of a process that is gone.
func (m *Mechanism) Read(port *ports.Port) (limits.State, error) {
	state, class, err := Lookup(m.kernel, port.Index)
	state.Stale = class != 0
	return state, err
}

// Remove takes the limit out of the program's map.
func (m *Mechanism) Remove(port *ports.Port) error {
	switch _, class, err := Lookup(m.kernel, port.Index); {
	case errors.Is(err, limits.ErrNone), errors.Is(err, limits.ErrNotAttached):
		return nil
	case err != nil:
		return err
	case class != 0: // another mechanism has taken it over
		return nil
	}
	return m.kernel.RemoveLimit(port.Index)
}

// Expires is true: the program ignores a limit whose time is over.
func (m *Mechanism) Expires() bool { return true }

// Write puts a limit into the program's map, to be shaped by an HTB class, or policed
// if class is 0.
func Write(k Kernel, ifindex int, l limits.Limit, class uint32, ttl time.Duration) error {
	err := k.SetLimit(ifindex, vport.LimitRequest{
		ID: l.ID, Everything: l.Protocol == limits.Everything, Rate: l.BytesPerSecond, Burst: l.BurstBytes,
		Packets: l.PacketsPerSecond, NewFlows: l.NewFlowsPerSecond, Class: class, TTL: ttl,
	})
	return translate(err)
}

// Lookup returns the limit in the program's map, and the HTB class that shapes it.
func Lookup(k Kernel, ifindex int) (limits.State, uint32, error) {
	got, err := k.Limit(ifindex)
	if err != nil {
		return limits.State{}, 0, translate(err)
	}
	protocol := limits.UDP
	if got.Everything {
		protocol = limits.Everything
	}
	return limits.State{
		Limit: limits.Limit{
			ID: uuid.UUID(got.ID), Protocol: protocol, BytesPerSecond: got.Rate, BurstBytes: got.Burst,
			PacketsPerSecond: got.Packets, NewFlowsPerSecond: got.NewFlows,
		},
		ExpiresIn: got.Expires, Age: got.Age, Shaped: got.Class != 0, PolicedBytes: got.PolicedBytes, PolicedPackets: got.PolicedPackets,
	}, got.Class, nil
}

func translate(err error) error {
	switch {
	case errors.Is(err, vport.ErrNoLimit):
		return limits.ErrNone
	case errors.Is(err, vport.ErrNotAttached):
		return limits.ErrNotAttached
	}
	return err
}
