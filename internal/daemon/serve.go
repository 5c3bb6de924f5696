package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/exporter-toolkit/web"

	"vigia/internal/catalog"
	"vigia/internal/exposition"
	"vigia/internal/realtime"
	"vigia/internal/version"
)

const (
	readHeaderTimeout  = 10 * time.Second
	readTimeout        = 30 * time.Second
	writeTimeout       = 60 * time.Second
	shutdownTimeout    = 5 * time.Second
	maxHeaderBytes     = 64 << 10
	maxMetricsRequests = 16
	healthTimeout      = 5 * time.Second
)

// instance is one run of a program.
type instance struct {
	program Program
	opts    *options
	gate    reloadGate
	env     Env
	service Service
	metrics http.Handler // the service's own, or nil
	fast    *fastPage    // nil for a service without

	reloadOK   prometheus.Gauge
	reloadTime prometheus.Gauge
	reloads    chan chan error
	stopping   chan struct{} // closed when nobody reloads any more
}

func (p Program) serve(ctx context.Context, opts *options, stderr io.Writer) error {
	// Before anything else: until then SIGHUP ends the program, and systemd may send one as soon as it has started it.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	if opts.configPath == "" {
		return &UsageError{errors.New("--config FILE is missing")}
	}
	if _, err := p.Check(opts.configPath); err != nil {
		return err
	}
	if err := web.Validate(*opts.web.WebConfigFile); err != nil {
		return fmt.Errorf("--web.config.file %s: %w", *opts.web.WebConfigFile, err)
	}
	gate := reloadGate{tokenFile: opts.reloadToken, webConfig: *opts.web.WebConfigFile}
	if err := gate.check(); err != nil {
		return err
	}
	listeners, err := listen(*opts.web.WebListenAddresses)
	if err != nil {
		return err
	}
	defer closeAll(listeners)

	d, err := p.newInstance(opts, gate)
	if err != nil {
		return err
	}
	beat, stop := watchdog(d.env.Logger)
	defer stop()
	d.service, err = p.Start(ctx, d.env)
	if err != nil {
		return err
	}
	if m, ok := d.service.(MetricsHandler); ok {
		d.metrics = m.Metrics()
	}
	if f, ok := d.service.(FastPager); ok {
		d.fast = newFastPage(f, d.env.Logger, time.Now)
	}
	d.reloaded(nil)
	d.env.Logger.Info("started", "version", version.Version, "config", opts.configPath)
	return d.run(ctx, listeners, hangup, beat)
}

func listen(addresses []string) ([]net.Listener, error) {
	var out []net.Listener
	for _, address := range addresses {
		l, err := net.Listen("tcp", address)
		if err != nil {
			closeAll(out)
			if errors.Is(err, syscall.EADDRINUSE) {
				return nil, fmt.Errorf("address %s is in use; stop the process that holds it or choose another with --web.listen-address", address)
			}
			return nil, fmt.Errorf("listen on --web.listen-address %s: %w", address, err)
		}
		out = append(out, l)
	}
	return out, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}

func (p Program) newInstance(opts *options, gate reloadGate) (*instance, error) {
	c, err := catalog.Load()
	if err != nil {
		return nil, err
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(runtimeCollectors(opts.runtimeMetrics)...)
	metrics := c.NewFactory(p.Part, reg)
	self := "vigia_" + p.Part + "_"
	metrics.Gauge(self+"build_info").WithLabelValues(version.Version, version.Revision, runtime.Version()).Set(1)
	d := &instance{
		program:    p,
		opts:       opts,
		gate:       gate,
		reloadOK:   metrics.Gauge(self + "config_last_reload_successful").WithLabelValues(),
		reloadTime: metrics.Gauge(self + "config_last_reload_success_timestamp_seconds").WithLabelValues(),
		reloads:    make(chan chan error),
		stopping:   make(chan struct{}),
		env: Env{
			ConfigPath: opts.configPath,
			Logger:     promslog.New(opts.log),
			Registry:   reg,
			Metrics:    metrics,
			Mux:        http.NewServeMux(),
		},
	}
	return d, d.routes()
}

func (d *instance) routes() error {
	mux := d.env.Mux
	handling := promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(d.env.Logger.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxMetricsRequests,
		EnableOpenMetrics:   true,
		DisableCompression:  true, // exposition.Whole does it, for large pages
	}
	if d.opts.runtimeMetrics {
		handling.Registry = d.env.Registry
	}
	handler := promhttp.HandlerFor(d.env.Registry, handling)
	if d.opts.runtimeMetrics {
		handler = promhttp.InstrumentMetricHandler(d.env.Registry, handler)
	}
	registry := exposition.Whole(realtime.Yielding(handler))
	// GET /metrics: every metric of the program, scraped every 15 s.
	mux.HandleFunc("GET "+catalog.MainPage, func(w http.ResponseWriter, r *http.Request) {
		if d.metrics != nil {
			d.metrics.ServeHTTP(w, r)
			return
		}
		registry.ServeHTTP(w, r)
	})
	// GET /metrics/fast: what isolation needs within a second, scraped every second.
	mux.HandleFunc("GET "+catalog.FastPage, func(w http.ResponseWriter, r *http.Request) {
		if d.fast == nil {
			http.NotFound(w, r)
			return
		}
		d.fast.ServeHTTP(w, r)
	})
	// GET /-/healthy: 200 while the program is alive.
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "healthy")
	})
	// GET /-/ready: 200 while the program can do all of its work, else 503 and why not.
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := d.service.Ready(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.HandleFunc("POST /-/reload", d.handleReload)
	landing, err := web.NewLandingPage(web.LandingConfig{
		Name:        d.program.Name,
		Description: d.program.Description,
		Version:     version.Version,
		Links: []web.LandingLinks{
			{Address: catalog.MainPage, Text: "Metrics"},
			{Address: catalog.FastPage, Text: "Metrics of every second"},
			{Address: "/-/ready", Text: "Ready"},
		},
	})
	if err != nil {
		return fmt.Errorf("build landing page: %w", err)
	}
	// GET /{$}: a page for people, with links to the others.
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if own, ok := d.service.(Lander); ok {
			own.ServeLanding(w, r)
			return
		}
		landing.ServeHTTP(w, r)
	})
	return nil
}

// handleReload answers POST /-/reload: reads the configuration again and puts all of it in force, or nothing; needs the
// token of --web.reload-token-file.
func (d *instance) handleReload(w http.ResponseWriter, r *http.Request) {
	if code, why := d.gate.refuse(r); code != 0 {
		if code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q", d.program.Name))
		}
		d.env.Logger.Debug("cannot reload for a client", "peer", r.RemoteAddr, "reason", why)
		http.Error(w, why, code)
		return
	}
	answer := make(chan error, 1)
	select {
	case d.reloads <- answer:
	case <-d.stopping:
		http.Error(w, "the program is stopping", http.StatusServiceUnavailable)
		return
	case <-r.Context().Done():
		return
	}
	if err := <-answer; err != nil {
		http.Error(w, "reload failed, still running on the old configuration: "+err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, "reloaded")
}

// run serves until ctx ends, the service ends or a listener breaks. A hangup is a reload, and at
// every beat systemd's watchdog is told that neither this loop nor what Ready looks at hangs.
func (d *instance) run(ctx context.Context, listeners []net.Listener, hangup <-chan os.Signal, beat <-chan time.Time) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := &unasked{}
	server := &http.Server{
		Handler:           d.env.Mux,
		ConnState:         idle.changed,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(d.env.Logger.Handler(), slog.LevelWarn),
	}
	server.RegisterOnShutdown(idle.close)
	served := make(chan error, 1)
	go func() { served <- web.ServeMultiple(listeners, server, d.opts.web, d.env.Logger) }()
	worked := make(chan error, 1)
	go func() { worked <- d.service.Run(ctx) }()

	var result error
	for running := true; running; {
		select {
		case <-hangup:
			d.reload(ctx)
		case answer := <-d.reloads:
			answer <- d.reload(ctx)
		case <-beat:
			_ = d.service.Ready() // that it answers counts: who is not ready does not hang
			alive(d.env.Logger)
		case err := <-served:
			result, running = fmt.Errorf("serve HTTP: %w", err), false
			served <- err
		case err := <-worked:
			result, running = err, false
			worked <- err
		case <-ctx.Done():
			running = false
		}
	}
	cancel()
	close(d.stopping)
	shutdownCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer stop()
	if err := server.Shutdown(shutdownCtx); err != nil && result == nil {
		d.env.Logger.Warn("cannot finish every request", "err", err)
	}
	if err := <-worked; err != nil && result == nil && !errors.Is(err, context.Canceled) {
		result = err
	}
	d.env.Logger.Info("stopped")
	return result
}

func (d *instance) reload(ctx context.Context) error {
	_, err := d.program.Check(d.opts.configPath)
	if err == nil {
		err = d.service.Reload(ctx, d.opts.configPath)
	}
	d.reloaded(err)
	if err != nil {
		d.env.Logger.Error("cannot reload, still running on the old configuration", "err", err)
		return err
	}
	d.env.Logger.Info("reloaded", "config", d.opts.configPath)
	return nil
}

func (d *instance) reloaded(err error) {
	if err != nil {
		d.reloadOK.Set(0)
		return
	}
	d.reloadOK.Set(1)
	d.reloadTime.SetToCurrentTime()
}
