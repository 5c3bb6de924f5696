package vport

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
)

// Place is where the counters of an attached interface are.
type Place struct {
	Incarnation Incarnation
	slot        uint32
}

// Snapshot is what all attached interfaces count. It may be filled again and again,
// which costs no memory once it is large enough.
type Snapshot struct {
	Places   []Place
	Counters []Counters // in the order of Places

	indices []uint32
	places  []vportPlace
	slots   []uint32
	perCPU  []vportCounters
	at      []int // where a slot's values are in perCPU

	byIndex map[uint32]int // positions in Places
	indexed []Place        // what byIndex is of
}

// Find returns the position of an interface in Places.
func (s *Snapshot) Find(ifindex int) (position int, ok bool) {
	position, ok = s.byIndex[uint32(ifindex)]
	return position, ok
}

// index looks again where interfaces are, if any came or went.
func (s *Snapshot) index() {
	if slices.Equal(s.indexed, s.Places) {
		return
	}
	s.indexed, s.byIndex = append(s.indexed[:0], s.Places...), make(map[uint32]int, len(s.Places))
	for i, p := range s.Places {
		s.byIndex[p.Incarnation.Index] = i
	}
}

// sized returns s with n elements, of whatever value.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Places returns the attached interfaces, in one or few system calls.
func (m *Manager) Places() ([]Place, error) {
	var s Snapshot
	err := m.readPlaces(&s)
	return s.Places, err
}

func (m *Manager) readPlaces(s *Snapshot) error {
	most := int(m.objects.VportPlace.MaxEntries())
	s.indices, s.places = sized(s.indices, most), sized(s.places, most)
	var cursor ebpf.MapBatchCursor
	n, err := m.objects.VportPlace.BatchLookup(&cursor, s.indices, s.places, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // which says that this was all
		return fmt.Errorf("list attached interfaces: %w", err)
	}
	s.Places = s.Places[:0]
	for i := range n {
		s.Places = append(s.Places, Place{Incarnation{Index: s.indices[i], SinceNs: s.places[i].SinceNs}, s.places[i].Slot})
	}
	return nil
}

// Snapshot reads the counters of all attached interfaces, in few system calls.
func (m *Manager) Snapshot(s *Snapshot) error {
	if err := m.readPlaces(s); err != nil {
		return err
	}
	s.index()
	s.Counters = s.Counters[:0]
	slots := uint32(0)
	for _, p := range s.Places {
		slots = max(slots, p.slot+1)
	}
	if slots == 0 {
		return nil
	}
	cpus := ebpf.MustPossibleCPU()
	s.slots, s.perCPU, s.at = sized(s.slots, int(slots)), sized(s.perCPU, int(slots)*cpus), sized(s.at, int(slots))
	var cursor ebpf.MapBatchCursor
	n, err := m.objects.VportCount.BatchLookup(&cursor, s.slots, s.perCPU, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("read counters: %w", err)
	}
	for i, slot := range s.slots[:n] {
		s.at[slot] = i * cpus
	}
	for _, p := range s.Places {
		at := s.at[p.slot]
		s.Counters = append(s.Counters, sumCPUs(s.perCPU[at:at+cpus], p.Incarnation.SinceNs))
	}
	return nil
}

// SignalsPlace returns the flood signals of an attached interface.
func (m *Manager) SignalsPlace(p Place) (Signals, error) {
	return m.signalsSlot(p.slot)
}

// SignalSnapshot is the flood signals of all attached interfaces. It may be filled again
// and again, which costs no memory once it is large enough.
type SignalSnapshot struct {
	Places  []Place
	Signals []Signals // in the order of Places

	listed Snapshot
	state  vportState
}

// SnapshotSignals reads the flood signals of all attached interfaces and nothing else: a
// system call for each, whatever the number of processors.
func (m *Manager) SnapshotSignals(s *SignalSnapshot) error {
	if err := m.readPlaces(&s.listed); err != nil {
		return err
	}
	set, err := m.floodSettings()
	if err != nil {
		return err
	}
	s.Places, s.Signals = s.listed.Places, s.Signals[:0]
	for _, p := range s.Places {
		signals, err := m.readSignals(p.slot, &set, &s.state)
		if err != nil {
			return err
		}
		s.Signals = append(s.Signals, signals)
	}
	return nil
}
