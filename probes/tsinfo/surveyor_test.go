package tsinfo

import (
	"context"
	"testing"
)

func TestSurveyorLooksWhenToldToAndEnds(t *testing.T) {
	s := NewSurveyor()
	if s.Mode() != Auto {
		t.Errorf("mode %v before anybody said one", s.Mode())
	}
	s.SetMode(Off)
	s.Soon() // nobody waits for it: it must not block, and counts once
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looks, ended := make(chan Mode), make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, func() { looks <- s.Mode() })
	}()
	if m := <-looks; m != Off {
		t.Errorf("looked with mode %v, want Off", m)
	}
	s.SetMode(Enable)
	if m := <-looks; m != Enable {
		t.Errorf("looked with mode %v, want Enable", m)
	}
	cancel()
	<-ended // and no look was owed from the two calls at the start, which would block here
}
