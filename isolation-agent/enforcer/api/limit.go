package api

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/refusal"
)

// setBody is the body of PUT /v1/ports/{port}/limit.
type setBody struct {
	ID         string  `json:"id"`
	Tenant     string  `json:"tenant"`
	Protocol   string  `json:"protocol"`
	Rate       uint64  `json:"rate_bytes_per_second"`
	Burst      uint64  `json:"burst_bytes"`
	Packets    uint64  `json:"packets_per_second"`
	NewFlows   uint64  `json:"new_flows_per_second"`
	TTLSeconds float64 `json:"ttl_seconds"`
	ApprovedBy string  `json:"approved_by"`
	Term       *uint64 `json:"term"`
}

// set answers PUT /v1/ports/{port}/limit: sets the limit of a port, or renews it, and reads it back from the kernel.
func (s *Server) set(r *http.Request) (any, error) {
	var b setBody
	if err := decode(r, &b); err != nil {
		return nil, err
	}
	id, err := parseID(b.ID)
	if err != nil {
		return nil, err
	}
	if !(b.TTLSeconds >= 1 && b.TTLSeconds <= limits.MaxTTL.Seconds()) { // also refuses NaN
		return nil, refusal.New(refusal.BadField, "ttl_seconds", "ttl_seconds %v is out of range; use 1 to %v, and renew the limit before it ends", b.TTLSeconds, limits.MaxTTL.Seconds())
	}
	port := r.PathValue("port")
	got, err := s.limits.Apply(port, limits.Request{
		Limit: limits.Limit{
			ID: id, Protocol: limits.Protocol(b.Protocol), BytesPerSecond: b.Rate, BurstBytes: b.Burst,
			PacketsPerSecond: b.Packets, NewFlowsPerSecond: b.NewFlows,
		},
		Tenant: b.Tenant, ApprovedBy: b.ApprovedBy, TTL: time.Duration(b.TTLSeconds * float64(time.Second)), Term: b.Term,
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"port": port, "limit": limitView(&got), "verified": true}, nil
}

// remove answers DELETE /v1/ports/{port}/limit: removes the limit of a port, and tells whether there was one.
func (s *Server) remove(r *http.Request) (any, error) {
	id := uuid.Nil
	if given := r.URL.Query().Get("id"); given != "" {
		var err error
		if id, err = parseID(given); err != nil {
			return nil, err
		}
	}
	term, err := termOf(r)
	if err != nil {
		return nil, err
	}
	port := r.PathValue("port")
	removed, err := s.limits.Remove(port, id, term)
	if err != nil {
		return nil, err
	}
	return map[string]any{"port": port, "removed": removed, "verified": true}, nil
}

// removeAll answers DELETE /v1/limits: removes the limits of all ports, those of the fast loop too.
func (s *Server) removeAll(r *http.Request) (any, error) {
	term, err := termOf(r)
	if err != nil {
		return nil, err
	}
	removed, err := s.limits.RemoveAll(term)
	if err != nil {
		return nil, err
	}
	released := 0
	if s.loop != nil {
		released = s.loop.ReleaseAll()
	}
	return map[string]any{"removed": removed, "released": released}, nil
}

// limitJSON is a limit as the API shows it.
type limitJSON struct {
	ID             string  `json:"id"`
	Protocol       string  `json:"protocol"`
	Rate           uint64  `json:"rate_bytes_per_second"`
	Burst          uint64  `json:"burst_bytes"`
	Packets        uint64  `json:"packets_per_second"`   // 0 = any number
	NewFlows       uint64  `json:"new_flows_per_second"` // 0 = any number
	Shaped         bool    `json:"shaped"`               // or policed
	ExpiresIn      float64 `json:"expires_in_seconds"`
	PolicedBytes   uint64  `json:"policed_bytes"`
	PolicedPackets uint64  `json:"policed_packets"`
	WholePort      bool    `json:"whole_port"` // everything that the port sends is held to the rate, whatever the protocol
}

func limitView(l *limits.State) *limitJSON {
	if l == nil {
		return nil
	}
	return &limitJSON{
		ID: l.ID.String(), Protocol: string(l.Protocol), Rate: l.BytesPerSecond, Burst: l.BurstBytes, Packets: l.PacketsPerSecond,
		NewFlows: l.NewFlowsPerSecond, Shaped: l.Shaped, ExpiresIn: l.ExpiresIn.Seconds(),
		PolicedBytes: l.PolicedBytes, PolicedPackets: l.PolicedPackets, WholePort: l.WholePort,
	}
}
