package export

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/probes/bulk"
)

// bulkBench is the metrics of bulk tests, with two tests that a configuration has.
type bulkBench struct {
	*Bulk
	t        *testing.T
	reg      *prometheus.Registry
	log      bytes.Buffer
	left     uint64
	tcp, udp bulk.Target
}

func newBulkBench(t *testing.T) *bulkBench {
	t.Helper()
	b := &bulkBench{t: t, reg: prometheus.NewPedanticRegistry()}
	b.Bulk = NewBulk(factory(t, b.reg), b.reg, slog.New(slog.NewTextHandler(&b.log, nil)), func() uint64 { return b.left })
	b.tcp = bulk.Target{Labels: labels, Protocol: bulk.TCP, RateName: "unlimited"}
	b.udp = bulk.Target{Labels: labels, Protocol: bulk.UDP, RateName: "100Mbit"}
	return b
}

// value returns the series of a family whose labels have the words.
func (b *bulkBench) value(family string, words ...string) (v float64, ok bool) {
	b.t.Helper()
	for key, v := range values(b.t, b.reg) {
		have := strings.Fields(key)
		if have[0] == family && !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(have, w) }) {
			return v, true
		}
	}
	return 0, false
}

func (b *bulkBench) expect(want map[string]float64, words ...string) {
	b.t.Helper()
	for family, v := range want {
		if got, ok := b.value(family, words...); !ok || got != v {
			b.t.Errorf("%s %v is %v, %v; want %v", family, words, got, ok, v)
		}
	}
}

// TestBulkSeries follows the series of two tests from their configuration to their removal.
func TestBulkSeries(t *testing.T) {
	b := newBulkBench(t)
	b.left = 123
	if got := values(t, b.reg); len(got) != 1 || got["vigia_bulk_budget_remaining_bytes"] != 123 {
		t.Errorf("before there are tests: %v", got)
	}
	b.Done(&b.tcp, &bulk.Outcome{Result: bulk.Completed, Bytes: 1}) // of no test
	b.Set([][]bulk.Target{{b.tcp}, {b.udp}})
	b.expect(map[string]float64{
		"vigia_bulk_transferred_bytes_total": 0, "vigia_bulk_duration_seconds_total": 0, "vigia_bulk_retransmits_total": 0,
	}, "tcp", "unlimited")
	b.expect(map[string]float64{
		"vigia_bulk_transferred_bytes_total": 0, "vigia_bulk_sent_packets_total": 0, "vigia_bulk_received_packets_total": 0,
		"vigia_bulk_refused_packets_total": 0, "vigia_bulk_duplicate_packets_total": 0, "vigia_bulk_reordered_packets_total": 0,
	}, "udp", "100Mbit")
	for _, r := range bulk.Results() {
		b.expect(map[string]float64{"vigia_bulk_runs_total": 0}, "tcp", string(r))
	}
	if _, ok := b.value("vigia_bulk_goodput_bytes_per_second"); ok {
		t.Error("a goodput before any test")
	}
	b.Done(&b.tcp, &bulk.Outcome{
		Result: bulk.Completed, Bytes: 5_000_000, Duration: 2 * time.Second, Retransmits: 3, RTT: time.Millisecond, MinRTT: 500 * time.Microsecond,
		DeliveryRate: 2_600_000,
	})
	b.expect(map[string]float64{
		"vigia_bulk_transferred_bytes_total": 5_000_000, "vigia_bulk_duration_seconds_total": 2, "vigia_bulk_retransmits_total": 3,
		"vigia_bulk_goodput_bytes_per_second": 2_500_000, "vigia_bulk_rtt_seconds": 1e-3, "vigia_bulk_rtt_min_seconds": 5e-4,
		"vigia_bulk_delivery_rate_bytes_per_second": 2_600_000,
	}, "tcp")
	b.expect(map[string]float64{"vigia_bulk_runs_total": 1}, "tcp", "completed")
	b.Done(&b.udp, &bulk.Outcome{
		Result: bulk.Completed, Bytes: 900, Duration: time.Second, Packets: 100, Received: 90, Refused: 5, Duplicate: 2, Reordered: 3, Dropped: 4,
		Jitter: 20 * time.Microsecond,
	})
	b.expect(map[string]float64{
		"vigia_bulk_sent_packets_total": 100, "vigia_bulk_received_packets_total": 90, "vigia_bulk_refused_packets_total": 5,
		"vigia_bulk_duplicate_packets_total": 2, "vigia_bulk_reordered_packets_total": 3, "vigia_bulk_jitter_seconds": 20e-6,
	}, "udp")
	b.expect(map[string]float64{"vigia_bulk_lost_packets_total": 6}, "udp", "network")
	b.expect(map[string]float64{"vigia_bulk_lost_packets_total": 4}, "udp", "receiver_overflow")
	b.Set([][]bulk.Target{{b.udp}}) // a reload keeps what stays
	if _, ok := b.value("vigia_bulk_runs_total", "tcp"); ok {
		t.Error("a removed test has series")
	}
	b.expect(map[string]float64{"vigia_bulk_sent_packets_total": 100}, "udp")
	b.Set(nil)
	if got := values(t, b.reg); len(got) != 1 {
		t.Errorf("after all are removed: %v", slices.Sorted(maps.Keys(got)))
	}
}

// TestHalfTestsCountAsRunsAlone: what did not complete says nothing about throughput, and
// why is in the log.
func TestHalfTestsCountAsRunsAlone(t *testing.T) {
	b := newBulkBench(t)
	b.Set([][]bulk.Target{{b.tcp, b.udp}})
	for _, r := range bulk.Results() {
		if r == bulk.Completed {
			continue
		}
		b.Done(&b.udp, &bulk.Outcome{Result: r, Err: errors.New("because of " + string(r)), Bytes: 700, Duration: time.Second, Packets: 9})
		b.expect(map[string]float64{"vigia_bulk_runs_total": 1}, "udp", string(r))
		if !strings.Contains(b.log.String(), "because of "+string(r)) || !strings.Contains(b.log.String(), "cannot complete a bulk test") {
			t.Errorf("%s is not in the log:\n%s", r, b.log.String())
		}
	}
	b.expect(map[string]float64{"vigia_bulk_transferred_bytes_total": 0, "vigia_bulk_sent_packets_total": 0}, "udp")
	if _, ok := b.value("vigia_bulk_goodput_bytes_per_second"); ok {
		t.Error("a goodput of half a test")
	}
}

// TestChangedProtocolIsAnotherTest: the series of the former go away, also when a test of it
// ends afterwards.
func TestChangedProtocolIsAnotherTest(t *testing.T) {
	b := newBulkBench(t)
	was := b.udp
	b.Set([][]bulk.Target{{was}})
	is := was
	is.Protocol = bulk.TCP
	b.Set([][]bulk.Target{{is}})
	b.Done(&was, &bulk.Outcome{Result: bulk.Completed, Bytes: 900, Duration: time.Second, Packets: 100})
	for key, v := range values(t, b.reg) {
		if words := strings.Fields(key); slices.Contains(words, "udp") || words[0] == "vigia_bulk_transferred_bytes_total" && v != 0 {
			t.Errorf("%s is %v", key, v)
		}
	}
}
