// Package pages shows the daemon's targets to people and programs over HTTP: the first page,
// the state of every target, the records of the last minute, and what happened when paths
// turned bad.
package pages

import (
	"io"
	"net/http"
	"time"

	"vigia/probes/export"
	"vigia/probes/pairs"
	"vigia/probes/records"
	"vigia/probes/sender"
)

// Targets tell the state of every target: the sender.
type Targets interface {
	Snapshot(to []sender.Status) ([]sender.Status, sender.Totals, error)
}

// Records are what is kept of the last probes of every target: export.Recorders.
type Records interface {
	Recent(l sender.Labels, n int) []*records.Line
	Write(w io.Writer, wanted func(sender.Labels) bool, none func()) error
}

// PathMTUs tell the path MTU of targets whose class searches it: export.PathMTUs.
type PathMTUs interface {
	Known(l sender.Labels) (p export.PathMTU, ok bool)
}

// Pairs are the pairs of meshes: export.Recorders.
type Pairs interface {
	Pairs() []export.PairState
	Ask(dst string, ttl time.Duration) error
}

// Pages are the daemon's.
type Pages struct {
	Targets  Targets
	Records  Records
	PathMTUs PathMTUs
	Pairs    Pairs
	Moments  Moments
	// Node returns the node's name and what it does, in a line.
	Node func() (name, summary string)
	// Ready returns why the daemon is not ready, or nil.
	Ready func() error
}

// Register serves the pages beside the first.
func (s *Pages) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/targets", s.handleTargets)
	mux.HandleFunc("GET "+records.Path, s.handleRecords)
	mux.HandleFunc("GET /v1/moments", s.handleMoments)
	mux.HandleFunc("GET "+pairs.Path, s.handlePairs)
	mux.HandleFunc("POST "+pairs.Path, s.handleAsk)
}
