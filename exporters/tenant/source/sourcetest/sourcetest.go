// Package sourcetest has what tests of sources need.
package sourcetest

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/exporters/tenant/source"
	"vigia/internal/catalog"
	"vigia/internal/ports"
)

// Families returns the exporter's metrics.
func Families(t testing.TB) source.Families {
	t.Helper()
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c.NewFactory("exporter", prometheus.NewRegistry())
}

// View returns the view of a single scrape.
func View(list, gone []ports.Port, states []ports.SourceState, now time.Time) *source.View {
	return new(source.Views).Next(list, gone, states, now)
}

// Fixed returns a poller that has read v. It must not run.
func Fixed[T any](v T) *source.Poller[T] {
	p := source.NewPoller(time.Hour, func(context.Context) (T, error) { return v, nil })
	_ = p.Refresh(context.Background()) // cannot fail
	return p
}
