// Package bulk measures throughput by short transfers within limits: they have a
// byte budget, two never share a link, and they stop when a tenant's objective
// burns. TCP transfers as fast as it can; UDP at set rates.
//
// A test goes from the node that begins it to the one that listens. Its control
// connection carries one JSON line each way before the data and one after it;
// TCP data goes over the same connection. The listener never sends more than these
// lines, so it cannot be made to amplify anything.
//
// Several pairs of machines transfer at the same time where a test has more than one: bytes and
// rate are those of all together, so that what others notice of a test does not
// depend on how many take part.
package bulk

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"vigia/probes/sender"
	"vigia/probes/timestamping"
)

// Protocol is what a test sends.
type Protocol string

// The protocols.
const (
	TCP Protocol = "tcp"
	UDP Protocol = "udp"
)

// Bounds of a test.
const (
	MaxDuration = time.Minute
	MinSize     = 64    // bytes of UDP payload
	MaxSize     = 65507 // bytes of UDP payload
	MaxPackets  = 8 << 20
	// MaxRate of UDP in bytes per second; 100 Gbit/s.
	MaxRate = 12_500_000_000
	// MaxMachines is how many machines take part in a test at most: one connection for each two.
	MaxMachines = 16
	// Port is where a node listens unless told otherwise.
	Port = 9876

	maxLine        = 4096
	controlTimeout = 5 * time.Second
)

// Target is a test that is repeated.
type Target struct {
	Labels   sender.Labels
	Netns    string
	Source   netip.Addr // not valid: the kernel chooses
	Address  netip.AddrPort
	Link     string // that the test loads, at our end
	Protocol Protocol
	Channel  timestamping.Channel // device, mark, priority and type of service
	Size     int                  // bytes of a UDP payload
	Rate     uint64               // of UDP, bytes of payload per second
	RateName string               // how the rate is written, the label rate
	Duration time.Duration        // at most
	MaxBytes uint64               // of TCP, at most

	// Others are further pairs of machines, which transfer at the same time as the first.
	Others []Pair

	test uint64 // what its connections have in common; 0: Run chooses
}

// Pair is a machine that sends and one that receives.
type Pair struct {
	Netns   string
	Source  netip.Addr // not valid: the kernel chooses
	Address netip.AddrPort
}

// pairs returns all pairs of machines.
func (t *Target) pairs() []Pair {
	return append([]Pair{{Netns: t.Netns, Source: t.Source, Address: t.Address}}, t.Others...)
}

// Machines returns how many machines take part.
func (t *Target) Machines() int { return 2 * (1 + len(t.Others)) }

// cost returns how many bytes a test sends at most.
func (t *Target) cost() uint64 {
	if t.Protocol == UDP {
		return uint64(t.packets()) * uint64(t.Size)
	}
	return t.MaxBytes
}

// packets returns how many packets a UDP test sends.
func (t *Target) packets() int {
	n := float64(t.Rate) * t.Duration.Seconds() / float64(t.Size)
	return min(max(int(n), 1), MaxPackets)
}

// Result is what became of a test.
type Result string

// The results.
const (
	Completed  Result = "completed"
	Stopped    Result = "stopped"  // a tenant's objective burns
	Busy       Result = "busy"     // a link is in use by another test
	OverBudget Result = "budget"   // the byte budget of the hour is spent
	Failed     Result = "failed"   // no connection, or it broke
	Rejected   Result = "rejected" // the other end does not allow us
)

// Results lists them.
func Results() []Result { return []Result{Completed, Stopped, Busy, OverBudget, Failed, Rejected} }

// Outcome is what a test measured.
type Outcome struct {
	Result   Result
	Err      error // why it failed
	Sent     uint64
	Bytes    uint64        // of payload that arrived
	Duration time.Duration // from the first to the last arrival; of several connections the longest

	// Of TCP, read from TCP_INFO before the connection is closed. Of several connections RTT is
	// the mean, MinRTT the least; the others are sums.
	Retransmits  uint64 // segments
	RTT, MinRTT  time.Duration
	DeliveryRate uint64 // bytes per second

	// Of UDP, in packets.
	Packets                                 uint64        // handed to the kernel
	Refused                                 uint64        // not taken by it in time; never sent
	Received, Duplicate, Reordered, Dropped uint64        // Dropped: by the receiver's full buffer
	Jitter                                  time.Duration // of several connections the mean
}

// Goodput returns the rate at which payload arrived, in bytes per second.
func (o *Outcome) Goodput() float64 {
	if o.Duration <= 0 {
		return 0
	}
	return float64(o.Bytes) / o.Duration.Seconds()
}

// Lost returns how many packets the network lost.
func (o *Outcome) Lost() uint64 {
	gone := o.Packets - min(o.Received+o.Dropped, o.Packets)
	return gone
}

// testRequest begins a test.
type testRequest struct {
	Version  int      `json:"version"`
	Protocol Protocol `json:"protocol"`
	Bytes    uint64   `json:"bytes"`    // at most
	Packets  int      `json:"packets"`  // of UDP
	Size     int      `json:"size"`     // of UDP
	Duration int64    `json:"duration"` // nanoseconds, at most
	Token    uint64   `json:"token"`    // in every UDP packet
	// Test is the same in all connections of a test, Connections is their number. Without it a
	// test has one.
	Test        uint64 `json:"test,omitempty"`
	Connections int    `json:"connections,omitempty"`
	// TOS is what our packets have, and the answers shall: acknowledgements fill queues, too.
	TOS uint8 `json:"tos,omitempty"`
}

const version = 1

func (h *testRequest) check() error {
	switch {
	case h.Version != version:
		return fmt.Errorf("version %d is not known; run the same vigia-probe at both ends", h.Version)
	case h.Protocol != TCP && h.Protocol != UDP:
		return fmt.Errorf("protocol %q is not known", h.Protocol)
	case h.Duration <= 0 || h.Duration > int64(MaxDuration):
		return errors.New("the duration is out of bounds")
	case h.Protocol == UDP && (h.Packets < 1 || h.Packets > MaxPackets || h.Size < MinSize || h.Size > MaxSize):
		return errors.New("the number or size of packets is out of bounds")
	case h.Connections < 0 || h.Connections > MaxMachines/2:
		return errors.New("the number of connections is out of bounds")
	}
	return nil
}

// testResponse accepts a test or does not.
type testResponse struct {
	Busy  bool   `json:"busy,omitempty"`
	Error string `json:"error,omitempty"`
	Port  uint16 `json:"port,omitempty"` // of UDP
}

// endOfTest says that all is sent.
type endOfTest struct {
	Packets uint64 `json:"packets"`
}

// report says what arrived.
type report struct {
	Bytes     uint64 `json:"bytes"`
	Duration  int64  `json:"duration"` // nanoseconds
	Received  uint64 `json:"received,omitempty"`
	Duplicate uint64 `json:"duplicate,omitempty"`
	Reordered uint64 `json:"reordered,omitempty"`
	Dropped   uint64 `json:"dropped,omitempty"`
	Jitter    int64  `json:"jitter,omitempty"` // nanoseconds
}

// writeLine writes a value as one line.
func writeLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// readLine reads a value from one line of bounded size.
func readLine(r *bufio.Reader, v any) error {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return errors.New("the line is too long")
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}
