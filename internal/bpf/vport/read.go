package vport

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"
)

// ErrNotAttached means that the interface has no slot.
var ErrNotAttached = errors.New("interface is not attached")

// Counters are totals since the interface was attached.
type Counters struct {
	Bytes          [2][6]uint64 // by Direction and index into Protocols
	Packets        [2][6]uint64 // each segment of a GSO super-frame counted
	Sizes          [2][8]uint64 // frames by Direction and index into SizeBounds; the last has none
	PolicedBytes   uint64       // of the bytes from the tenant, those that limits dropped
	PolicedPackets uint64
	RefusedPackets uint64 // to the tenant, beyond its contract or a local sender's limit
	SinceNs        uint64 // CLOCK_MONOTONIC of the attachment
}

// OfferedUDP returns the UDP bytes and packets that the tenant sent, fragments
// and what was policed included.
func (c *Counters) OfferedUDP() (bytes, packets uint64) {
	b, p := &c.Bytes[FromTenant], &c.Packets[FromTenant]
	return b[protocolUDP] + b[protocolFragment], p[protocolUDP] + p[protocolFragment]
}

// OfferedTCP returns the TCP packets that the tenant sent.
func (c *Counters) OfferedTCP() uint64 { return c.Packets[FromTenant][protocolTCP] }

// Read returns the counters of an interface.
func (m *Manager) Read(ifindex int) (Counters, error) {
	p, err := m.place(ifindex)
	if err != nil {
		return Counters{}, err
	}
	return m.readSlot(p)
}

func (m *Manager) readSlot(p vportPlace) (Counters, error) {
	var perCPU []vportCounters
	if err := m.objects.VportCount.Lookup(p.Slot, &perCPU); err != nil {
		return Counters{}, fmt.Errorf("read counters: %w", err)
	}
	return sumCPUs(perCPU, p.SinceNs), nil
}

func sumCPUs(perCPU []vportCounters, sinceNs uint64) Counters {
	out := Counters{SinceNs: sinceNs}
	for i := range perCPU {
		c := &perCPU[i]
		for d := range c.Carried {
			for proto := range c.Carried[d].Protocols {
				out.Bytes[d][proto] += c.Carried[d].Protocols[proto].Bytes
				out.Packets[d][proto] += c.Carried[d].Protocols[proto].Packets
			}
			for i := range c.Carried[d].Sizes {
				out.Sizes[d][i] += c.Carried[d].Sizes[i]
			}
		}
		out.PolicedBytes += c.PolicedBytes
		out.PolicedPackets += c.PolicedPackets
		out.RefusedPackets += c.RefusedPackets
	}
	return out
}

func (m *Manager) place(ifindex int) (vportPlace, error) {
	var p vportPlace
	err := m.objects.VportPlace.Lookup(uint32(ifindex), &p)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return p, fmt.Errorf("interface %d: %w", ifindex, ErrNotAttached)
	}
	if err != nil {
		return p, fmt.Errorf("look up interface %d: %w", ifindex, err)
	}
	return p, nil
}

// Signals describe a vport's UDP over the last second of complete 100 ms windows.
type Signals struct {
	UDPPackets       uint64  // sent by the tenant, fragments included
	UDPBytes         uint64  // likewise
	Fragments        uint64  // packets among them without a UDP header
	NewFlows         float64 // TCP and UDP flows that began: in neither the window nor the one before (estimate)
	DestinationPorts float64 // distinct ports of the busiest destination, largest window (estimate)
	ReplyRatio       float64 // UDP packets back from the busiest destination per packet sent to it
	Beyond           int     // of the ten windows, those with more UDP bytes than the contract guarantees
	FloodScore       float64 // 0 to 100, see score
	FloodSinceNs     uint64  // CLOCK_MONOTONIC of the newest flood's first sign; 0 = none so far
	FloodLastNs      uint64  // and of its last sign
}

const (
	windowNs      = 100_000_000
	windowsBehind = 10   // complete windows that Signals looks back, see SignalWindow
	spreadBits    = 1024 // bits of the linear counter
	newFlowUnit   = 256  // of a window's new_flows
)

// Signals returns the flood signals of an interface.
func (m *Manager) Signals(ifindex int) (Signals, error) {
	p, err := m.place(ifindex)
	if err != nil {
		return Signals{}, err
	}
	return m.signalsSlot(p.Slot)
}

func (m *Manager) signalsSlot(slot uint32) (Signals, error) {
	set, err := m.floodSettings()
	if err != nil {
		return Signals{}, err
	}
	var s vportState
	return m.readSignals(slot, &set, &s)
}

func (m *Manager) floodSettings() (set vportSettings, err error) {
	if err := m.objects.VportSet.Lookup(uint32(0), &set); err != nil {
		return set, fmt.Errorf("read flood settings: %w", err)
	}
	return set, nil
}

// readSignals reads a state into s and summarises it.
func (m *Manager) readSignals(slot uint32, set *vportSettings, s *vportState) (Signals, error) {
	if err := m.objects.VportState.LookupWithFlags(slot, s, ebpf.LookupLock); err != nil {
		return Signals{}, fmt.Errorf("read state: %w", err)
	}
	return summarise(s, set, Monotonic()/windowNs), nil
}

// summarise looks at the complete windows of the last second before window now.
func summarise(s *vportState, set *vportSettings, now uint64) Signals {
	out := Signals{FloodSinceNs: s.FloodSinceNs, FloodLastNs: s.FloodLastNs}
	var ports uint32
	var sent, replies uint64
	add := func(w vportWindow) {
		if w.Id == 0 || w.Id >= now || w.Id+windowsBehind < now {
			return
		}
		out.UDPPackets += uint64(w.UdpPackets)
		out.UDPBytes += w.UdpBytes
		out.Fragments += uint64(w.Fragments)
		out.Beyond += int(w.Beyond)
		out.NewFlows += float64(w.NewFlows) / newFlowUnit
		ports = max(ports, w.Ports)
		sent += uint64(w.Packets)
		replies += uint64(w.Replies)
	}
	for _, w := range s.Closed {
		add(w)
	}
	add(closeCurrent(s)) // complete, but no packet has come since to close it
	out.DestinationPorts = linearCount(ports)
	if sent > 0 {
		out.ReplyRatio = float64(replies) / float64(sent)
	}
	out.FloodScore = score(&out, set)
	return out
}

// closeCurrent does what the kernel does when a window ends.
func closeCurrent(s *vportState) vportWindow {
	w := s.Current
	for _, d := range s.Destinations {
		if d.Window == uint32(w.Id) && d.Packets > 0 && d.Packets >= w.Packets {
			w.Ports, w.Packets, w.Replies = d.Ports, d.Packets, d.Replies
		}
	}
	return w
}

// linearCount estimates how many distinct values set so many of the 1024 bits
// (Whang, Vander-Zanden and Taylor 1990). A full bitmap counts as 7 098.
func linearCount(set uint32) float64 {
	empty := max(spreadBits-float64(set), 1)
	return -spreadBits * math.Log(empty/spreadBits)
}

// SpreadBits returns how many bits so many distinct ports are expected to set.
func SpreadBits(ports uint32) uint32 {
	return uint32(math.Round(spreadBits * (1 - math.Exp(-float64(ports)/spreadBits))))
}

// Points that each signal adds to the flood score; they sum to 100.
const (
	volumePoints    = 34
	spreadPoints    = 33
	asymmetryPoints = 33
	suspectPoints   = 70 // from which VigiaUdpFlood speaks
)

// beyondLasts is from how many windows beyond the contract on it is no burst, as the
// programs' BEYOND_BEFORE.
const beyondLasts = 3

// score weighs volume, port spread and lack of replies. Volume and spread count in full
// from their thresholds in the settings; asymmetry falls to nothing at the share of replies
// that the settings allow a flood, and scales with the volume, so that a quiet one-way sender
// such as syslog scores low. Any two of the three stay below 70: one busy port (QUIC, a
// tunnel) or many ports that answer (a name server, media relays) are no flood. Beyond its
// contract for three windows a sender needs only volume and one of the others: a flood of a
// single port, or one whose replies (to every other packet at most) an accomplice writes.
// Within it part of the spread never completes the three: the score then stays below 70, so
// that the score alone tells a flood.
func score(s *Signals, set *vportSettings) float64 {
	if set.MinPackets == 0 || set.MinPorts == 0 {
		return 0
	}
	perSecond := float64(set.MinPackets) * windowsBehind
	volume := min(1, float64(s.UDPPackets)/perSecond)
	spread := min(1, s.DestinationPorts/linearCount(set.MinPorts))
	silence := 0.0
	if most := float64(set.MaxReplyPercent) / 100; s.ReplyRatio < most {
		silence = 1 - s.ReplyRatio/most
	}
	beyond := s.Beyond >= beyondLasts && s.ReplyRatio <= 0.5
	if beyond {
		silence, spread = max(silence, math.Floor(spread)), max(spread, math.Ceil(silence))
	}
	points := volumePoints*volume + spreadPoints*spread + asymmetryPoints*silence*volume
	if !beyond && spread < 1 {
		return min(points, suspectPoints-1)
	}
	return points
}

// Window is what signals are counted in; SignalWindow is how far Signals looks back.
const (
	Window       = windowNs * time.Nanosecond
	SignalWindow = windowsBehind * Window
)
