package limits

import (
	"errors"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
)

// PortState is a port as the kernel has it now.
type PortState struct {
	Port        ports.Port
	Contract    Contract
	HasContract bool
	Attached    bool
	Signals     vport.Signals
	Counters    vport.Counters
	Limit       *vport.Limit // nil without a limit in force
}

// State reads every port from the kernel.
func (l *Limits) State() ([]PortState, error) {
	l.mu.Lock()
	contracts := l.contracts
	l.mu.Unlock()
	list, _ := l.inventory.Ports()
	out := make([]PortState, 0, len(list))
	for _, p := range list {
		s := PortState{Port: p}
		s.Contract, _, s.HasContract = contracts.Of(&p)
		if err := l.fill(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// fill reads what the kernel knows of an attached port.
func (l *Limits) fill(s *PortState) error {
	limit, err := l.kernel.Limit(s.Port.Index)
	switch {
	case errors.Is(err, vport.ErrNotAttached):
		return nil
	case err == nil:
		s.Limit = &limit
	case !errors.Is(err, vport.ErrNoLimit):
		return err
	}
	if s.Signals, err = l.kernel.Signals(s.Port.Index); err != nil {
		return ignoreDetached(err)
	}
	if s.Counters, err = l.kernel.Read(s.Port.Index); err != nil {
		return ignoreDetached(err)
	}
	s.Attached = true
	return nil
}

// Protocol returns what a limit is on.
func Protocol(l *vport.Limit) string {
	if l.Everything {
		return Everything
	}
	return UDP
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
	list, _ := l.inventory.Ports()
	out := make(map[int]ports.Port, len(list))
	for _, p := range list {
		out[p.Index] = p
	}
	return out
}
