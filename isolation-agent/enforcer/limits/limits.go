// Package limits decides which limits may be put on a node's ports, has them put by
// one of several mechanisms, and reads them back.
//
// It keeps the floor: no limit goes below the guarantee that the tenant bought,
// whoever asks (the isolation agent checks as well, but is not trusted to).
package limits

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/leaderterm"
	"vigia/isolation-agent/enforcer/refusal"
)

// Supports lists what is done beyond limiting the bytes of UDP, for those who ask.
func Supports() []string { return []string{"all", "below_floor", "packets", "term"} }

// Kernel is what Limits needs of a vport.Manager beside mechanisms.
type Kernel interface {
	SyncBounds(map[int]vport.Bounds) error
	Signals(ifindex int) (vport.Signals, error)
	Read(ifindex int) (vport.Counters, error)
}

// Inventory is what Limits needs of a ports.Inventory.
type Inventory interface {
	Ports() ([]ports.Port, []ports.SourceState)
	Lookup(id string) (ports.Port, bool)
}

// Terms admits commands of the present leader; leaderterm.Store does.
type Terms interface {
	Admit(term uint64) error
	Highest() uint64
}

// Change is what happened to a limit, for metrics.
type Change string

// The changes.
const (
	Set    Change = "set"
	Extend Change = "extend"
	Remove Change = "remove"
	Expire Change = "expire"
	Refuse Change = "refuse"
)

// Changes lists all changes.
func Changes() []Change { return []Change{Set, Extend, Remove, Expire, Refuse} }

// Config is what Limits works with.
type Config struct {
	Kernel     Kernel
	Inventory  Inventory
	Terms      Terms
	Mechanisms []Row // a limit is put by the first that suits it
	Contracts  *contract.Set
	Logger     *slog.Logger
	Count      func(Change) // called for every change
}

// Limits puts limits on ports.
type Limits struct {
	config Config
	now    func() time.Time

	mu      sync.Mutex        // held across read, decision and write
	active  map[string]active // by port, as last seen
	looked  map[string]int    // interface of each port that was looked at for limits of an earlier process
	replace bool              // contracts have changed: limits may need another mechanism
	// left are limits that another mechanism has taken over and that could not be ended.
	left map[leftover]ports.Port
}

// active is a limit that was last seen in force.
type active struct {
	id    uuid.UUID
	row   int       // of its mechanism
	until time.Time // when its time is over, as far as is known
	ours  bool      // it does not end by itself
}

// leftover is what a mechanism did not remove from a port.
type leftover struct {
	port string
	row  int
}

// New returns Limits.
func New(c Config) *Limits {
	return &Limits{
		config: c, now: time.Now, active: make(map[string]active), looked: make(map[string]int), left: make(map[leftover]ports.Port),
	}
}

// SetContracts swaps the contracts. Limits that are in force stay.
func (l *Limits) SetContracts(c *contract.Set) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.config.Contracts, l.replace = c, true
}

// Term returns the highest term of a leader that has given commands.
func (l *Limits) Term() uint64 { return l.config.Terms.Highest() }

// admit refuses a command of a leader that another one has followed. It is called
// with the lock held, so that no command of a later term comes in between.
func (l *Limits) admit(term *uint64) error {
	if term == nil {
		return nil
	}
	err := l.config.Terms.Admit(*term)
	switch {
	case errors.Is(err, leaderterm.ErrStale):
		return refusal.New(refusal.StaleTerm, "term", "term %d is older than %d, that of a later leader", *term, l.config.Terms.Highest())
	case errors.Is(err, leaderterm.ErrTooFar):
		return refusal.New(refusal.BadField, "term", "term %d is more than %d above %d, the highest so far; learn that from GET /v1/state",
			*term, leaderterm.MaxStep, l.config.Terms.Highest())
	}
	return err
}

// Apply puts or renews a limit and returns it as read back.
func (l *Limits) Apply(portID string, r Request) (State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	got, change, err := l.apply(portID, &r)
	if err != nil {
		if refusal.CodeOf(err) != 0 {
			l.config.Logger.Warn("limit refused", "port", portID, "action", r.ID, "err", err)
			l.config.Count(Refuse)
		}
		return State{}, err
	}
	l.config.Count(change)
	l.config.Logger.Info("limit "+string(change), "port", portID, "tenant", r.Tenant, "action", r.ID, "protocol", r.Protocol,
		"bytes_per_second", r.BytesPerSecond, "ttl", r.TTL, "approved_by", r.ApprovedBy)
	return got, nil
}

func (l *Limits) apply(portID string, r *Request) (State, Change, error) {
	if err := l.admit(r.Term); err != nil {
		return State{}, "", err
	}
	port, ok := l.config.Inventory.Lookup(portID)
	if !ok {
		return State{}, "", refusal.New(refusal.UnknownPort, "", "this node has no port %q", portID)
	}
	bought, err := l.check(&port, r)
	if err != nil {
		return State{}, "", err
	}
	before, err := l.read(&port)
	if err != nil {
		return State{}, "", err
	}
	change := Set
	if before.there {
		if before.ID != r.ID {
			return State{}, "", refusal.New(refusal.OtherLimit, "id", "port %q is limited by action %s", portID, before.ID)
		}
		change = Extend
	}
	got, err := l.place(Target{Port: port, Contract: bought, Age: before.Age}, r.Limit, r.TTL, &before)
	return got, change, err
}

// reading is what the mechanisms have in force on a port.
type reading struct {
	State
	there    bool
	row      int    // of the mechanism that has it
	detached uint64 // bit i: the mechanism of row i would enforce nothing
}

// read returns the limit in force on a port: the one of the first mechanism that has
// any.
func (l *Limits) read(port *ports.Port) (reading, error) {
	var out reading
	for i := range l.config.Mechanisms {
		state, err := l.config.Mechanisms[i].Mechanism.Read(port)
		switch {
		case err == nil:
			out.State, out.row, out.there = state, i, true
			return out, nil
		case errors.Is(err, ErrNotAttached):
			out.detached |= 1 << i
		case !errors.Is(err, ErrNone):
			return out, fmt.Errorf("read limit of port %s: %w", port.ID, err)
		}
	}
	return out, nil
}

// unheld tells whether nothing would enforce a limit on a port now: at one with a device the
// program is missing, at one without every mechanism says so.
func (l *Limits) unheld(port *ports.Port, got *reading) bool {
	if port.Index != 0 {
		return got.detached != 0
	}
	return got.detached == 1<<len(l.config.Mechanisms)-1
}

// place has a limit put by the first mechanism that can, reads it back, and ends it
// where it was before.
func (l *Limits) place(t Target, limit Limit, ttl time.Duration, before *reading) (State, error) {
	row, err := l.applyFirst(len(l.config.Mechanisms), t, limit, ttl, before)
	if err != nil {
		return State{}, err
	}
	m := l.config.Mechanisms[row].Mechanism
	tracked, isTracked := l.active[t.Port.ID]
	l.remember(&t.Port, limit.ID, row, ttl)
	if isTracked && tracked.row != row { // which may not be the one that was read
		err = l.supersede(&t.Port, tracked.row)
	}
	if before.there && before.row != row {
		err = errors.Join(err, l.supersede(&t.Port, before.row))
	}
	if err != nil {
		return State{}, err
	}
	got, err := m.Read(&t.Port)
	if err != nil {
		return State{}, fmt.Errorf("read limit of port %s back: %w", t.Port.ID, err)
	}
	if got.Limit != limit {
		return State{}, fmt.Errorf("limit of port %s reads back as %+v", t.Port.ID, got)
	}
	if !m.Expires() {
		got.ExpiresIn = ttl
	}
	return got, nil
}

// supersede ends the limit of a mechanism that another one has taken over. If that
// fails it is tried again.
func (l *Limits) supersede(port *ports.Port, row int) error {
	if err := l.config.Mechanisms[row].Mechanism.Remove(port); err != nil {
		l.left[leftover{port.ID, row}] = *port
		return fmt.Errorf("end the limit that %s has on port %s: %w", l.config.Mechanisms[row].Name, port.ID, err)
	}
	return nil
}

// removeLeft tries again to end what could not be ended, unless it is in force again.
func (l *Limits) removeLeft() {
	for k, port := range l.left {
		if was, there := l.active[k.port]; there && was.row == k.row {
			delete(l.left, k)
			continue
		}
		if err := l.config.Mechanisms[k.row].Mechanism.Remove(&port); err != nil {
			l.config.Logger.Warn("cannot end a limit that another mechanism has taken over", "port", k.port, "mechanism", l.config.Mechanisms[k.row].Name, "err", err)
			continue
		}
		delete(l.left, k)
	}
}

// remember keeps what is in force on a port, and until when.
func (l *Limits) remember(port *ports.Port, id uuid.UUID, row int, ttl time.Duration) {
	l.active[port.ID] = active{id: id, row: row, until: l.now().Add(ttl), ours: !l.config.Mechanisms[row].Mechanism.Expires()}
}

// applyFirst tries the first mechanisms of the table in turn and returns the row of the
// one that took the limit. One that fails is no reason not to try the next.
func (l *Limits) applyFirst(rows int, t Target, limit Limit, ttl time.Duration, before *reading) (int, error) {
	var errs []error
	for i := range rows {
		if before.detached&(1<<i) != 0 {
			continue
		}
		err := l.config.Mechanisms[i].Mechanism.Apply(t, limit, ttl)
		switch {
		case err == nil:
			return i, nil
		case errors.Is(err, ErrNotAttached):
			before.detached |= 1 << i
		case errors.Is(err, ErrUnsuited):
		default:
			errs = append(errs, fmt.Errorf("limit port %s by %s: %w", t.Port.ID, l.config.Mechanisms[i].Name, err))
			if i+1 < rows {
				l.config.Logger.Warn("cannot limit by one mechanism, trying the next", "port", t.Port.ID, "mechanism", l.config.Mechanisms[i].Name, "err", err)
			}
		}
	}
	switch {
	case len(errs) > 0:
		return 0, errors.Join(errs...)
	case t.Port.Index == 0:
		return 0, refusal.New(refusal.NotAttached, "", "port %q has no device in the kernel, and Open vSwitch limits such a port "+
			"to bytes per second above 0 alone, while its database can be reached", t.Port.ID)
	case before.detached != 0:
		return 0, refusal.New(refusal.NotAttached, "", "no program is attached to port %q, so no limit would bite", t.Port.ID)
	}
	return 0, fmt.Errorf("limit port %s: %w", t.Port.ID, ErrUnsuited)
}

// Remove ends the limit of that id, or any limit if id is the nil UUID, and
// reports whether there was one. term is nil if whoever asks has none.
func (l *Limits) Remove(portID string, id uuid.UUID, term *uint64) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admit(term); err != nil {
		return false, err
	}
	port, ok := l.config.Inventory.Lookup(portID)
	if !ok {
		return false, refusal.New(refusal.UnknownPort, "", "this node has no port %q", portID)
	}
	return l.remove(&port, id)
}

func (l *Limits) remove(port *ports.Port, id uuid.UUID) (bool, error) {
	got, err := l.read(port)
	if err != nil || !got.there {
		return false, err
	}
	if id != uuid.Nil && got.ID != id {
		return false, refusal.New(refusal.OtherLimit, "id", "port %q is limited by action %s", port.ID, got.ID)
	}
	if err := l.config.Mechanisms[got.row].Mechanism.Remove(port); err != nil {
		return false, fmt.Errorf("remove limit of port %s: %w", port.ID, err)
	}
	switch after, err := l.read(port); {
	case err != nil:
		return false, err
	case after.there:
		return false, fmt.Errorf("limit of port %s is still in the kernel after its removal", port.ID)
	}
	delete(l.active, port.ID)
	l.config.Count(Remove)
	l.config.Logger.Info("limit removed", "port", port.ID, "tenant", port.Tenant, "action", got.ID)
	return true, nil
}

// RemoveAll ends every limit on the node and returns how many there were.
func (l *Limits) RemoveAll(term *uint64) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admit(term); err != nil {
		return 0, err
	}
	list, _ := l.config.Inventory.Ports()
	removed := 0
	var errs []error
	for i := range list {
		had, err := l.remove(&list[i], uuid.Nil)
		if had {
			removed++
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}
