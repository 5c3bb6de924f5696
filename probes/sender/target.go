package sender

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
	"time"

	"vigia/probes/delay"
	"vigia/probes/protocol"
	"vigia/probes/resolver"
	"vigia/probes/sockets"
	"vigia/probes/timestamping"
)

// Labels identify a target; they are the labels of its series.
type Labels struct{ Src, Dst, Path, Tenant, Probe string }

// Compare orders labels.
func (l *Labels) Compare(o *Labels) int {
	return cmp.Or(
		strings.Compare(l.Src, o.Src), strings.Compare(l.Dst, o.Dst), strings.Compare(l.Path, o.Path),
		strings.Compare(l.Tenant, o.Tenant), strings.Compare(l.Probe, o.Probe),
	)
}

// Target is what is probed, and how. Targets that compare equal are the same.
type Target struct {
	Labels Labels
	Netns  string         // where the socket is opened; empty for our own namespace
	Source netip.AddrPort // to bind; the zero value leaves the choice to the kernel
	Host   string         // IP address or name of the reflector
	Port   uint16
	// Protocol is what the probes are of.
	Protocol protocol.Protocol
	Size     int // of a probe in bytes; 0 where the protocol has no sizes
	DSCP     uint8
	// Interval is the time between two probes, Deadline the time after which
	// an unanswered probe is lost.
	Interval, Deadline time.Duration
	// Channel says how the packets are sent.
	Channel timestamping.Channel
	// Flows is the number of source ports, used in turn; 0 is 1.
	Flows int
	// ECMPPaths is the number of equal-cost paths that the network is taken to
	// have; 0 when nobody said.
	ECMPPaths int
	// Twin puts the target among those that are probed at the same moment.
	Twin Twin
	// Paused targets keep their series and are not probed.
	Paused bool
	// Count is how many probes are sent before the target is done; 0 is for
	// ever.
	Count uint64
}

// Twin is a target's place among those probed at the same moment, in an order that
// rotates with every round. The zero value is for targets that have no twin.
type Twin struct {
	Group Labels // of one of them
	Rank  uint8  // from 0
	Size  uint8  // of the group
}

// place returns which in the order of its group the target is at a time.
func (t *Target) place(at int64) int64 {
	if t.Twin.Size == 0 {
		return 0
	}
	return (int64(t.Twin.Rank) + at/int64(t.Interval)) % int64(t.Twin.Size)
}

// flows returns how many source ports the target uses.
func (t *Target) flows() int { return max(t.Flows, 1) }

// flow returns the target of one of the source ports: probed once while all of
// them have their turn.
func (t *Target) flow(i int) Target {
	one := *t
	if n := t.flows(); n > 1 {
		one.Interval *= time.Duration(n)
		one.Channel.Instance = fmt.Sprintf("flow %d", i)
	}
	return one
}

// key returns the socket that the target uses.
func (t *Target) key() sockets.Key {
	source := t.Source
	if !source.IsValid() {
		any := netip.IPv4Unspecified()
		if a, err := netip.ParseAddr(t.Host); err == nil && a.Is6() {
			any = netip.IPv6Unspecified()
		}
		source = netip.AddrPortFrom(any, 0)
	}
	traits := t.Protocol.Traits()
	key := sockets.Key{Netns: t.Netns, Local: source, Transport: traits.Transport, Channel: t.Channel}
	// Protocols do not share sockets: each socket has one handler.
	key.Instance = strings.Join([]string{traits.Name, t.Channel.Instance}, " ")
	if !t.batched() {
		// An exchange has its socket to itself.
		key.TOS = t.DSCP << 2
		key.Instance = strings.Join([]string{key.Instance, t.Labels.Dst, t.Labels.Path, t.Labels.Tenant, t.Labels.Probe}, " ")
	}
	if t.Channel.Priority != 0 {
		key.TOS = t.DSCP << 2
	}
	return key
}

// batched reports whether the probes are single packets, which leave and arrive in
// batches.
func (t *Target) batched() bool {
	_, ok := t.Protocol.(protocol.Packets)
	return ok
}

// keys returns the sockets of all flows.
func (t *Target) keys() (keys []sockets.Key) {
	if t.Protocol.Traits().Socketless {
		return nil
	}
	for i := 0; i < t.flows() && !t.Paused; i++ {
		one := t.flow(i)
		keys = append(keys, one.key())
	}
	return keys
}

// tos returns the type of service that each packet is sent with; 0 leaves the
// socket's.
func (t *Target) tos() uint8 {
	if t.Channel.Priority != 0 {
		return 0
	}
	return t.DSCP << 2
}

// name returns the host name to resolve; ok is false when the host is an address.
func (t *Target) name() (name resolver.Name, ok bool) {
	if _, err := netip.ParseAddr(t.Host); err == nil {
		return resolver.Name{}, false
	}
	return resolver.Name{Host: t.Host, IPv6: t.Source.Addr().Is6()}, true
}

// Probes are sent on a grid of this many steps per interval, or of maxGrid for
// longer intervals. Waking up costs more than sending a probe, so probes of
// different targets that are due almost together leave together.
const (
	gridSteps = 10
	maxGrid   = int64(50 * time.Millisecond)
)

// start returns when the first probe is due: at once for a counted target, and
// otherwise at a phase that depends on the labels alone, so that targets spread
// over the interval and stay where they are from run to run.
// The flows of a target have their turns one after the other.
func (t *Target) start(now int64, turn int) int64 {
	if t.Count > 0 {
		return now
	}
	labels := t.Labels
	if t.Twin.Size > 0 {
		labels = t.Twin.Group
	}
	h := fnv.New64a()
	for _, s := range []string{labels.Src, labels.Dst, labels.Path, labels.Tenant, labels.Probe} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	interval := int64(t.Interval)
	between := interval / int64(t.flows())
	grid := min(between/gridSteps, maxGrid)
	phase := int64(mix(h.Sum64())%uint64(between))/grid*grid + int64(turn)*between
	periods := (now - phase) / interval
	return phase + (periods+1)*interval
}

// mix spreads a hash over all bits (the finaliser of MurmurHash3): the low bits
// of FNV of names that differ in their last letter are not evenly spread.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// stampWait is how long the stamps of an answered probe are waited for. The
// reflector returns its send stamp with the next answer, so until the probe after
// it has met its deadline; one interval more for stamps that queue.
func (t *Target) stampWait() time.Duration { return 2*t.Interval + t.Deadline }

// capacity is how many probes must be remembered: all that may be in flight or
// wait for stamps, and as long again after the deadline to tell late answers
// from duplicates.
func (t *Target) capacity() int {
	return int((t.stampWait()+t.Deadline)/t.Interval) + 16
}

// Recorder takes the measurements of one target. Its methods are called on the
// sender's thread and must not keep the Probe.
type Recorder interface {
	// Launched is called for each probe, with the actual minus the intended
	// send time in nanoseconds.
	Launched(lag int64)
	// Settled is called when nothing more can become known of a probe: Lost,
	// or Answered with a verdict on its stamps.
	Settled(p *protocol.Probe)
	// Varied is called for consecutive probes whose stamps are good, with the
	// difference of their delays in nanoseconds.
	Varied(v [delay.NumDirections]int64)
	// Burst is called when a run of consecutive losses has ended, with its length
	// (RFC 3357). What never left our host neither ends nor extends a run.
	Burst(probes uint64)
	// SourceChanged is called when the delays that follow are of stamps of another
	// source, so that no histogram has both.
	SourceChanged()
	// Finished is called when a counted target is done.
	Finished()
	// Removed is called when the target is gone; nothing follows.
	Removed()
}
