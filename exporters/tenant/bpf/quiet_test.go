package bpf

import (
	"testing"
	"time"

	"vigia/internal/bpf/vport"
)

func TestOnlyPortsThatSendAreRead(t *testing.T) {
	var q quiet
	place := vport.Place{Incarnation: vport.Incarnation{Index: 5, SinceNs: 1}}
	others := []vport.Place{{Incarnation: vport.Incarnation{Index: 3}}, {Incarnation: vport.Incarnation{Index: 4}}}
	var c vport.Counters
	now, reads := time.Unix(1000, 0), 0
	see := func(after time.Duration, udp, tcp uint64) (vport.Signals, bool) {
		t.Helper()
		now = now.Add(after)
		c.Packets[vport.FromTenant][0], c.Packets[vport.FromTenant][1] = tcp, udp
		before := reads
		others = append(others[1:], others[0]) // it stands now here, now there
		q.follow(append(others[:reads%2:reads%2], place))
		s, err := q.signals(reads%2, now, place, &c, func(vport.Place) (vport.Signals, error) {
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
	q.follow([]vport.Place{{Incarnation: vport.Incarnation{Index: 5, SinceNs: 2}}})
	if len(q.ports) != 1 || q.ports[0].known {
		t.Error("a port that is gone is remembered")
	}
}
