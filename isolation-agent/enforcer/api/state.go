package api

import (
	"net/http"
	"time"

	"vigia/internal/bpf/vport"
	vports "vigia/internal/node"
	"vigia/isolation-agent/enforcer/limits"
)

// stateJSON is the answer of GET /v1/state.
type stateJSON struct {
	Node     string     `json:"node"`
	Time     time.Time  `json:"time"`
	Supports []string   `json:"supports"` // beside limiting the bytes of UDP
	Term     uint64     `json:"term"`     // highest of a leader that gave commands; 0 = none did
	Complete bool       `json:"complete"` // false while a source of ports cannot be read: one that is missing may be there
	Ports    []portJSON `json:"ports"`
}

type portJSON struct {
	Port      string       `json:"port"`
	Tenant    string       `json:"tenant"`
	Device    string       `json:"device"`
	Workload  string       `json:"workload"` // what the port is of, for example a pod; empty if nobody says
	Attached  bool         `json:"attached"`
	Hook      string       `json:"hook"`                       // empty for a port without a device in the kernel
	Guarantee *uint64      `json:"guarantee_bytes_per_second"` // null without a contract
	Ceiling   *uint64      `json:"ceiling_bytes_per_second"`
	Packets   *uint64      `json:"pps_guarantee"`       // null = any number
	NewFlows  *uint64      `json:"new_flows_guarantee"` // null = any number
	Offered   *offeredJSON `json:"offered"`             // null while nothing is attached, or where nothing counts it
	Signals   *signalsJSON `json:"signals"`
	Limit     *limitJSON   `json:"limit"`
}

// offeredJSON is the tenant's UDP, fragments and policed packets included.
type offeredJSON struct {
	BytesPerSecond   float64 `json:"udp_bytes_per_second"`
	PacketsPerSecond float64 `json:"udp_packets_per_second"`
	WindowSeconds    float64 `json:"window_seconds"`
}

type signalsJSON struct {
	FloodScore       float64    `json:"flood_score"`
	UDPPackets       uint64     `json:"udp_packets"`
	DestinationPorts float64    `json:"udp_destination_ports"`
	ReplyRatio       float64    `json:"udp_reply_ratio"`
	FloodDetectedAt  *time.Time `json:"flood_detected_at"` // null while none was seen
	FloodLastSeenAt  *time.Time `json:"flood_last_seen_at"`
}

// state answers GET /v1/state: every port with its tenant, its contract, its limit as the kernel has it, what it
// sends and offers, and its flood signals.
func (s *Server) state(*http.Request) (any, error) {
	list, err := s.limits.State()
	if err != nil {
		return nil, err
	}
	out := stateJSON{
		Node: s.node, Time: time.Now().UTC(), Supports: limits.Supports(), Term: s.limits.Term(), Complete: s.limits.Complete(), Ports: make([]portJSON, 0, len(list)),
	}
	for i := range list {
		out.Ports = append(out.Ports, portView(&list[i]))
	}
	return out, nil
}

func portView(p *limits.PortState) portJSON {
	out := portJSON{
		Port: p.Port.ID, Tenant: p.Port.Tenant, Device: p.Port.Device, Workload: p.Port.Workload, Attached: p.Attached,
		Limit: limitView(p.Limit),
	}
	if p.Port.Index != 0 {
		out.Hook = vports.Hook(&p.Port).String()
	}
	if c := p.Contract; c != nil {
		out.Guarantee, out.Ceiling = &c.Send.GuaranteeBytesPerSecond, &c.Send.CeilingBytesPerSecond
		out.Packets, out.NewFlows = bounded(&c.SendPacketsPerSecond), bounded(&c.NewFlowsPerSecond)
	}
	if !p.Attached || p.Port.Index == 0 {
		return out
	}
	seconds := vport.SignalWindow.Seconds()
	out.Offered = &offeredJSON{
		BytesPerSecond:   float64(p.Signals.UDPBytes) / seconds,
		PacketsPerSecond: float64(p.Signals.UDPPackets) / seconds,
		WindowSeconds:    seconds,
	}
	out.Signals = &signalsJSON{
		FloodScore: p.Signals.FloodScore, UDPPackets: p.Signals.UDPPackets, DestinationPorts: p.Signals.DestinationPorts,
		ReplyRatio: p.Signals.ReplyRatio, FloodDetectedAt: instant(p.Signals.FloodSinceNs), FloodLastSeenAt: instant(p.Signals.FloodLastNs),
	}
	return out
}

// bounded returns nil for 0, which is any number.
func bounded(n *uint64) *uint64 {
	if *n == 0 {
		return nil
	}
	return n
}

// instant converts CLOCK_MONOTONIC nanoseconds to wall time; 0 is no instant.
func instant(monotonic uint64) *time.Time {
	if monotonic == 0 {
		return nil
	}
	t := vport.WallTime(monotonic).UTC()
	return &t
}
