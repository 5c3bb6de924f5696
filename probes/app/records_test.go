package app

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"vigia/probes/records"
)

// dumped returns how many answers from b the records have of probes that were sent until a time, and how many of all are
// good. Each is looked at.
func (d *running) dumped(until time.Time) (received, good float64) {
	d.t.Helper()
	var out, stderr bytes.Buffer
	code := Program().Run(context.Background(), []string{"dump", "--url", d.url, "--dst", "b", "--probe", "stamp-64"}, &out, &stderr)
	if code != 0 {
		d.t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	for line := range strings.Lines(out.String()) {
		var l records.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			d.t.Fatal(err)
		}
		sent, err := time.Parse(time.RFC3339Nano, l.Time)
		if l.Dst != "b" || err != nil || time.Since(sent) > time.Minute+patience {
			d.t.Fatalf("%+v %v", l, err)
		}
		if l.Outcome != "received" {
			continue
		}
		if !sent.After(until) {
			received++
		}
		if l.Verdict == "good" {
			good++
			if *l.RTT != l.T4-l.T1-(l.T3-l.T2) || *l.RTT <= 0 || len(l.Kernel) != 4 || l.Application < *l.RTT {
				d.t.Errorf("%+v", l)
			}
		}
	}
	return received, good
}

// TestRecordsOfTheLastMinute dumps what a daemon remembers and computes its counters
// again from that, by HTTP and by command.
func TestRecordsOfTheLastMinute(t *testing.T) {
	t.Parallel()
	left, right := network(t)
	a := start(t, node("a", left, "10.9.0.1",
		aim("b", "stamp-64", left, "10.9.0.1", "10.9.0.2:862"), aim("nobody", "stamp-64", left, "10.9.0.1", "10.9.0.77:862")))
	start(t, node("b", right, "10.9.0.2"))
	labels := []string{"src", "a", "dst", "b", "path", "direct", "tenant", "_infra", "probe", "stamp-64"}
	a.waitFor("samples", func() bool { v, _ := a.scrape().value("vigia_probe_rtt_seconds"); return v > 50 })
	before := a.scrape().must(t, "vigia_probe_received_total", labels...)
	scraped := time.Now()
	a.waitFor("records of all that the counter has", func() bool { // those that wait for their stamps come later
		received, good := a.dumped(scraped)
		return received >= before && good > 0
	})
	a.waitFor("losses", func() bool { // after the records were compared, which go back a minute
		return a.scrape().must(t, "vigia_probe_sent_total", "src", "a", "dst", "nobody", "path", "direct", "tenant", "_infra", "probe", "stamp-64") > 0
	})
	if code, body := a.get("/debug/records?dst=nobody"); code != http.StatusOK || !strings.Contains(body, `"outcome":"lost","cause":`) || strings.Contains(body, `"dst":"b"`) {
		t.Errorf("%d %.300s", code, body)
	}
	for query, want := range map[string]string{
		"?port=1":            `"port" is not a label to select by; known here: dst, path, tenant, probe`,
		"?dst=a&dst=b":       "label dst is given 2 times; give it once",
		"?dst=b&tenant=blue": "no target has these labels",
	} {
		if code, body := a.get("/debug/records" + query); code < 400 || code >= 500 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
}

// TestOneWayDelaysNeedABound states the bound of both clocks, which are one and the
// same here, and then takes it away from one.
func TestOneWayDelaysNeedABound(t *testing.T) {
	t.Parallel()
	left, right := network(t)
	config := node("a", left, "10.9.0.1", aim("b", "stamp-64", left, "10.9.0.1", "10.9.0.2:862"))
	a := start(t, config)
	start(t, node("b", right, "10.9.0.2"))
	labels := []string{"src", "a", "dst", "b", "path", "direct", "tenant", "_infra", "probe", "stamp-64"}
	forward := append(labels, "direction", "forward")
	oneway := func() float64 {
		v, _ := a.scrape().value("vigia_probe_oneway_delay_seconds", forward...)
		return v
	}
	a.waitFor("one-way delays", func() bool { return oneway() > 20 })
	if bound := a.scrape().must(t, "vigia_probe_clock_error_bound_seconds", forward...); bound < 20e-6 || bound > 21e-6 {
		t.Errorf("the bound is %v, stated were 10 us at each end", bound)
	}
	// A bound that is too wide, and a reload that says so.
	if code, body := a.reload(strings.Replace(config, "error_bound: 10us", "error_bound: 10us, max_oneway_error: 15us", 1)); code != http.StatusOK {
		t.Fatal(body)
	}
	seen := oneway()
	count := func() float64 { v, _ := a.scrape().value("vigia_probe_rtt_seconds", labels...); return v }
	from := count()
	a.waitFor("further samples", func() bool { return count() > from+50 })
	if got := oneway(); got > seen+5 {
		t.Errorf("%v one-way delays after the limit was lowered, %v before", got, seen)
	}
}
