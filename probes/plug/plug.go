// Package plug is the command that has a node's endpoints of probes be what a cloud's operator wants: a port of
// Neutron each, in a network namespace of its own, at the node's switch.
//
// It knows no cloud. vigia-identity makes the ports and writes a file for each node; this carries that out.
package plug

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/sys/unix"

	"vigia/internal/config"
	"vigia/internal/daemon"
	"vigia/internal/ovsdb"
)

// Bounds and defaults of the flags.
const (
	defaultPrefix = "vigia-probe-"
	defaultState  = "/run/vigia-plug/state.json"
	defaultOVSDB  = "unix:/run/openvswitch/db.sock"
	minEvery      = 100 * time.Millisecond
	maxEvery      = time.Hour
)

var prefixRE = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

type options struct {
	file, remote, prefix, state string
	tls                         ovsdb.TLS
	every                       time.Duration
	once, remove                bool
}

// Command returns the command plug.
func Command() daemon.Command {
	return daemon.Command{
		Name: "plug",
		Help: "Have this node's endpoints of probes in a cloud's networks be what a file of vigia-identity says, until it is stopped; they stay then.",
		Register: func(cmd *kingpin.CmdClause) func(context.Context, io.Writer, io.Writer) error {
			o := &options{}
			cmd.Flag("file", "The file of this node that vigia-identity writes; without --remove it is needed.").PlaceHolder("FILE").StringVar(&o.file)
			cmd.Flag("ovsdb", "Where Open vSwitch's database is.").Default(defaultOVSDB).StringVar(&o.remote)
			cmd.Flag("ovsdb-ca", "Who signs its certificate, for ssl:.").PlaceHolder("FILE").StringVar(&o.tls.CA)
			cmd.Flag("ovsdb-cert", "Our own certificate, for ssl:.").PlaceHolder("FILE").StringVar(&o.tls.Certificate)
			cmd.Flag("ovsdb-key", "Its key.").PlaceHolder("FILE").StringVar(&o.tls.Key)
			cmd.Flag("netns-prefix", "What names of the endpoints' network namespaces begin with; the network's name ends them.").Default(defaultPrefix).StringVar(&o.prefix)
			cmd.Flag("state", "Where it notes what it has made; it has to be gone after a start of the machine, as what is below /run is.").Default(defaultState).StringVar(&o.state)
			cmd.Flag("every", "How often it looks at the file, and whether all is there.").Default("2s").DurationVar(&o.every)
			cmd.Flag("once", "Look once, and exit: 0 if all is as the file says.").BoolVar(&o.once)
			cmd.Flag("remove", "Take everything away that it has made, and exit.").BoolVar(&o.remove)
			return func(ctx context.Context, _, stderr io.Writer) error { return o.run(ctx, stderr) }
		},
	}
}

func (o *options) check() error {
	usage := func(format string, args ...any) error {
		return &daemon.UsageError{Err: fmt.Errorf(format, args...)}
	}
	if o.file == "" && !o.remove {
		return usage("--file is missing; write for example --file=/var/lib/vigia/probes/%s.yaml", "HOST")
	}
	if !prefixRE.MatchString(o.prefix) {
		return usage("--netns-prefix %q is not the beginning of a name; write for example %s", o.prefix, defaultPrefix)
	}
	if !filepath.IsAbs(o.state) {
		return usage("--state %q is not an absolute path; write for example %s", o.state, defaultState)
	}
	if o.every < minEvery || o.every > maxEvery {
		return usage("--every %v is out of range; write %v to %v", o.every, minEvery, maxEvery)
	}
	if err := ovsdb.CheckRemote(o.remote, o.tls); err != nil {
		return usage("--%w", err)
	}
	return nil
}

func (o *options) run(ctx context.Context, stderr io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.state), 0o700); err != nil {
		return fmt.Errorf("make the folder of --state: %w", err)
	}
	lock, err := alone(o.state + ".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	n := &node{
		logger: slog.New(slog.NewTextHandler(stderr, nil)), prefix: o.prefix, path: o.state, pulse: &daemon.Pulse{},
		file: config.NewFile[content](o.file, "have vigia-identity write it, with openstack.probes, and bring it here"),
		vs:   &vswitch{remote: o.remote, tls: o.tls, owner: o.prefix, settle: settling},
	}
	if err := n.open(); err != nil {
		return err
	}
	defer n.links.Close()
	switch {
	case o.remove:
		return n.removeAll(ctx)
	case o.once:
		return n.pass(ctx)
	}
	n.wait, n.pulse = patience, daemon.NewPulse(n.logger)
	o.keep(ctx, n)
	return nil
}

// alone returns a lock that one process can have. It ends with the process.
func alone(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock --state: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("another vigia-probe plug has %s; stop that one, or give this one another --state and --netns-prefix", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// keep looks again and again until ctx ends. What goes wrong is logged when it begins, changes and ends.
func (o *options) keep(ctx context.Context, n *node) {
	said := ""
	for ctx.Err() == nil {
		text := ""
		if err := n.pass(ctx); err != nil {
			text = err.Error()
		}
		switch {
		case text == said || ctx.Err() != nil:
		case text == "":
			n.logger.Info("all endpoints are plugged again")
		default:
			n.logger.Warn("not all endpoints are plugged; trying again", "every", o.every, "err", text)
		}
		said = text
		n.pulse.Sleep(ctx, o.every)
	}
}
