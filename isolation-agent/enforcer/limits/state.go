package limits

import (
	"errors"
	"slices"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/contract"
)

// PortState is a port as the kernel has it now.
type PortState struct {
	Port     ports.Port
	Contract *contract.Contract // nil without one
	Attached bool               // a limit would be enforced; without a device in the kernel nothing is known of signals and counters
	Signals  vport.Signals
	Counters vport.Counters
	Limit    *State // nil without a limit in force
}

// State reads every port from the kernel.
func (l *Limits) State() ([]PortState, error) {
	l.mu.Lock()
	contracts := l.config.Contracts
	l.mu.Unlock()
	list, _ := l.config.Inventory.Ports()
	out := make([]PortState, len(list))
	for i := range list {
		out[i].Port = list[i]
		out[i].Contract = contracts.Of(list[i].Tenant, list[i].ID)
		if err := l.fill(&out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Complete says whether every source of ports can be read: while one cannot, a port that is not listed may be
// there nevertheless.
func (l *Limits) Complete() bool {
	_, states := l.config.Inventory.Ports()
	return !slices.ContainsFunc(states, func(s ports.SourceState) bool { return s.Err != nil })
}

// fill reads what the kernel knows of an attached port.
func (l *Limits) fill(s *PortState) error {
	got, err := l.current(&s.Port)
	switch {
	case err != nil:
		return err
	case got.there:
		s.Limit = &got.State
	case l.unheld(&s.Port, &got):
		return nil
	}
	if s.Port.Index == 0 {
		s.Attached = true
		return nil
	}
	if s.Signals, err = l.config.Kernel.Signals(s.Port.Index); err != nil {
		return ignoreDetached(err)
	}
	if s.Counters, err = l.config.Kernel.Read(s.Port.Index); err != nil {
		return ignoreDetached(err)
	}
	s.Attached = true
	return nil
}

// current reads the limit in force on a port, and when it ends.
func (l *Limits) current(port *ports.Port) (reading, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	got, err := l.read(port)
	if was := l.active[port.ID]; was.ours && err == nil && got.there {
		got.ExpiresIn = was.until.Sub(l.now())
	}
	return got, err
}

// ignoreDetached forgives a port that went away between two reads.
func ignoreDetached(err error) error {
	if errors.Is(err, vport.ErrNotAttached) {
		return nil
	}
	return err
}

// PortsByIndex returns the ports by their interfaces.
func (l *Limits) PortsByIndex() map[int]ports.Port {
	list, _ := l.config.Inventory.Ports()
	out := make(map[int]ports.Port, len(list))
	for _, p := range list {
		if p.Index != 0 {
			out[p.Index] = p
		}
	}
	return out
}
