package settings

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vigia/probes/coverage"
	"vigia/probes/icmp"
	"vigia/probes/sender"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
)

// The protocols of a class.
const (
	protocolSTAMP   = "stamp"
	protocolICMP    = "icmp"
	protocolConnect = "tcp-connect"
)

const protocols = protocolSTAMP + ", " + protocolICMP + " or " + protocolConnect

// The ages of a class's flows.
const (
	flowWarm = "warm" // the same flow all the time, the default
	flowCold = "cold" // a flow that every box on the way has forgotten
)

const (
	maxSourcePorts = 1024
	maxECMPPaths   = 1024
	maxPriority    = 7
	// coldAge is how long a source port rests before a cold flow uses it again:
	// longer than Open vSwitch keeps a flow (max-idle, 10 s) and connection
	// tracking a UDP flow without an answer (30 s).
	coldAge = 60 * time.Second
)

// validateProtocol checks what depends on the protocol.
func (c *Class) validateProtocol(e *faults, field string) {
	size := func(problem, fix string) { e.add(field+".size", c.Size, problem, fix) }
	switch c.Protocol {
	case protocolSTAMP:
		if problem, fix := CheckSize(stamp.Unauthenticated, c.Size); problem != "" {
			size(problem, fix)
		}
	case protocolICMP:
		if c.Size < icmp.MinSize || c.Size > icmp.MaxSize {
			size("is not a possible size of an ICMP probe", fmt.Sprintf("write %d to %d bytes of payload", icmp.MinSize, icmp.MaxSize))
		}
	case protocolConnect:
		if c.Size != 0 {
			size("means nothing to a connection", "remove it")
		}
	case "":
		e.add(field+".protocol", nil, "is missing", "add protocol: "+protocolSTAMP)
	default:
		e.add(field+".protocol", c.Protocol, "is not a protocol of probes", "write "+protocols)
	}
	if c.DontFragment && c.Protocol == protocolConnect {
		e.add(field+".dont_fragment", c.DontFragment, "means nothing to a connection", "remove it")
	}
	e.channel(field, c.DSCP, c.Priority, c.Mark)
}

// channel checks how packets of a class are sent.
func (e *faults) channel(field string, dscp, priority int, mark int64) {
	if dscp < 0 || dscp > maxDSCP {
		e.add(field+".dscp", dscp, "is out of bounds", fmt.Sprintf("write 0 to %d", maxDSCP))
	}
	if priority < 0 || priority > maxPriority {
		e.add(field+".priority", priority, "is out of bounds", fmt.Sprintf("write 0 to %d", maxPriority))
	}
	if mark < 0 || mark > math.MaxUint32 {
		e.add(field+".mark", mark, "is out of bounds", fmt.Sprintf("write 0 to %d", uint32(math.MaxUint32)))
	}
}

// device checks the name of a device to bind to.
func (e *faults) device(field, name string) {
	if len(name) >= unix.IFNAMSIZ || strings.ContainsAny(name, "/ ") {
		e.add(field, name, "is not the name of a device", fmt.Sprintf("write a name of at most %d letters", unix.IFNAMSIZ-1))
	}
}

// validateFlows checks the set of source ports.
func (c *Class) validateFlows(e *faults, field string) {
	if c.Flow != "" && c.Flow != flowWarm && c.Flow != flowCold {
		e.add(field+".flow", c.Flow, "is not an age of a flow", "write "+flowWarm+" or "+flowCold)
		return
	}
	cold := c.Flow == flowCold
	switch {
	case c.SourcePorts < 0 || c.SourcePorts > maxSourcePorts:
		e.add(field+".source_ports", c.SourcePorts, "is out of bounds", fmt.Sprintf("write 1 to %d", maxSourcePorts))
	case c.SourcePorts > 0 && c.Protocol != protocolSTAMP:
		e.add(field+".source_ports", c.SourcePorts, "needs protocol: "+protocolSTAMP, "remove it")
	case c.SourcePorts > 0 && cold:
		e.add(field+".source_ports", c.SourcePorts, "is beside flow: cold, which chooses the number itself", "remove one of the two")
	case cold && c.Protocol == protocolICMP:
		e.add(field+".flow", c.Flow, "needs ports, which ICMP does not have", "write protocol: "+protocolSTAMP+" or "+protocolConnect)
	case c.Flow == flowWarm && c.Protocol == protocolConnect:
		e.add(field+".flow", c.Flow, "cannot be: each connection is a new flow", "remove it")
	case cold && c.Protocol == protocolSTAMP && c.Interval > 0 && c.sourcePorts() > maxSourcePorts:
		e.add(field+".interval", c.Interval, "is too short for cold flows, which rest for "+coldAge.String(),
			fmt.Sprintf("write %v or more", (coldAge/(maxSourcePorts-1)).Round(time.Millisecond)+time.Millisecond))
	}
	if c.ECMPPaths < 0 || c.ECMPPaths > maxECMPPaths {
		e.add(field+".ecmp_paths", c.ECMPPaths, "is out of bounds", fmt.Sprintf("write 1 to %d", maxECMPPaths))
	}
}

// sourcePorts returns how many source ports the class uses in turn.
func (c *Class) sourcePorts() int {
	if c.Flow == flowCold && c.Protocol == protocolSTAMP {
		interval := max(time.Duration(c.Interval), minInterval)
		return int((coldAge+interval-1)/interval) + 1
	}
	return max(c.SourcePorts, 1)
}

// defaultDeadline of a connection is at most the interval: a socket has one
// connection at a time.
func (c *Class) deadline() time.Duration {
	if c.Deadline != 0 {
		return time.Duration(c.Deadline)
	}
	if c.Protocol == protocolConnect {
		return min(defaultDeadline, time.Duration(c.Interval))
	}
	return defaultDeadline
}

// channel says how the class's packets are sent.
func (c *Class) channel() timestamping.Channel {
	protocol := map[string]timestamping.Protocol{
		protocolSTAMP: timestamping.UDP, protocolICMP: timestamping.ICMP, protocolConnect: timestamping.TCP,
	}[c.Protocol]
	return timestamping.Channel{
		Protocol: protocol, Mark: uint32(c.Mark), Priority: uint8(c.Priority), DontFragment: c.DontFragment,
	}
}

// apply makes the target one of this class.
func (c *Class) apply(t *sender.Target) {
	t.Size, t.DSCP, t.Interval, t.Deadline = c.Size, uint8(c.DSCP), time.Duration(c.Interval), c.deadline()
	device := t.Channel.Device
	t.Channel = c.channel()
	t.Channel.Device = device
	if n := c.sourcePorts(); n > 1 {
		t.Flows = n
	}
	t.ECMPPaths = c.ECMPPaths
}

// Coverage returns the share of equal-cost paths that a target's flows are
// expected to take; ok is false when the number of paths is not configured.
func Coverage(t *sender.Target) (ratio float64, ok bool) {
	if t.ECMPPaths == 0 {
		return 0, false
	}
	return coverage.Ratio(max(t.Flows, 1), t.ECMPPaths), true
}

// parseAddress reads a target's address: with a port where the protocol has them.
func (c *Class) parseAddress(s string) (host string, port uint16, problem string) {
	if c.Protocol != protocolICMP {
		return parseTarget(s)
	}
	if _, err := netip.ParseAddrPort(s); err == nil {
		return "", 0, "has a port, which ICMP does not have"
	}
	return parseHost(s)
}

func (c *Class) addressFix() string {
	switch c.Protocol {
	case protocolICMP:
		return "write IP or name, for example 10.0.0.2 or fd00::2"
	case protocolConnect:
		return "write IP:port or name:port, for example 10.0.0.2:443 or [fd00::2]:443"
	}
	return fmt.Sprintf("write IP:port or name:port, for example 10.0.0.2:%d or [fd00::2]:%d", stamp.Port, stamp.Port)
}
