package app

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"vigia/internal/catalog"
	"vigia/internal/testutil"
)

// TestFloodIsOnTheFastPageWhileItLasts floods a port, and finds its two series there and on
// the other page, then on neither.
func TestFloodIsOnTheFastPageWhileItLasts(t *testing.T) {
	r := newRig(t, "")
	d := r.start()
	quiet := []string{"vigia_exporter_flood_watched_ports"}
	if page := d.Scrape(catalog.FastPage); !slices.Equal(slices.Sorted(maps.Keys(page)), quiet) || page[quiet[0]] != 1 {
		t.Errorf("a quiet port: %v", page)
	}
	labels := `port="p1",tenant="red"`
	score, ports := series("vigia_port_flood_score", labels), series("vigia_port_udp_destination_ports", labels)
	testutil.WaitFor(t, "the flood on the fast page", func() bool {
		r.udp(3000, 100, func(i int) int { return 1024 + i*17%60000 })
		page := d.Scrape(catalog.FastPage)
		if len(page) > 3 {
			t.Fatalf("more than two series of a port: %v", page)
		}
		return page[score] >= 70 && page[ports] > 100
	})
	main := d.Metrics()
	if _, ok := main[score]; !ok {
		t.Error("the other page has no flood score")
	}
	if _, ok := main[quiet[0]]; ok {
		t.Error("what is on the fast page alone is on the other one, too")
	}
	testutil.WaitFor(t, "the flood to be over", func() bool {
		return slices.Equal(slices.Sorted(maps.Keys(d.Scrape(catalog.FastPage))), quiet)
	})
	if v, ok := d.Metrics()[score]; !ok || v >= 30 {
		t.Errorf("then the other page says %v, %v", v, ok)
	}
}

// TestFastPageWithoutItsCollectorIsEmpty: who switches the signals off is not told of a page that is down.
func TestFastPageWithoutItsCollectorIsEmpty(t *testing.T) {
	r := newRig(t, "")
	d := testutil.StartDaemon(t, run, "--config", r.config, "--no-collector.bpf")
	if code, body := d.Get(catalog.FastPage); code != http.StatusOK || strings.TrimSpace(body) != "" {
		t.Errorf("%d %q", code, body)
	}
}
