// Package once is the one-shot command: probe a reflector some times and print
// what was measured.
package once

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"vigia/internal/daemon"
	"vigia/internal/netns"
	"vigia/probes/pathmtu"
	"vigia/probes/resolver"
	"vigia/probes/sender"
	"vigia/probes/settings"
	"vigia/probes/stamp"
)

// Bounds of the flags.
const (
	maxCount    = 1_000_000
	minInterval = 100 * time.Microsecond
	maxInterval = time.Hour
	minDeadline = time.Millisecond
	maxDeadline = time.Minute
	maxDSCP     = 63
)

type options struct {
	to, netns, source  string
	keyFile            string
	count, size, dscp  int
	reflectorPort      uint16
	interval, deadline time.Duration
	json               bool
	pathMTU            bool
	mtuMin, mtuMax     int
}

// Command returns the command.
func Command() daemon.Command {
	return daemon.Command{
		Name: "once",
		Help: "Probe a reflector some times, print every probe and a summary; exit 0 if any was answered.",
		Register: func(cmd *kingpin.CmdClause) func(context.Context, io.Writer, io.Writer) error {
			o := &options{}
			cmd.Flag("to", "Reflector: IP address or name, with or without a port.").Required().PlaceHolder("ADDRESS[:PORT]").StringVar(&o.to)
			cmd.Flag("count", "Number of probes.").Default("20").IntVar(&o.count)
			cmd.Flag("interval", "Time between two probes.").Default("100ms").DurationVar(&o.interval)
			cmd.Flag("size", "UDP payload of a probe in bytes.").Default("64").IntVar(&o.size)
			cmd.Flag("deadline", "Time after which an unanswered probe is lost.").Default("1s").DurationVar(&o.deadline)
			cmd.Flag("dscp", "Differentiated services code point of the probes.").Default("0").IntVar(&o.dscp)
			cmd.Flag("netns", "Network namespace to probe from: a name or an absolute path (needs CAP_SYS_ADMIN).").StringVar(&o.netns)
			cmd.Flag("source", "Address to probe from.").PlaceHolder("IP[:PORT]").StringVar(&o.source)
			cmd.Flag("key-file", "Probe in authenticated mode with the first key of this file; needs --size 112, or 152 for kernel delays, or more.").PlaceHolder("FILE").StringVar(&o.keyFile)
			cmd.Flag("reflector-port", "Port of the reflector when --to has none.").Default(strconv.Itoa(stamp.Port)).Uint16Var(&o.reflectorPort)
			cmd.Flag("path-mtu", "Search the largest packet that the path carries whole (RFC 8899) instead; exit 0 if it was found.").BoolVar(&o.pathMTU)
			cmd.Flag("path-mtu-min", "Smallest packet to try in bytes, IP header included; must fit.").Default(strconv.Itoa(pathmtu.DefaultMin)).IntVar(&o.mtuMin)
			cmd.Flag("path-mtu-max", "Largest packet to try in bytes, IP header included.").Default(strconv.Itoa(pathmtu.DefaultMax)).IntVar(&o.mtuMax)
			cmd.Flag("json", "Print one JSON document instead.").BoolVar(&o.json)
			return func(ctx context.Context, stdout, stderr io.Writer) error { return o.run(ctx, stdout, stderr) }
		},
	}
}

func usage(format string, args ...any) error {
	return &daemon.UsageError{Err: fmt.Errorf(format, args...)}
}

// isUsage reports whether an error is a mistake in the command line.
func isUsage(err error) bool {
	var mistake *daemon.UsageError
	return errors.As(err, &mistake)
}

// target checks the flags and makes a target of them; its host may be a name.
func (o *options) target() (sender.Target, error) {
	host, port, err := o.address()
	if err != nil {
		return sender.Target{}, err
	}
	if o.count < 1 || o.count > maxCount {
		return sender.Target{}, usage("--count %d is out of bounds; write 1 to %d", o.count, maxCount)
	}
	if o.interval < minInterval || o.interval > maxInterval {
		return sender.Target{}, usage("--interval %v is out of bounds; write %v to %v", o.interval, minInterval, maxInterval)
	}
	if o.deadline < minDeadline || o.deadline > maxDeadline {
		return sender.Target{}, usage("--deadline %v is out of bounds; write %v to %v", o.deadline, minDeadline, maxDeadline)
	}
	if o.dscp < 0 || o.dscp > maxDSCP {
		return sender.Target{}, usage("--dscp %d is out of bounds; write 0 to %d", o.dscp, maxDSCP)
	}
	var keys stamp.Keys
	if o.keyFile != "" {
		if keys, err = stamp.LoadKeys(o.keyFile); err != nil {
			return sender.Target{}, usage("--key-file: %v", err)
		}
	}
	if problem, fix := settings.CheckSize(keys.Mode(), o.size); problem != "" {
		return sender.Target{}, usage("--size %d %s; %s", o.size, problem, fix)
	}
	if _, err := netns.Path(o.netns); err != nil {
		return sender.Target{}, usage("--netns: %v", err)
	}
	source, problem := settings.ParseSource(o.source)
	if problem != "" {
		return sender.Target{}, usage("--source %q %s; write IP or IP:port", o.source, problem)
	}
	return sender.Target{
		Labels: sender.Labels{Dst: host}, Netns: o.netns, Source: source, Host: host, Port: port,
		Size: o.size, DSCP: uint8(o.dscp), Keys: keys, Interval: o.interval, Deadline: o.deadline, Count: uint64(o.count),
	}, nil
}

// address splits --to.
func (o *options) address() (host string, port uint16, err error) {
	host, port = strings.Trim(o.to, "[]"), o.reflectorPort
	if _, err := netip.ParseAddr(host); err != nil && strings.Contains(o.to, ":") {
		var text string
		if host, text, err = net.SplitHostPort(o.to); err != nil {
			return "", 0, usage("--to %q is not an address; write IP, name, IP:port, name:port or [IPv6]:port", o.to)
		}
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return "", 0, usage("--to %q has no port from 1 to 65535", o.to)
		}
		port = uint16(n)
	}
	if host == "" || port == 0 {
		return "", 0, usage("--to %q has no address, or a port that is not from 1 to 65535", o.to)
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

// run probes and prints.
func (o *options) run(ctx context.Context, stdout, stderr io.Writer) error {
	t, err := o.target()
	if err != nil {
		return err
	}
	if o.pathMTU {
		return o.search(ctx, t, stdout)
	}
	r, err := measure(ctx, t, net.DefaultResolver.LookupNetIP, stderr, func(p *sender.Probe, address string) {
		if !o.json {
			printProbe(stdout, p, address, o.size)
		}
	})
	switch {
	case isUsage(err):
	case o.json && r == nil: // it could not even begin
		err = errors.Join(err, failure(t.Host, err).writeJSON(stdout))
	case o.json:
		err = errors.Join(err, r.writeJSON(stdout))
	case r != nil:
		r.print(stdout)
	}
	return err
}
