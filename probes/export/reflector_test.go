package export

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/probes/reflector"
	"vigia/probes/sockets"
)

func TestListenerLabels(t *testing.T) {
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	l := NewReflector(c.NewFactory("probe", reg))
	red, own := sockets.Key{Netns: "red"}, sockets.Key{}
	l.Counters(red).Rejected(reflector.RateLimited)
	l.Counters(own).Overflowed(7)
	got := values(t, reg)
	if got["vigia_reflector_rejected_total red rate_limited"] != 1 || got["vigia_reflector_overflow_total _host"] != 7 || len(got) != 16 {
		t.Errorf("%d series: %v", len(got), got)
	}
	l.Remove(red)
	l.Counters(own) // its socket was opened again
	if got := values(t, reg); len(got) != 8 || got["vigia_reflector_overflow_total _host"] != 7 {
		t.Errorf("after one is gone: %v", got)
	}
	l.Remove(own)
	if got := values(t, reg); len(got) != 0 {
		t.Errorf("after all are gone: %v", got)
	}
}
