package app

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"vigia/internal/testutil"
	"vigia/probes/moment"
)

// moments returns the records that a daemon shows.
func (d *running) moments(query string) (page struct {
	Node    string
	Moments []moment.Moment
},
) {
	d.t.Helper()
	code, body := d.get("/v1/moments" + query)
	if err := json.Unmarshal([]byte(body), &page); code != http.StatusOK || err != nil {
		d.t.Fatalf("%d %v %.300s", code, err, body)
	}
	return page
}

// TestMomentOfLoss lets the far end fall silent: the daemon records by itself what happened, once,
// and of that target alone.
func TestMomentOfLoss(t *testing.T) {
	t.Parallel()
	left, right := network(t)
	config := node("a", left, "10.9.0.1",
		aim("b", "stamp-64", left, "10.9.0.1", "10.9.0.2:862"),
		strings.Replace(aim("b", "stamp-64", left, "10.9.0.1", "10.9.0.3:862"), "path: direct", "path: again", 1)) + "moments: {interval: 10s}\n"
	config = strings.ReplaceAll(config, "deadline: 10s", "deadline: 1s") // lost soon
	testutil.IP(t, "-n", right, "addr", "add", "10.9.0.3/24", "dev", "veth0")
	b := node("b", right, "10.9.0.2")
	start(t, strings.Replace(b, "listeners: [", `listeners: [{netns: `+right+`, address: "10.9.0.3:862"}, `, 1))
	a := start(t, config)
	path := []string{"src", "a", "dst", "b", "path", "again", "tenant", "_infra", "probe", "stamp-64"}
	a.waitFor("samples", func() bool { v, _ := a.scrape().value("vigia_probe_rtt_seconds", path...); return v > 50 })
	testutil.Run(t, "ip", "netns", "exec", right, "nft", "add table inet t; add chain inet t c { type filter hook input priority 0; }; add rule inet t c ip daddr 10.9.0.3 drop")
	var found []moment.Moment
	a.waitFor("a record of the silence", func() bool {
		found = nil
		for _, m := range a.moments("?path=again&dst=b").Moments {
			if m.Why == moment.Loss && !m.Hops.Reached && m.Outcomes.Settled > 50 {
				found = append(found, m)
			}
		}
		return len(found) > 0
	})
	m := &found[0]
	if m.Src != "a" || m.Hops.From == "" || m.Hops.Hops[0].Outcome != moment.Silent || m.PathMTU.Outcome != "unreachable" || len(m.Outcomes.Lost) == 0 {
		t.Errorf("%+v, hops %+v, path MTU %+v", m, m.Hops, m.PathMTU)
	}
	if n := a.scrape().must(t, "vigia_probe_moments_total", "result", "bad"); n < 1 {
		t.Errorf("%v records are counted", n)
	}
	if page := a.moments("?limit=1"); page.Node != "a" || len(page.Moments) != 1 {
		t.Errorf("%+v", page)
	}
	if _, body := a.get("/"); !strings.Contains(body, `href="/v1/moments"`) {
		t.Error("the first page has no link to the records")
	}
}
