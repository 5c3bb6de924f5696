package once

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"vigia/internal/netns"
	"vigia/probes/protocol"
	"vigia/probes/protocol/registry"
	"vigia/probes/resolver"
	"vigia/probes/sender"
	"vigia/probes/settings"
)

// defaultDeadline is at most the interval where there is one probe at a time.
const defaultDeadline = time.Second

// names lists the protocols.
func names() (names []string) {
	for _, p := range registry.All() {
		names = append(names, p.Traits().Name)
	}
	return names
}

// sizes says which size a probe has by default.
func sizes() string {
	var parts []string
	for _, p := range registry.All() {
		if t := p.Traits(); t.HasSizes() {
			parts = append(parts, fmt.Sprintf("%d for %s", t.Size, t.Name))
		}
	}
	return strings.Join(parts, ", ")
}

// target checks the flags and makes a target of them; its host may be a name.
func (o *options) target() (sender.Target, error) {
	p, err := o.probes()
	if err != nil {
		return sender.Target{}, err
	}
	traits := p.Traits()
	host, port, err := o.address(&traits)
	if err != nil {
		return sender.Target{}, err
	}
	if o.count < 1 || o.count > maxCount {
		return sender.Target{}, usage("--count %d is out of bounds; write 1 to %d", o.count, maxCount)
	}
	if o.interval < minInterval || o.interval > maxInterval {
		return sender.Target{}, usage("--interval %v is out of bounds; write %v to %v", o.interval, minInterval, maxInterval)
	}
	deadline, err := o.checkDeadline(p)
	if err != nil {
		return sender.Target{}, err
	}
	if o.dscp < 0 || o.dscp > maxDSCP {
		return sender.Target{}, usage("--dscp %d is out of bounds; write 0 to %d", o.dscp, maxDSCP)
	}
	if _, err := netns.Path(o.netns); err != nil {
		return sender.Target{}, usage("--netns: %v", err)
	}
	source, problem := settings.ParseSource(o.source)
	if problem != "" {
		return sender.Target{}, usage("--source %q %s; write IP or IP:port", o.source, problem)
	}
	if source.Port() != 0 && traits.Flows != protocol.PortFlows {
		return sender.Target{}, usage("--source %q has a port, and probes of protocol %s choose none or their own; write the address alone", o.source, traits.Name)
	}
	return sender.Target{
		Labels: sender.Labels{Dst: host}, Netns: o.netns, Source: source, Host: host, Port: port, Protocol: p,
		Size: o.payload(&traits), DSCP: uint8(o.dscp), Interval: o.interval, Deadline: deadline, Count: uint64(o.count),
	}, nil
}

// probes returns the protocol, with keys, and checks what depends on it alone.
func (o *options) probes() (protocol.Protocol, error) {
	all := registry.All()
	p := all[slices.Index(names(), cmp.Or(o.protocol, names()[0]))]
	traits := p.Traits()
	if o.keyFile != "" {
		keyed, ok := p.(protocol.Keyed)
		if !ok {
			return nil, usage("--key-file has no meaning for probes of protocol %s; leave it out", traits.Name)
		}
		var err error
		if p, err = keyed.LoadKeys(o.keyFile); err != nil {
			return nil, usage("--key-file: %v", err)
		}
	}
	if _, ok := p.(protocol.Searcher); o.pathMTU && !ok {
		return nil, usage("--path-mtu means nothing to %s; leave it out", traits.Noun)
	}
	if o.size != 0 && !traits.HasSizes() {
		return nil, usage("--size %d means nothing to %s; leave it out", o.size, traits.Noun)
	}
	if problem, fix := p.CheckSize(o.payload(&traits)); problem != "" {
		return nil, usage("--size %d %s; %s", o.payload(&traits), problem, fix)
	}
	return p, nil
}

// payload returns the size of a probe.
func (o *options) payload(t *protocol.Traits) int { return cmp.Or(o.size, t.Size) }

func (o *options) checkDeadline(p protocol.Protocol) (time.Duration, error) {
	_, batched := p.(protocol.Packets)
	deadline := o.deadline
	if deadline == 0 {
		deadline = defaultDeadline
		if !batched {
			deadline = min(deadline, o.interval)
		}
	}
	if deadline < minDeadline || deadline > maxDeadline {
		return 0, usage("--deadline %v is out of bounds; write %v to %v", deadline, minDeadline, maxDeadline)
	}
	if !batched && deadline > o.interval {
		return 0, usage("--deadline %v is longer than the interval, and there is one probe at a time; write at most %v", deadline, o.interval)
	}
	return deadline, nil
}

// address splits --to.
func (o *options) address(t *protocol.Traits) (host string, port uint16, err error) {
	host, port = strings.Trim(o.to, "[]"), cmp.Or(o.port, t.Port)
	if _, err := netip.ParseAddr(host); err != nil && strings.Contains(o.to, ":") {
		var text string
		if host, text, err = net.SplitHostPort(o.to); err != nil {
			return "", 0, usage("--to %q is not an address; write IP, name, IP:port, name:port or [IPv6]:port", o.to)
		}
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return "", 0, usage("--to %q has no port from 1 to 65535", o.to)
		}
		port = uint16(n)
	}
	if host == "" {
		return "", 0, usage("--to %q has no address; write IP or name", o.to)
	}
	if port != 0 && t.Port == 0 {
		return "", 0, usage("port %d: %s does not have ports; write the address alone", port, t.Title)
	}
	return host, port, nil
}

// resolve replaces a name by its address.
func resolve(ctx context.Context, t *sender.Target, lookup resolver.Lookup) error {
	ip, err := netip.ParseAddr(t.Host)
	if err != nil {
		ctx, cancel := context.WithTimeout(ctx, resolver.Timeout)
		defer cancel()
		network := "ip"
		if t.Source.IsValid() && t.Source.Addr().Is4() {
			network = "ip4"
		} else if t.Source.IsValid() {
			network = "ip6"
		}
		found, err := lookup(ctx, network, t.Host)
		if err != nil {
			return fmt.Errorf("no answer from %s: unresolvable: %w", t.Host, err)
		}
		if len(found) == 0 {
			return fmt.Errorf("no answer from %s: unresolvable: the name has no address", t.Host)
		}
		ip = found[0].Unmap().WithZone("")
	}
	if problem := settings.CheckUnicast(ip); problem != "" || ip.IsUnspecified() {
		return usage("--to %s %s; write the address of one host", ip, problem)
	}
	t.Host = ip.String()
	if problem := settings.CheckFamilies(t.Source, t.Host); problem != "" {
		return usage("--source %s %s; write both as IPv4 or both as IPv6", t.Source, problem)
	}
	return nil
}
