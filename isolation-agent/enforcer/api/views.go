package api

import (
	"net"
	"net/http"
	"time"

	"vigia/internal/bpf/vport"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/fastloop"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/scheduling"
)

// Scheduling is what the API shows of the uplinks' schedulers.
type Scheduling interface {
	Desired() *scheduling.Desired
	Actual() ([]scheduling.Device, error)
	Drift() []scheduling.Drift
	Reconcile() ([]scheduling.Drift, error)
}

// Pairs lists the limits to single destinations that are in the kernel.
type Pairs interface {
	Pairs() ([]vport.PairState, error)
}

// Loop is what the API shows of the fast loop, and ends.
type Loop interface {
	Limits() []control.Limit
	Peers() []fastloop.PeerView
	ReleaseAll() int
}

type ratesJSON struct {
	Guarantee uint64 `json:"guarantee_bytes_per_second"`
	Ceiling   uint64 `json:"ceiling_bytes_per_second"`
}

func ratesView(b contract.Bandwidth) ratesJSON {
	return ratesJSON{b.GuaranteeBytesPerSecond, b.CeilingBytesPerSecond}
}

type linkJSON struct {
	Device string `json:"device"`
	Rate   uint64 `json:"rate_bytes_per_second"`
	Limit  uint64 `json:"limit_bytes_per_second"`
}

type contractJSON struct {
	Contract string    `json:"contract"`
	Tenant   string    `json:"tenant"`
	Port     string    `json:"port,omitempty"` // empty: all of the tenant's that have none of their own
	Send     ratesJSON `json:"from_tenant"`
	Receive  ratesJSON `json:"to_tenant"`
}

// desired answers GET /v1/desired: the links that are scheduled, and the contracts whose guarantees should be on them.
func (s *Server) desired(*http.Request) (any, error) {
	out := struct {
		Links     []linkJSON     `json:"links"`
		Contracts []contractJSON `json:"contracts"`
	}{[]linkJSON{}, []contractJSON{}}
	if s.scheduling == nil {
		return out, nil
	}
	desired := s.scheduling.Desired()
	for _, l := range desired.Links {
		out.Links = append(out.Links, linkJSON{l.Device, l.RateBytesPerSecond, l.Limit()})
	}
	for _, c := range desired.Contracts.All() {
		out.Contracts = append(out.Contracts, contractJSON{c.String(), c.Tenant, c.Port, ratesView(c.Send), ratesView(c.Receive)})
	}
	return out, nil
}

type actualJSON struct {
	Devices []scheduling.Device `json:"devices"`
	Drift   []scheduling.Drift  `json:"drift"`
}

// actual answers GET /v1/actual: what the kernel has, and how that differed from
// what was wanted when it was last compared.
func (s *Server) actual(*http.Request) (any, error) {
	out := actualJSON{[]scheduling.Device{}, []scheduling.Drift{}}
	if s.scheduling == nil {
		return out, nil
	}
	devices, err := s.scheduling.Actual()
	if err != nil {
		return nil, err
	}
	out.Devices = devices
	out.Drift = append(out.Drift, s.scheduling.Drift()...)
	return out, nil
}

// reconcile answers POST /v1/reconcile: compares the kernel with what is wanted now, and puts it right.
func (s *Server) reconcile(*http.Request) (any, error) {
	out := actualJSON{[]scheduling.Device{}, []scheduling.Drift{}}
	if s.scheduling == nil {
		return out, nil
	}
	drift, err := s.scheduling.Reconcile()
	if err != nil {
		return nil, err
	}
	out.Drift = append(out.Drift, drift...)
	return out, nil
}

type pairJSON struct {
	Port           string  `json:"port"`
	Tenant         string  `json:"tenant"`
	Destination    string  `json:"destination"` // empty: whatever the port sends
	Rate           uint64  `json:"rate_bytes_per_second"`
	Floor          float64 `json:"floor_bytes_per_second"`
	Severity       uint8   `json:"severity"`
	Shaped         bool    `json:"shaped"`
	Age            float64 `json:"age_seconds"`
	ExpiresIn      float64 `json:"expires_in_seconds"`
	OfferedBytes   uint64  `json:"offered_bytes"`
	PolicedBytes   uint64  `json:"policed_bytes"`
	PolicedPackets uint64  `json:"policed_packets"`
}

type peerJSON struct {
	Node         string     `json:"node"`
	Address      string     `json:"address"`
	Known        bool       `json:"known"`
	HeardAt      *time.Time `json:"heard_at"`
	Unresponsive bool       `json:"unresponsive"`
}

// pairs answers GET /v1/pairs: limits to single destinations as the kernel has
// them, with what the fast loop knows of them, and its peers.
func (s *Server) pairs(*http.Request) (any, error) {
	out := struct {
		Pairs []pairJSON `json:"pairs"`
		Peers []peerJSON `json:"peers"`
	}{[]pairJSON{}, []peerJSON{}}
	list, err := s.kernel.Pairs()
	if err != nil {
		return nil, err
	}
	known := map[control.LimitKey]control.Limit{}
	if s.loop != nil {
		for _, l := range s.loop.Limits() {
			known[l.LimitKey] = l
		}
		for _, p := range s.loop.Peers() {
			view := peerJSON{Node: p.Node, Address: p.Address.String(), Known: p.Known, Unresponsive: p.Unresponsive}
			if !p.HeardAt.IsZero() {
				at := p.HeardAt.UTC()
				view.HeardAt = &at
			}
			out.Peers = append(out.Peers, view)
		}
	}
	ports := s.limits.PortsByIndex()
	for i := range list {
		p := &list[i]
		port := ports[p.Index]
		l := known[control.LimitKey{Port: port.ID, Destination: control.Address(p.Destination)}]
		view := pairJSON{
			Port: port.ID, Tenant: port.Tenant, Rate: p.Rate, Floor: l.Floor, Severity: l.Severity, Shaped: p.Class != 0,
			Age: p.Age.Seconds(), ExpiresIn: p.TTL.Seconds(), OfferedBytes: p.OfferedBytes, PolicedBytes: p.DroppedBytes, PolicedPackets: p.DroppedPackets,
		}
		if p.Destination != vport.Everything {
			view.Destination = net.IP(p.Destination[:]).String()
		}
		out.Pairs = append(out.Pairs, view)
	}
	return out, nil
}
