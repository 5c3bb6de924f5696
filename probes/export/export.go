// Package export turns what the daemon measures into metrics. What it reads it asks for by
// the small interfaces here; the names, types and labels of the metrics are in the
// catalogue.
package export

import (
	"time"

	"vigia/probes/clockerror"
	"vigia/probes/health"
	"vigia/probes/objective"
	"vigia/probes/protocol"
	"vigia/probes/sender"
	"vigia/probes/settings"
	"vigia/probes/twin"
)

// Targets tell the state of every target, all at the same moment: the sender.
type Targets interface {
	Snapshot(to []sender.Status) ([]sender.Status, sender.Totals, error)
}

// Host tells whether this host is fit to measure: health.Monitor.
type Host interface {
	Kernel() (r health.Reason, unfit bool)
	Application(lag int64) (r health.Reason, unfit bool)
	Unfit(health.Reason) bool
	Reading() health.Reading
	Busy() time.Duration
}

// Clock tells the error of this host's clock: clockerror.Watch.
type Clock interface {
	Read() clockerror.Reading
}

// Objectives judge the probes of tenants: objective.Watch.
type Objectives interface {
	Probe(tenant string, answered bool, rtt time.Duration, now time.Time)
	State(now time.Time) (burning map[string]bool)
}

// Judges keep the objectives of targets: objective.Book.
type Judges interface {
	Of(sender.Labels) *objective.Judge
}

// Twins compare probes of the same moment: twin.Pairs.
type Twins interface {
	Compared(sender.Labels) bool
	Settled(sender.Labels, *protocol.Probe, twin.Observer)
}

// Paths tell the configurations under comparison.
type Paths func() []settings.Path

func labelValues(l sender.Labels) []string {
	return []string{l.Src, l.Dst, l.Path, l.Tenant, l.Probe}
}
