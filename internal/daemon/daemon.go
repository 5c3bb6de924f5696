// Package daemon is the skeleton that every Vigia daemon shares: the same
// flags, commands, endpoints, reload and self metrics.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	promslogflag "github.com/prometheus/common/promslog/flag"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"

	"vigia/internal/catalog"
	"vigia/internal/version"
)

// Exit codes of every program.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2
)

// Program describes a daemon.
type Program struct {
	Name           string // vigia-probe
	Part           string // probe: names the part in the catalogue and in self metrics
	Description    string // one sentence
	DefaultAddress string // host:port of the metrics listener
	// Check reads and validates the configuration file and returns a line
	// that says what it would do.
	Check func(path string) (string, error)
	// Start builds the service from Env. It runs after the listeners are open.
	Start func(ctx context.Context, env Env) (Service, error)
	// Flags declares the daemon's own flags; nil for none.
	Flags func(app *kingpin.Application)
	// Commands are further commands beside the daemon itself.
	Commands []Command
}

// Env is what the skeleton hands to a service.
type Env struct {
	ConfigPath string
	Logger     *slog.Logger
	Registry   *prometheus.Registry
	Metrics    *catalog.Factory
	Mux        *http.ServeMux
}

// Service is a running daemon.
type Service interface {
	// Run works until ctx ends or something makes going on pointless.
	Run(ctx context.Context) error
	// Reload does everything that may fail first and then swaps. On error
	// the service goes on as it was.
	Reload(ctx context.Context, configPath string) error
	// Ready returns nil once the service does its work, or why it does not.
	Ready() error
}

// MetricsHandler is a service that answers GET /metrics itself, with what
// Env.Registry gathers beside its own.
type MetricsHandler interface {
	Metrics() http.Handler
}

// Lander is a Service with a landing page of its own.
type Lander interface {
	ServeLanding(w http.ResponseWriter, r *http.Request)
}

// Command is a one-shot command.
type Command struct {
	Name string
	Help string
	// Register declares the command's flags and returns the function to run.
	Register func(cmd *kingpin.CmdClause) func(ctx context.Context, stdout, stderr io.Writer) error
}

// UsageError is a mistake in the command line; it exits with ExitUsage.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

type options struct {
	configPath  string
	listMetrics string
	healthURL   string
	reloadToken string
	web         *web.FlagConfig
	log         *promslog.Config

	runtimeMetrics bool
}

// exitRequest ends parsing when kingpin has printed help or the version.
type exitRequest int

// Main runs the program with the process's arguments and signals and returns
// its exit code.
func Main(p Program) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return p.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// Run runs the program until ctx ends and returns its exit code.
func (p Program) Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := p.run(ctx, args, stdout, stderr)
	if err == nil {
		return ExitOK
	}
	for line := range strings.SplitSeq(strings.TrimRight(err.Error(), "\n"), "\n") {
		fmt.Fprintf(stderr, "%s: %s\n", p.Name, line)
	}
	var usage *UsageError
	if errors.As(err, &usage) {
		return ExitUsage
	}
	return ExitError
}

func (p Program) run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	app, opts, commands := p.application(stdout, stderr)
	selected, done, err := parse(app, args)
	if err != nil {
		return &UsageError{fmt.Errorf("%w; see %s --help", err, p.Name)}
	}
	if done {
		return nil
	}
	if opts.listMetrics != "" {
		return p.printMetrics(stdout, opts.listMetrics)
	}
	switch selected {
	case "run":
		return p.serve(ctx, opts, stderr)
	case "check-config":
		return p.checkConfig(opts, stdout)
	case "healthcheck":
		return healthcheck(ctx, opts.healthURL, *opts.web.WebConfigFile, stdout)
	}
	return commands[selected](ctx, stdout, stderr)
}

type commandFunc func(ctx context.Context, stdout, stderr io.Writer) error

func (p Program) application(stdout, stderr io.Writer) (*kingpin.Application, *options, map[string]commandFunc) {
	app := kingpin.New(p.Name, p.Description)
	app.UsageWriter(stdout).ErrorWriter(stderr)
	app.Terminate(func(code int) { panic(exitRequest(code)) })
	app.Version(version.String(p.Name))
	app.HelpFlag.Short('h')

	opts := &options{log: &promslog.Config{Writer: stderr}}
	app.Flag("config", "Configuration file (YAML).").StringVar(&opts.configPath)
	app.Flag("list-metrics", "Print every metric of this program as text, json or markdown and exit.").
		PlaceHolder("FORMAT").EnumVar(&opts.listMetrics, catalog.Formats()...)
	opts.web = kingpinflag.AddFlags(app, p.DefaultAddress)
	app.Flag("web.reload-token-file", "File with the bearer token that POST /-/reload needs, mode 0600. Without it only SIGHUP reloads, and who authenticates as --web.config.file demands.").
		PlaceHolder("FILE").StringVar(&opts.reloadToken)
	promslogflag.AddFlags(app, opts.log)
	app.Flag("runtime-metrics", "Export all metrics of the Go runtime, the process and the metrics page (go_*, process_*, promhttp_*), not only the usual six.").
		BoolVar(&opts.runtimeMetrics)

	if p.Flags != nil {
		p.Flags(app)
	}
	app.Command("run", "Run the daemon.").Default()
	app.Command("check-config", "Read and validate the configuration, then exit.")
	health := app.Command("healthcheck", "Ask a running instance whether it is ready; exit 0 if it is.")
	health.Flag("url", "Readiness URL of the instance.").Default("http://" + p.DefaultAddress + "/-/ready").StringVar(&opts.healthURL)

	commands := make(map[string]commandFunc, len(p.Commands))
	for _, c := range p.Commands {
		commands[c.Name] = c.Register(app.Command(c.Name, c.Help))
	}
	return app, opts, commands
}

// parse returns the selected command; done tells that help or version was
// printed and nothing is left to do.
func parse(app *kingpin.Application, args []string) (selected string, done bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(exitRequest); !ok {
				panic(r)
			}
			done = true
		}
	}()
	selected, err = app.Parse(args)
	return selected, false, err
}

func (p Program) printMetrics(w io.Writer, format string) error {
	c, err := catalog.Load()
	if err != nil {
		return err
	}
	return catalog.Print(w, c.Part(p.Part), format)
}

func (p Program) checkConfig(opts *options, stdout io.Writer) error {
	if opts.configPath == "" {
		return &UsageError{errors.New("check-config needs --config FILE")}
	}
	summary, err := p.Check(opts.configPath)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s: OK, %s\n", opts.configPath, summary)
	return err
}
