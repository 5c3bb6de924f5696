// Package moment records what happened when a path turned bad: the hops that its own flow still
// passes, over the overlay and beneath it, the path MTU, the class that arrives at the far end
// and the state of this host, beside the last record of the same target while it was good.
//
// What comes back from the network is shown and decides nothing: a message is taken for a
// hop's only when it quotes what was sent, and all of it is bounded in packets, time and memory.
package moment

import (
	"time"

	"vigia/probes/sender"
)

// Why says why a record was made.
type Why string

// The reasons.
const (
	Good Why = "good" // nothing was wrong: it is what bad ones are compared with
	Loss Why = "loss" // probes were lost in the network
	Slow Why = "slow" // round trips took longer than the target's objective allows
)

// Moment is one record of a target. Its JSON is what GET /v1/moments shows.
type Moment struct {
	Src     string    `json:"src"`
	Dst     string    `json:"dst"`
	Path    string    `json:"path"`
	Tenant  string    `json:"tenant"`
	Probe   string    `json:"probe"`
	Time    time.Time `json:"time"`    // when it was begun
	Seconds float64   `json:"seconds"` // how long it took
	Why     Why       `json:"why"`

	Outcomes Outcomes `json:"outcomes"`
	Hops     *Hops    `json:"hops"`
	// Beneath are the hops of the twin: the path beneath an overlay. Nil without a twin.
	Beneath     *Hops    `json:"beneath,omitempty"`
	BeneathPath string   `json:"beneath_path,omitempty"`
	PathMTU     *PathMTU `json:"path_mtu"`
	// Host is this host's state when the record was begun, HostAfter when it was complete.
	Host      Host `json:"host"`
	HostAfter Host `json:"host_after"`

	// LastGood is the last good record of the target, where this one is bad.
	LastGood *Moment `json:"last_good,omitempty"`
}

// Labels returns whose it is.
func (m *Moment) Labels() sender.Labels {
	return sender.Labels{Src: m.Src, Dst: m.Dst, Path: m.Path, Tenant: m.Tenant, Probe: m.Probe}
}

// Outcomes are what became of the target's probes just before.
type Outcomes struct {
	Seconds float64        `json:"seconds"` // of how long before
	Settled int            `json:"settled"`
	Lost    map[string]int `json:"lost,omitempty"` // by cause
	// MedianRTT and MaxRTT are of good round trips, in seconds; 0 without any.
	MedianRTT float64 `json:"median_rtt_seconds,omitempty"`
	MaxRTT    float64 `json:"max_rtt_seconds,omitempty"`
}

// Hops are what a trace of the target's own flow met.
type Hops struct {
	From string `json:"from,omitempty"` // address and port
	To   string `json:"to,omitempty"`
	DSCP uint8  `json:"dscp"` // that packets left with
	// Hops are in order, up to the far end or the last that is known or was tried.
	Hops []Hop `json:"hops"`
	// Reached says that the far end answered a packet of the trace.
	Reached bool    `json:"reached"`
	Far     *FarEnd `json:"far_end,omitempty"`
	Packets int     `json:"packets"`
	Error   string  `json:"error,omitempty"` // why there is no more
}

// What a hop did with the packet whose hop limit ended there.
const (
	Silent      = "silent"      // nothing came back
	Exceeded    = "exceeded"    // it said that the hop limit was used up: a router
	Answered    = "answered"    // it answered the packet: the far end
	Unreachable = "unreachable" // it said that the packet could not be delivered
)

// Hop is one hop.
type Hop struct {
	Number  int     `json:"hop"`
	Outcome string  `json:"outcome"`
	Address string  `json:"address,omitempty"`
	RTT     float64 `json:"rtt_seconds,omitempty"`
	Says    string  `json:"says,omitempty"`      // an ICMP message that is not "time exceeded"
	MTU     int     `json:"mtu_bytes,omitempty"` // that such a message states
	// Unverified says that the message quotes too little to tell which packet it is about.
	Unverified bool `json:"unverified,omitempty"`
}

// FarEnd is what packets with the usual hop limit showed of the other end.
type FarEnd struct {
	Asked    int `json:"asked"`
	Answered int `json:"answered"`
	// DSCP is what arrived there, Hops how many routers had passed it on; absent where the
	// other end does not tell.
	DSCP *uint8 `json:"dscp,omitempty"`
	Hops *int   `json:"hops,omitempty"`
	// ReturnDSCP is what the answers arrived here with; absent without an answer.
	ReturnDSCP *uint8  `json:"return_dscp,omitempty"`
	RTT        float64 `json:"rtt_seconds,omitempty"` // the least
}

// PathMTU is what a search of the path MTU found.
type PathMTU struct {
	Bytes    int    `json:"bytes,omitempty"` // with the IP header; absent unless found
	AtMost   bool   `json:"at_most,omitempty"`
	Outcome  string `json:"outcome"`
	Reported int    `json:"reported_bytes,omitempty"` // the smallest that ICMP or a device here stated
	Packets  int    `json:"packets"`
	Error    string `json:"error,omitempty"`
}

// Host is the state of this host. Counters are since its start.
type Host struct {
	Load1       float64 `json:"load1"`
	Processors  int     `json:"processors"`
	CPUPressure float64 `json:"cpu_pressure"` // share of the last 10 s; negative when unknown
	Steal       float64 `json:"steal"`        // share of the last second; negative when unknown
	// SoftnetDropped are packets that processors had no room for.
	SoftnetDropped uint64 `json:"softnet_dropped"`
	// SocketDropped are datagrams that full receive buffers refused, SendRefused those that
	// full send buffers did, in the target's network namespace.
	SocketDropped uint64 `json:"socket_dropped"`
	SendRefused   uint64 `json:"send_refused"`
	// Queues are the queueing disciplines of the target's namespace and our own that have
	// dropped packets, those with the most first.
	Queues []Queue `json:"queues,omitempty"`
	Error  string  `json:"error,omitempty"` // what could not be read
}

// Queue is a queueing discipline.
type Queue struct {
	Netns   string `json:"netns,omitempty"`
	Device  string `json:"device"`
	Kind    string `json:"kind"`
	Handle  string `json:"handle"`
	Dropped uint64 `json:"dropped"`
	Backlog uint64 `json:"backlog_bytes"`
}
