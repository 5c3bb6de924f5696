// Package shape is the limit mechanism that delays what exceeds a limit: the BPF
// program at the port sends it to an HTB class on the node's uplinks, below the class
// of the port's contract, so that datagrams that travel in fragments survive. It takes
// over from policing after two seconds, at ports whose program sits behind the socket
// buffer, where the uplinks have schedulers. The limit is in the program's map, with
// its end, as a policed one is; packets and new flows are held at the port.
package shape

import (
	"errors"
	"fmt"
	"time"

	"vigia/internal/bpf/vport"
	vports "vigia/internal/node"
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/limits/police"
	"vigia/isolation-agent/enforcer/scheduling"
)

// After is for how long a limit is policed before shaping takes over: a policer is
// there at once, and cuts datagrams that travel in fragments.
const After = 2 * time.Second

// Classes makes classes of the uplinks' schedulers; scheduling.Reconciler does.
type Classes interface {
	SetLimitClass(class uint32, owner contract.Owner, bytesPerSecond uint64) (uint32, error)
	RemoveLimitClass(class uint32) error
}

// Mechanism shapes.
type Mechanism struct {
	kernel  police.Kernel
	classes Classes
	byPort  map[string]uint32 // class of each port's limit, as major:minor
}

// New returns the mechanism. c is nil on a node without links, where it suits no port.
func New(k police.Kernel, c Classes) *Mechanism {
	return &Mechanism{kernel: k, classes: c, byPort: map[string]uint32{}}
}

// Apply makes or changes the limit's class and has the program send to it.
func (m *Mechanism) Apply(t limits.Target, l limits.Limit, ttl time.Duration) error {
	if m.classes == nil || t.Contract == nil || l.BytesPerSecond == 0 || t.Age < After || vports.Hook(&t.Port) != vport.TCX {
		return limits.ErrUnsuited
	}
	before := m.byPort[t.Port.ID]
	class, err := m.classes.SetLimitClass(before, t.Contract.Owner, l.BytesPerSecond)
	if errors.Is(err, scheduling.ErrNoClass) {
		return limits.ErrUnsuited
	}
	if err != nil {
		return err
	}
	if err = police.Write(m.kernel, t.Port.Index, l, class, ttl); err != nil {
		if class != before {
			err = errors.Join(err, m.classes.RemoveLimitClass(class))
		}
		return err
	}
	m.byPort[t.Port.ID] = class
	if before != 0 && class != before {
		// Nothing is sent to it any more; if it stays, it is a leftover that the scheduler removes.
		_ = m.classes.RemoveLimitClass(before)
	}
	return nil
}

// Read returns the limit in the program's map, if it leads to the class of this port.
func (m *Mechanism) Read(port *ports.Port) (limits.State, error) {
	ours := m.byPort[port.ID]
	switch {
	case port.Index == 0: // no device, so no program that would send to a class
		return limits.State{}, limits.ErrNotAttached
	case ours == 0:
		return limits.State{}, limits.ErrNone
	}
	state, class, err := police.Lookup(m.kernel, port.Index)
	if err == nil && class != ours {
		return limits.State{}, limits.ErrNone
	}
	return state, err
}

// Remove takes the limit out of the program's map, then removes its class.
func (m *Mechanism) Remove(port *ports.Port) error {
	ours := m.byPort[port.ID]
	if ours == 0 {
		return nil
	}
	switch _, class, err := police.Lookup(m.kernel, port.Index); {
	case errors.Is(err, limits.ErrNone), errors.Is(err, limits.ErrNotAttached):
	case err != nil:
		return err
	case class == ours:
		if err := m.kernel.RemoveLimit(port.Index); err != nil {
			return err
		}
	}
	delete(m.byPort, port.ID)
	if err := m.classes.RemoveLimitClass(ours); err != nil {
		return fmt.Errorf("remove class of limit: %w", err)
	}
	return nil
}

// Expires is true: the program ignores a limit whose time is over, and sends nothing to
// its class any more.
func (m *Mechanism) Expires() bool { return true }
