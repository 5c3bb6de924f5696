package app

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/probes/clockerror"
	"vigia/probes/health"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/sender"
	"vigia/probes/settings"
)

// seriesOfATarget counts the series, native histograms being one each, that a STAMP
// target has: it makes a target, sends nothing, and looks.
func seriesOfATarget() (count int, err error) {
	c, err := catalog.Load()
	if err != nil {
		return 0, err
	}
	reg := prometheus.NewRegistry()
	factory := c.NewFactory("probe", reg)
	s := &service{clock: clockerror.New()}
	s.paths.Store(&[]settings.Path{})
	s.recorders = newRecorders(factory, reg, health.New(os.DirFS("/")))
	s.objectives = s.recorders.objectives
	s.sender, err = sender.New(sender.Options{Logger: slog.New(slog.DiscardHandler), NewRecorder: s.recorders.recorder})
	if err != nil {
		return 0, err
	}
	defer s.sender.Close()
	reg.MustRegister(newCollector(factory, s))
	loopback := netip.MustParseAddr("127.0.0.1")
	target := sender.Target{
		Labels: sender.Labels{Src: "a", Dst: "b", Path: "p", Tenant: "t", Probe: "c"},
		Source: netip.AddrPortFrom(loopback, 0), Host: loopback.String(), Port: 862, Protocol: stampprobe.Protocol{}, Size: 64, Interval: time.Second, Deadline: time.Second,
	}
	if err := s.sender.Apply([]sender.Target{target}); err != nil {
		return 0, err
	}
	families, err := reg.Gather()
	if err != nil {
		return 0, err
	}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "dst" {
					count++
				}
			}
		}
	}
	if count == 0 {
		return 0, errors.New("a target has no series")
	}
	return count, nil
}
