package app

import (
	"fmt"
	"maps"
	"net/http"
	"testing"

	"vigia/internal/catalog"
	"vigia/internal/testutil"
)

// TestLimitsAppearOnTheFastPageAndVanish sets limits, removes one, lets one expire, and has
// one outlive the process.
func TestLimitsAppearOnTheFastPageAndVanish(t *testing.T) {
	r := newRig(t)
	const path = "/v1/ports/p-red/limit"
	limited := func(protocol string, rate float64) map[string]float64 {
		return map[string]float64{fmt.Sprintf(`vigia_isolation_limit_bytes_per_second{direction="from_tenant",port="p-red",protocol=%q,tenant="red"}`, protocol): rate}
	}
	await := func(what string, want map[string]float64) {
		t.Helper()
		var page map[string]float64
		testutil.WaitFor(t, what, func() bool {
			page = r.d.Scrape(catalog.FastPage)
			if len(page) > 1 {
				t.Fatalf("more than one series of one port: %v", page)
			}
			return maps.Equal(page, want)
		})
	}
	put := func(protocol string, rate uint64, ttl float64) {
		t.Helper()
		if code, got := r.call("PUT", path, body(actionA, "red", protocol, rate, 0, ttl)); code != http.StatusOK {
			t.Fatalf("%d %+v", code, got)
		}
	}
	await("a page without limits", nil)
	put("udp", guarantee, 60)
	await("the limit", limited("udp", guarantee))
	put("all", 2*guarantee, 60)
	await("the change of it", limited("all", 2*guarantee))
	for series, rate := range limited("all", 2*guarantee) {
		if v, ok := r.d.Metrics()[series]; !ok || v != rate {
			t.Errorf("the other page has %v, %v", v, ok)
		}
	}
	if code := r.d.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	r.start()
	await("the limit in a new process", limited("all", 2*guarantee))
	if code, got := r.call("DELETE", path+"?id="+actionA, ""); code != http.StatusOK {
		t.Fatalf("%d %+v", code, got)
	}
	await("no limit", nil)
	put("udp", guarantee, 1)
	await("that it expires", nil)
}
