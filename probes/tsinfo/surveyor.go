package tsinfo

import (
	"context"
	"sync/atomic"
	"time"
)

// surveyInterval is how often routes and devices are looked at again.
const surveyInterval = time.Minute

// Surveyor says when devices are to be looked at, and with which mode.
type Surveyor struct {
	mode atomic.Uint32
	due  chan struct{}
}

// NewSurveyor returns a surveyor in mode Auto.
func NewSurveyor() *Surveyor { return &Surveyor{due: make(chan struct{}, 1)} }

// Mode returns whether hardware stamps are used.
func (s *Surveyor) Mode() Mode { return Mode(s.mode.Load()) }

// SetMode says whether hardware stamps are used, and has the devices looked at soon.
func (s *Surveyor) SetMode(m Mode) {
	s.mode.Store(uint32(m))
	s.Soon()
}

// Soon has the devices looked at soon, once for any number of calls.
func (s *Surveyor) Soon() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// Run calls look whenever the devices are to be looked at, until ctx ends.
func (s *Surveyor) Run(ctx context.Context, look func()) {
	ticker := time.NewTicker(surveyInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-s.due:
		}
		look()
	}
}
