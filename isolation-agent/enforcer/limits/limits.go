// Package limits decides which limits may be put on a node's ports, puts them
// into the kernel, and reads them back.
//
// It holds the floor: no limit goes below the guarantee that the tenant bought,
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
	"vigia/isolation-agent/enforcer/fence"
)

// Contract is what a tenant, or one port of it, bought, in bytes per second. A limit
// is on what a port sends, so that its floor is what was bought to send.
type Contract struct {
	Guarantee uint64
	Ceiling   uint64
	Received  uint64 // guarantee of what is received
	Packets   uint64 // per second that a port may send; 0 = any number
	NewFlows  uint64 // per second that a port may begin; 0 = any number
	Receive   uint64 // packets per second that a port may be sent; 0 = any number
}

// Owner is whose a contract is: a port's, or with an empty Port a tenant's.
type Owner struct{ Tenant, Port string }

// Contracts are what tenants and ports bought.
type Contracts map[Owner]Contract

// Of returns the contract that holds for a port, and whose it is: the port's own
// before its tenant's.
func (c Contracts) Of(port *ports.Port) (Contract, Owner, bool) {
	for _, owner := range []Owner{{port.Tenant, port.ID}, {port.Tenant, ""}} {
		if contract, ok := c[owner]; ok {
			return contract, owner, true
		}
	}
	return Contract{}, Owner{}, false
}

// Request asks for a limit on a port.
type Request struct {
	ID         uuid.UUID // of the action; the same one renews
	Tenant     string    // must own the port
	Protocol   string    // UDP or Everything
	Rate       uint64    // bytes per second; 0, if it is approved, drops
	Burst      uint64    // bytes; 0 for the default
	Packets    uint64    // packets per second; 0 for any number
	NewFlows   uint64    // flows begun per second; 0 for any number
	ApprovedBy string    // who allowed it to go below the floor; empty if nobody did
	TTL        time.Duration
	Term       *uint64 // of the leader that asks; nil if whoever asks has none
}

// What a limit is on.
const (
	UDP        = "udp" // fragments included
	Everything = "all" // that the port sends
)

// Supports lists what is done beyond limiting the bytes of UDP, for those who ask.
func Supports() []string { return []string{"all", "below_floor", "packets", "term"} }

// Bounds of a request.
const (
	MaxTTL = time.Hour
	// defaultBurstTime of the rate may pass at once, but never less than a
	// UDP datagram of the largest size.
	defaultBurstTime = 50 * time.Millisecond
	minBurst         = 64 << 10
	maxApprover      = 256
)

// Refusal says why a request was refused, for the API.
type Refusal struct {
	Code    string // unknown_port, tenant_mismatch, no_contract, below_floor, not_attached, other_limit, stale_term
	Field   string // of the request; empty if no field is to blame
	Message string
}

func (r *Refusal) Error() string { return r.Message }

func refuse(code, field, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Kernel is what Limits needs of a vport.Manager.
type Kernel interface {
	SetLimit(ifindex int, r vport.LimitRequest) error
	RemoveLimit(ifindex int) error
	Limit(ifindex int) (vport.Limit, error)
	Observe(map[int]vport.Bounds) (inForce map[int]bool, err error)
	Signals(ifindex int) (vport.Signals, error)
	Read(ifindex int) (vport.Counters, error)
}

// Inventory is what Limits needs of a ports.Inventory.
type Inventory interface {
	Ports() ([]ports.Port, []ports.SourceState)
	Lookup(id string) (ports.Port, bool)
}

// Fence tells commands of leaders of the past; fence.Fence is one.
type Fence interface {
	Admit(term uint64) error
	Term() uint64
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

// Limits puts limits on ports.
type Limits struct {
	kernel    Kernel
	inventory Inventory
	fence     Fence
	logger    *slog.Logger
	count     func(Change)

	mu        sync.Mutex // held across read, decision and write
	contracts Contracts
	active    map[string]uuid.UUID // by port, as last seen in the kernel
	shaper    Shaper               // nil without one
	shapes    map[string]uint16    // classes of limits, by port
}

// New returns Limits that report every change to count.
func New(k Kernel, inv Inventory, f Fence, contracts Contracts, logger *slog.Logger, count func(Change)) *Limits {
	return &Limits{
		kernel: k, inventory: inv, fence: f, contracts: contracts, logger: logger, count: count,
		active: make(map[string]uuid.UUID), shapes: make(map[string]uint16),
	}
}

// SetContracts swaps the contracts. Limits that are in force stay.
func (l *Limits) SetContracts(c Contracts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.contracts = c
}

// Term returns the highest term of a leader that has given commands.
func (l *Limits) Term() uint64 { return l.fence.Term() }

// admit refuses a command of a leader that another one has followed. It is called
// with the lock held, so that no command of a later term comes in between.
func (l *Limits) admit(term *uint64) error {
	if term == nil {
		return nil
	}
	err := l.fence.Admit(*term)
	if errors.Is(err, fence.ErrStale) {
		return refuse("stale_term", "term", "term %d is older than %d, that of a later leader", *term, l.fence.Term())
	}
	return err
}

// Apply puts or renews a limit and returns it as read back from the kernel.
func (l *Limits) Apply(portID string, r Request) (vport.Limit, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admit(r.Term); err != nil {
		return vport.Limit{}, l.refused(portID, r, err)
	}
	port, ok := l.inventory.Lookup(portID)
	if !ok {
		return vport.Limit{}, l.refused(portID, r, refuse("unknown_port", "", "this node has no port %q", portID))
	}
	if err := l.check(&port, &r); err != nil {
		return vport.Limit{}, l.refused(portID, r, err)
	}
	before, age, err := l.current(&port, r.ID)
	if err != nil {
		return vport.Limit{}, l.refused(portID, r, err)
	}
	class := l.classFor(&port, age, r.Rate)
	wanted := vport.LimitRequest{
		ID: r.ID, Everything: r.Protocol == Everything, Rate: r.Rate, Burst: r.Burst, Packets: r.Packets, NewFlows: r.NewFlows,
		Class: class, TTL: r.TTL,
	}
	if err := l.kernel.SetLimit(port.Index, wanted); err != nil {
		return vport.Limit{}, fmt.Errorf("set limit on port %s: %w", portID, err)
	}
	got, err := l.kernel.Limit(port.Index)
	if err != nil {
		return vport.Limit{}, fmt.Errorf("read limit of port %s back: %w", portID, err)
	}
	if !holds(&got, &wanted) {
		return vport.Limit{}, fmt.Errorf("limit of port %s reads back as %+v", portID, got)
	}
	l.active[portID] = r.ID
	change := Set
	if before {
		change = Extend
	}
	l.count(change)
	l.logger.Info("limit "+string(change), "port", portID, "tenant", port.Tenant, "action", r.ID, "protocol", r.Protocol,
		"bytes_per_second", r.Rate, "ttl", r.TTL, "approved_by", r.ApprovedBy)
	return got, nil
}

// holds tells whether the kernel has what was wanted.
func holds(got *vport.Limit, want *vport.LimitRequest) bool {
	return got.ID == want.ID && got.Everything == want.Everything && got.Rate == want.Rate && got.Burst == want.Burst &&
		got.Packets == want.Packets && got.NewFlows == want.NewFlows && got.Class == want.Class
}

// check holds a request against the bounds and the contract, and completes it.
func (l *Limits) check(port *ports.Port, r *Request) error {
	switch {
	case r.Tenant != port.Tenant:
		return refuse("tenant_mismatch", "tenant", "port %q belongs to tenant %q, not %q", port.ID, port.Tenant, r.Tenant)
	case r.Protocol != UDP && r.Protocol != Everything:
		return refuse("bad_field", "protocol", "protocol %q cannot be limited; use udp or all", r.Protocol)
	case r.TTL < time.Second || r.TTL > MaxTTL:
		return refuse("bad_field", "ttl_seconds", "ttl %s is out of range; use 1s to %s", r.TTL, MaxTTL)
	case r.Rate > vport.MaxRate || (r.Rate == 0 && r.ApprovedBy == ""):
		return refuse("bad_field", "rate_bytes_per_second", "rate %d is out of range; use 1 to %d, or 0 with approved_by", r.Rate, uint64(vport.MaxRate))
	case r.Packets > vport.MaxRate:
		return refuse("bad_field", "packets_per_second", "%d packets per second is out of range; use at most %d", r.Packets, uint64(vport.MaxRate))
	case r.NewFlows > vport.MaxRate:
		return refuse("bad_field", "new_flows_per_second", "%d new flows per second is out of range; use at most %d", r.NewFlows, uint64(vport.MaxRate))
	case len(r.ApprovedBy) > maxApprover:
		return refuse("bad_field", "approved_by", "approved_by has %d bytes; use at most %d", len(r.ApprovedBy), maxApprover)
	case r.Burst > vport.MaxRate:
		return refuse("bad_field", "burst_bytes", "burst %d is out of range; use at most %d", r.Burst, uint64(vport.MaxRate))
	case r.ID == uuid.Nil:
		return refuse("bad_field", "id", "id is missing; use the action's UUID")
	}
	contract, _, ok := l.contracts.Of(port)
	if !ok {
		return refuse("no_contract", "tenant", "tenant %q has no contract on this node for port %q, so its floor is unknown", port.Tenant, port.ID)
	}
	if err := floor(port, &contract, r); err != nil {
		return err
	}
	switch {
	case r.Rate == 0:
		r.Burst = 0
	case r.Burst == 0:
		r.Burst = max(minBurst, r.Rate*uint64(defaultBurstTime)/uint64(time.Second))
	}
	return nil
}

// floor refuses what would take a tenant below its contract, unless a person
// approved it.
func floor(port *ports.Port, c *Contract, r *Request) error {
	if r.ApprovedBy != "" {
		return nil
	}
	for _, f := range []struct {
		field         string
		asked, bought uint64
		any           bool // 0 asks for any number
	}{
		{"rate_bytes_per_second", r.Rate, c.Guarantee, false},
		{"packets_per_second", r.Packets, c.Packets, true},
		{"new_flows_per_second", r.NewFlows, c.NewFlows, true},
	} {
		if f.asked < f.bought && !(f.any && f.asked == 0) {
			return refuse("below_floor", f.field, "%s %d is below what tenant %q bought, %d, and no person approved it",
				f.field, f.asked, port.Tenant, f.bought)
		}
	}
	return nil
}

// current tells whether the limit of that id is in force already, and for how
// long; another one is an error.
func (l *Limits) current(port *ports.Port, id uuid.UUID) (bool, time.Duration, error) {
	got, err := l.kernel.Limit(port.Index)
	switch {
	case errors.Is(err, vport.ErrNoLimit):
		return false, 0, nil
	case errors.Is(err, vport.ErrNotAttached):
		return false, 0, refuse("not_attached", "", "no program is attached to port %q, so no limit would bite", port.ID)
	case err != nil:
		return false, 0, fmt.Errorf("read limit of port %s: %w", port.ID, err)
	case got.ID != id:
		return false, 0, refuse("other_limit", "id", "port %q is limited by action %s", port.ID, uuid.UUID(got.ID))
	}
	return true, got.Age, nil
}

func (l *Limits) refused(portID string, r Request, err error) error {
	l.count(Refuse)
	l.logger.Warn("limit refused", "port", portID, "action", r.ID, "err", err)
	return err
}

// Remove ends the limit of that id, or any limit if id is the nil UUID, and
// tells whether there was one. term is nil if whoever asks has none.
func (l *Limits) Remove(portID string, id uuid.UUID, term *uint64) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admit(term); err != nil {
		return false, err
	}
	port, ok := l.inventory.Lookup(portID)
	if !ok {
		return false, refuse("unknown_port", "", "this node has no port %q", portID)
	}
	return l.remove(&port, id)
}

func (l *Limits) remove(port *ports.Port, id uuid.UUID) (bool, error) {
	got, err := l.kernel.Limit(port.Index)
	if errors.Is(err, vport.ErrNoLimit) || errors.Is(err, vport.ErrNotAttached) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read limit of port %s: %w", port.ID, err)
	}
	if id != uuid.Nil && got.ID != id {
		return false, refuse("other_limit", "id", "port %q is limited by action %s", port.ID, uuid.UUID(got.ID))
	}
	if err := l.kernel.RemoveLimit(port.Index); err != nil {
		return false, fmt.Errorf("remove limit of port %s: %w", port.ID, err)
	}
	if _, err := l.kernel.Limit(port.Index); !errors.Is(err, vport.ErrNoLimit) {
		return false, fmt.Errorf("limit of port %s is still in the kernel after its removal (%w)", port.ID, err)
	}
	delete(l.active, port.ID)
	l.unshape(port.ID)
	l.count(Remove)
	l.logger.Info("limit removed", "port", port.ID, "tenant", port.Tenant, "action", uuid.UUID(got.ID))
	return true, nil
}

// RemoveAll ends every limit on the node and returns how many there were.
func (l *Limits) RemoveAll(term *uint64) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admit(term); err != nil {
		return 0, err
	}
	list, _ := l.inventory.Ports()
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

// Observe looks at the kernel once: it adopts limits that an earlier process
// set, has them shaped after two seconds, notices those that have expired, and holds
// ports to the packets and new flows of their contracts.
func (l *Limits) Observe() {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, _ := l.inventory.Ports()
	inForce, err := l.kernel.Observe(l.bounds(list))
	if err != nil {
		l.logger.Warn("look at limits and contracts in the kernel", "err", err)
		return
	}
	for i := range list {
		port := &list[i]
		id, known := l.active[port.ID]
		if !known && !inForce[port.Index] {
			continue
		}
		got, err := l.kernel.Limit(port.Index)
		if err == nil {
			l.handOver(port, &got)
		}
		switch {
		case err == nil && !known:
			l.active[port.ID] = got.ID
			l.logger.Info("limit adopted", "port", port.ID, "tenant", port.Tenant, "action", uuid.UUID(got.ID), "expires_in", got.Expires)
		case errors.Is(err, vport.ErrNoLimit) && known:
			delete(l.active, port.ID)
			l.unshape(port.ID)
			l.count(Expire)
			l.logger.Info("limit expired", "port", port.ID, "tenant", port.Tenant, "action", id)
		}
	}
}
