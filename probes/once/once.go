// Package once is the one-shot command: probe a reflector some times and print
// what was measured.
package once

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"vigia/internal/daemon"
	"vigia/probes/pathmtu"
	"vigia/probes/protocol"
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
	protocol           string
	to, netns, source  string
	keyFile            string
	count, size, dscp  int
	port               uint16
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
			cmd.Flag("protocol", "Protocol of the probes: "+strings.Join(names(), ", ")+".").Default(names()[0]).EnumVar(&o.protocol, names()...)
			cmd.Flag("to", "Reflector, or what else answers: IP address or name, with or without a port.").Required().PlaceHolder("ADDRESS[:PORT]").StringVar(&o.to)
			cmd.Flag("count", "Number of probes.").Default("20").IntVar(&o.count)
			cmd.Flag("interval", "Time between two probes.").Default("100ms").DurationVar(&o.interval)
			cmd.Flag("size", "Payload of a probe in bytes; by default "+sizes()+".").PlaceHolder("BYTES").IntVar(&o.size)
			cmd.Flag("deadline", "Time after which an unanswered probe is lost; by default 1s, and at most the interval where there is one probe at a time.").DurationVar(&o.deadline)
			cmd.Flag("dscp", "Differentiated services code point of the probes.").Default("0").IntVar(&o.dscp)
			cmd.Flag("netns", "Network namespace to probe from: a name or an absolute path (needs CAP_SYS_ADMIN).").StringVar(&o.netns)
			cmd.Flag("source", "Address to probe from.").PlaceHolder("IP[:PORT]").StringVar(&o.source)
			cmd.Flag("key-file", "Probe in authenticated mode with the first key of this file; needs --size 112, or 152 for kernel delays, or more.").PlaceHolder("FILE").StringVar(&o.keyFile)
			cmd.Flag("reflector-port", fmt.Sprintf("Port of the reflector when --to has none; by default %d.", stamp.Port)).PlaceHolder("PORT").Uint16Var(&o.port)
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

// run probes and prints.
func (o *options) run(ctx context.Context, stdout, stderr io.Writer) error {
	t, err := o.target()
	if err != nil {
		return err
	}
	if o.pathMTU {
		return o.search(ctx, t, stdout)
	}
	r, err := measure(ctx, t, net.DefaultResolver.LookupNetIP, stderr, func(p *protocol.Probe, address string) {
		if !o.json {
			printProbe(stdout, p, address, t.Size)
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
