package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vigia/internal/daemon"
	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
	"vigia/probes/sender"
)

const start = int64(1_700_000_000_000_000_000)

var labels = sender.Labels{Src: "a", Dst: "b", Path: "p", Tenant: "t", Probe: "c"}

// lost is a probe that was sent at a time and has no stamps.
func lost(sequence uint64, sent int64) *protocol.Probe {
	return &protocol.Probe{Sequence: sequence, Sent: sent, State: protocol.Lost, Cause: accounting.Forward}
}

func lines(t *testing.T, r *Ring) (all []Line) {
	t.Helper()
	var out bytes.Buffer
	if err := r.Write(&out, labels); err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(&out)
	for {
		var l Line
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
}

// TestRecordsComeBackExactly demands that every figure can be computed again.
func TestRecordsComeBackExactly(t *testing.T) {
	var r Ring
	t1 := start + 500
	p := protocol.Probe{
		Sequence: 7, Sent: t1, State: protocol.Answered, Application: 120_000, Verdict: delay.Good,
		Stamps: delay.Stamps{T1: t1, T2: t1 - 3_600_000_000_000, T3: t1 - 3_600_000_000_000 + 40_000, T4: t1 + 90_000, Kernel: 15},
	}
	r.Add(&p, start+1e9)
	r.Add(lost(8, start+2e9), start+2e9)
	rtt := int64(50_000)
	want := []Line{
		{
			Src: "a", Dst: "b", Path: "p", Tenant: "t", Probe: "c", Sequence: 7, Outcome: "received", Verdict: "good",
			Time: "2023-11-14T22:13:20.0000005Z", Kernel: []string{"t1", "t2", "t3", "t4"}, Source: "kernel", T1: p.Stamps.T1, T2: p.Stamps.T2, T3: p.Stamps.T3, T4: p.Stamps.T4,
			RTT: &rtt, Application: 120_000,
		},
		{Src: "a", Dst: "b", Path: "p", Tenant: "t", Probe: "c", Sequence: 8, Outcome: "lost", Cause: "forward", Time: "2023-11-14T22:13:22Z"},
	}
	if diff := cmp.Diff(want, lines(t, &r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Of a device's stamps, whose clock may be anywhere, the differences come back.
func TestRecordsOfHardwareStamps(t *testing.T) {
	var r Ring
	p := protocol.Probe{
		Sequence: 7, Sent: start, State: protocol.Answered, Verdict: delay.Good,
		Stamps: delay.Stamps{T1: 5000, T2: 77_000, T3: 78_000, T4: 9000, Kernel: 15, Source: delay.Hardware, Far: delay.Hardware},
	}
	r.Add(&p, start)
	l := lines(t, &r)[0]
	if l.Source != "hardware" || *l.RTT != 3000 || l.T2-l.T1 != 72_000 || l.T3-l.T2 != 1000 || l.T4-l.T1 != 4000 {
		t.Errorf("%+v", l)
	}
}

func TestOldRecordsGo(t *testing.T) {
	var r Ring
	const every = int64(1e8)
	for i := range int64(5000) {
		r.Add(lost(uint64(i), start+i*every), start+i*every)
		if want := int(min(i, Horizon/every)) + 1; r.Len() != want {
			t.Fatalf("%d records after %d, want %d", r.Len(), i+1, want)
		}
	}
	all := lines(t, &r)
	for i, l := range all {
		if int(l.Sequence) != 5000-len(all)+i {
			t.Fatalf("record %d has sequence number %d", i, l.Sequence)
		}
	}
	if kept := len(r.chunks) * chunkSize; kept > r.Len()+2*chunkSize {
		t.Errorf("memory for %d records, %d are kept", kept, r.Len())
	}
	copied := r.Clone()
	r.Add(lost(9999, start+5000*every+Horizon), start+5000*every+Horizon)
	if r.Len() != 1 || copied.Len() != len(all) || len(lines(t, copied)) != len(all) {
		t.Errorf("%d left, the copy has %d", r.Len(), copied.Len())
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var r Ring
	for i := range 2 * MaxRecords {
		r.Add(lost(uint64(i), start), start)
	}
	if r.Len() != MaxRecords || len(r.chunks) > MaxRecords/chunkSize+1 {
		t.Errorf("%d records in %d chunks", r.Len(), len(r.chunks))
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	var r Ring
	now := start
	p := lost(1, start)
	add := func() { now += 1e8; p.Sent = now; r.Add(p, now) }
	for range 3000 {
		add()
	}
	if n := testing.AllocsPerRun(5000, add); n != 0 {
		t.Errorf("%v allocations per record", n)
	}
}

func TestDump(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != Path || r.URL.Query().Get("dst") != "b" || r.URL.Query().Has("path") {
			http.Error(w, "asked for "+r.URL.String(), http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, "{}\n")
	}))
	defer server.Close()
	var out bytes.Buffer
	if err := dump(context.Background(), server.URL, url.Values{"dst": {"b"}}, &out); err != nil || out.String() != "{}\n" {
		t.Errorf("%q %v", out.String(), err)
	}
	if err := dump(context.Background(), server.URL, nil, &out); err == nil || !strings.Contains(err.Error(), "400 Bad Request: asked for "+Path) {
		t.Error(err)
	}
	var usage *daemon.UsageError
	for _, bad := range []string{"", "localhost", "ftp://x", "http://"} {
		if err := dump(context.Background(), bad, nil, &out); !errors.As(err, &usage) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	server.Close()
	if err := dump(context.Background(), server.URL, nil, &out); err == nil || errors.As(err, &usage) {
		t.Error(err)
	}
}
