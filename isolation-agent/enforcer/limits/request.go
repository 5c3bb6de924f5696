package limits

import (
	"time"

	"github.com/google/uuid"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/refusal"
)

// Request asks for a limit on a port.
type Request struct {
	Limit             // ID renews the limit of the same one; BurstBytes 0 asks for the default
	Tenant     string // must own the port
	ApprovedBy string // who allowed it to go below the floor; empty if nobody did
	TTL        time.Duration
	Term       *uint64 // of the leader that asks; nil if whoever asks has none
}

// Bounds of a request.
const (
	MaxTTL = vport.MaxTTL // without renewal, whoever asks
	// defaultBurstTime of the rate may pass at once, but never less than a
	// UDP datagram of the largest size.
	defaultBurstTime = 50 * time.Millisecond
	minBurst         = 64 << 10
	maxApprover      = 256
)

// check holds a request against the bounds and the contract, which it returns, and
// completes the request.
func (l *Limits) check(port *ports.Port, r *Request) (*contract.Contract, error) {
	if r.Tenant != port.Tenant {
		return nil, refusal.New(refusal.TenantMismatch, "tenant", "port %q belongs to tenant %q, not %q", port.ID, port.Tenant, r.Tenant)
	}
	if err := r.inBounds(); err != nil {
		return nil, err
	}
	bought := l.config.Contracts.Of(port.Tenant, port.ID)
	if bought == nil {
		return nil, refusal.New(refusal.NoContract, "tenant", "tenant %q has no contract on this node for port %q, so its floor is unknown", port.Tenant, port.ID)
	}
	if r.ApprovedBy == "" {
		if err := r.aboveFloor(bought); err != nil {
			return nil, err
		}
	}
	switch {
	case r.BytesPerSecond == 0:
		r.BurstBytes = 0
	case r.BurstBytes == 0:
		r.BurstBytes = max(minBurst, r.BytesPerSecond*uint64(defaultBurstTime)/uint64(time.Second))
	}
	return bought, nil
}

// inBounds refuses what no contract and no mechanism could mean.
func (r *Request) inBounds() error {
	const most = uint64(vport.MaxRate)
	bad := func(field, format string, args ...any) error {
		return refusal.New(refusal.BadField, field, format, args...)
	}
	switch {
	case r.Protocol != UDP && r.Protocol != Everything:
		return bad("protocol", "protocol %q cannot be limited; use udp or all", string(r.Protocol))
	case r.TTL < time.Second || r.TTL > MaxTTL:
		return bad("ttl_seconds", "ttl %s is out of range; use 1s to %s, and renew the limit before it ends", r.TTL, MaxTTL)
	case r.BytesPerSecond > most || (r.BytesPerSecond == 0 && r.ApprovedBy == ""):
		return bad("rate_bytes_per_second", "rate %d is out of range; use 1 to %d, or 0 with approved_by", r.BytesPerSecond, most)
	case r.PacketsPerSecond > most:
		return bad("packets_per_second", "%d packets per second is out of range; use at most %d", r.PacketsPerSecond, most)
	case r.NewFlowsPerSecond > most:
		return bad("new_flows_per_second", "%d new flows per second is out of range; use at most %d", r.NewFlowsPerSecond, most)
	case len(r.ApprovedBy) > maxApprover:
		return bad("approved_by", "approved_by has %d bytes; use at most %d", len(r.ApprovedBy), maxApprover)
	case r.BurstBytes > most:
		return bad("burst_bytes", "burst %d is out of range; use at most %d", r.BurstBytes, most)
	case r.ID == uuid.Nil:
		return bad("id", "id is missing; use the action's UUID")
	}
	return nil
}

// aboveFloor refuses what would take a tenant below its contract.
func (r *Request) aboveFloor(c *contract.Contract) error {
	for _, f := range []struct {
		field         string
		asked, bought uint64
		any           bool // 0 asks for any number
	}{
		{"rate_bytes_per_second", r.BytesPerSecond, c.Send.GuaranteeBytesPerSecond, false},
		{"packets_per_second", r.PacketsPerSecond, c.SendPacketsPerSecond, true},
		{"new_flows_per_second", r.NewFlowsPerSecond, c.NewFlowsPerSecond, true},
	} {
		if f.asked < f.bought && !(f.any && f.asked == 0) {
			return refusal.New(refusal.BelowFloor, f.field, "%s %d is below what tenant %q bought, %d, and no person approved it",
				f.field, f.asked, r.Tenant, f.bought)
		}
	}
	return nil
}
