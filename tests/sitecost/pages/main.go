// Command pages answers scrapes for the agents of a whole site: each node has an address in 127.0.0.0/8, each agent a
// port of its own. The pages are those of one real node, captured twice: names are exchanged, counters and histograms go
// on as they went between the two captures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		slog.Error("cannot serve the pages", "err", err)
		os.Exit(1)
	}
}

// agents are the programs of a node, and the ports on which they are scraped.
var agents = map[string]int{"probe": 9871, "exporter": 9872, "enforcer": 9873, "node": 9100}

func run(args []string) error {
	flags := flag.NewFlagSet("pages", flag.ContinueOnError)
	captures := flags.String("captures", "", "folder of the captured pages")
	nodes := flags.Int("nodes", 4, "nodes of the site")
	life := flags.Duration("port-life", 24*time.Hour, "how long a tenant's port stays; 0: for ever")
	refresh := flags.Duration("refresh", 5*time.Second, "how often the values of the slow pages go on")
	personalities := flags.Int("personalities", 2, "nodes with different values; the others repeat them under their own names")
	if err := flags.Parse(args); err != nil {
		return err
	}
	site, err := load(*captures, *nodes, *life, *refresh, *personalities)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return serve(ctx, site)
}

// serve answers on the ports of all agents that have pages, until ctx ends.
func serve(ctx context.Context, site *site) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, agent := range site.agents() {
		var config net.ListenConfig
		// Only what comes by the loopback device, whichever of its addresses it is for.
		config.Control = func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) { failed = syscall.BindToDevice(int(fd), "lo") })
			return errors.Join(err, failed)
		}
		listener, err := config.Listen(ctx, "tcp4", fmt.Sprintf("0.0.0.0:%d", agents[agent]))
		if err != nil {
			return fmt.Errorf("listen for %s: %w", agent, err)
		}
		server := &http.Server{Handler: site.handler(agent), ReadHeaderTimeout: 10 * time.Second}
		wg.Go(func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("serve %s: %w", agent, err))
			}
		})
		wg.Go(func() {
			<-ctx.Done()
			_ = server.Close()
		})
	}
	fmt.Println("ready")
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
