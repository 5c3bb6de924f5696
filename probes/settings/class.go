package settings

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vigia/probes/protocol"
	"vigia/probes/sender"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
)

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
	e.channel(field, c.DSCP, c.Priority, c.Mark)
	if c.protocol == nil {
		return
	}
	switch problem, fix := c.protocol.CheckSize(c.Size); {
	case c.Size != 0 && !c.traits.HasSizes():
		e.add(field+".size", c.Size, "means nothing to "+c.traits.Noun, "remove it")
	case problem != "":
		e.add(field+".size", c.Size, problem, fix)
	}
	if c.DontFragment && !batched(c.protocol) {
		e.add(field+".dont_fragment", c.DontFragment, "means nothing to "+c.traits.Noun, "remove it")
	}
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
	case c.protocol == nil:
	case c.SourcePorts > 0 && c.traits.Flows != protocol.PortFlows:
		e.add(field+".source_ports", c.SourcePorts, "needs protocol: "+c.protocols.names(hasPortFlows), "remove it")
	case c.SourcePorts > 0 && cold:
		e.add(field+".source_ports", c.SourcePorts, "is beside flow: cold, which chooses the number itself", "remove one of the two")
	case cold && c.traits.Flows == protocol.OneFlow:
		e.add(field+".flow", c.Flow, "needs ports, which "+c.traits.Title+" does not have", "write protocol: "+c.protocols.names(hasOtherFlows))
	case c.Flow == flowWarm && c.traits.Flows == protocol.NewFlows:
		e.add(field+".flow", c.Flow, "cannot be: "+c.traits.Noun+" is a new flow each time", "remove it")
	case cold && c.traits.Flows == protocol.PortFlows && c.Interval > 0 && c.sourcePorts() > maxSourcePorts:
		e.add(field+".interval", c.Interval, "is too short for cold flows, which rest for "+coldAge.String(),
			fmt.Sprintf("write %v or more", (coldAge/(maxSourcePorts-1)).Round(time.Millisecond)+time.Millisecond))
	}
	if c.ECMPPaths < 0 || c.ECMPPaths > maxECMPPaths {
		e.add(field+".ecmp_paths", c.ECMPPaths, "is out of bounds", fmt.Sprintf("write 1 to %d", maxECMPPaths))
	}
}

// sourcePorts returns how many source ports the class uses in turn.
func (c *Class) sourcePorts() int {
	if c.Flow == flowCold && c.traits.Flows == protocol.PortFlows {
		interval := max(time.Duration(c.Interval), minInterval)
		return int((coldAge+interval-1)/interval) + 1
	}
	return max(c.SourcePorts, 1)
}

// oneAtATime reports whether a target has one probe under way at most.
func (c *Class) oneAtATime() bool { return c.protocol != nil && !batched(c.protocol) }

// deadline returns the deadline; by default it is at most the interval where there is one
// probe at a time.
func (c *Class) deadline() time.Duration {
	switch {
	case c.Deadline != 0:
		return time.Duration(c.Deadline)
	case c.oneAtATime():
		return min(defaultDeadline, time.Duration(c.Interval))
	}
	return defaultDeadline
}

// channel says how the class's packets are sent.
func (c *Class) channel() timestamping.Channel {
	return timestamping.Channel{Mark: uint32(c.Mark), Priority: uint8(c.Priority), DontFragment: c.DontFragment}
}

// apply makes the target one of this class.
func (c *Class) apply(t *sender.Target) {
	t.Protocol, t.Size, t.DSCP, t.Interval, t.Deadline = c.protocol, c.Size, uint8(c.DSCP), time.Duration(c.Interval), c.deadline()
	device := t.Channel.Device
	t.Channel = c.channel()
	t.Channel.Device = device
	if n := c.sourcePorts(); n > 1 {
		t.Flows = n
	}
	t.ECMPPaths = c.ECMPPaths
}

// parseAddress reads a target's address: with a port where the protocol has them.
func (c *Class) parseAddress(s string) (host string, port uint16, problem string) {
	if c.protocol == nil || c.traits.Port != 0 {
		return parseTarget(s)
	}
	if _, err := netip.ParseAddrPort(s); err == nil {
		return "", 0, "has a port, which " + c.traits.Title + " does not have"
	}
	return parseHost(s)
}

func (c *Class) addressFix() string {
	if c.protocol != nil && c.traits.Port == 0 {
		return "write IP or name, for example 10.0.0.2 or fd00::2"
	}
	port := cmp.Or(c.traits.Port, stamp.Port)
	return fmt.Sprintf("write IP:port or name:port, for example 10.0.0.2:%d or [fd00::2]:%d", port, port)
}
