package programs

import (
	"testing"
	"time"

	"vigia/internal/bpf/vport"
)

func TestOnlyPortsThatSendAreRead(t *testing.T) {
	q := make(quiet)
	place := vport.Place{Life: vport.Life{Index: 5, SinceNs: 1}}
	var c vport.Counters
	now, reads := time.Unix(1000, 0), 0
	see := func(after time.Duration, udp, tcp uint64) (vport.Signals, bool) {
		t.Helper()
		now = now.Add(after)
		c.Packets[vport.FromTenant][0], c.Packets[vport.FromTenant][1] = tcp, udp
		before := reads
		s, err := q.signals(now, place, &c, func(vport.Place) (vport.Signals, error) {
			reads++
			return vport.Signals{UDPPackets: 7, FloodScore: 80, FloodSinceNs: 42, FloodLastNs: 43}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return s, reads > before
	}
	for i, tc := range []struct {
		after    time.Duration
		udp, tcp uint64
		read     bool
	}{
		{0, 10, 0, true},                     // never seen
		{time.Second, 10, 0, true},           // its windows still look back on it
		{50 * time.Millisecond, 10, 0, true}, // and one may not be complete
		{100 * time.Millisecond, 10, 0, false},
		{time.Hour, 10, 0, false},
		{time.Second, 11, 0, true}, // it sent
		{time.Second, 11, 1, true}, // it began a flow
		{500 * time.Millisecond, 11, 1, true},
		{2 * time.Second, 11, 1, false},
	} {
		s, read := see(tc.after, tc.udp, tc.tcp)
		if read != tc.read {
			t.Errorf("step %d: read %v, want %v", i, read, tc.read)
		}
		if s.FloodSinceNs != 42 || s.FloodLastNs != 43 || (s.FloodScore != 0) != read || (s.UDPPackets != 0) != read {
			t.Errorf("step %d: %+v", i, s)
		}
	}
	q.forget([]vport.Place{place})
	if len(q) != 1 {
		t.Error("a live port is forgotten")
	}
	q.forget(nil)
	if len(q) != 0 {
		t.Error("a port that is gone is remembered")
	}
}
