package app

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"vigia/internal/testutil"
)

// sums adds up a family by the label dst.
func (s scrape) sums(family string) map[string]float64 {
	out := make(map[string]float64)
	if s[family] == nil {
		return out
	}
	for _, m := range s[family].Metric {
		for _, l := range m.Label {
			if l.GetName() == "dst" {
				out[l.GetValue()] += m.Counter.GetValue() + m.Gauge.GetValue()
			}
		}
	}
	return out
}

// TestEveryScrapeAddsUp scrapes as fast as it can while a third of the probes get
// lost, and demands of each scrape that its counters agree with each other.
func TestEveryScrapeAddsUp(t *testing.T) {
	t.Parallel()
	left, right := network(t)
	start(t, node("b", right, "10.9.0.2"))
	testutil.Run(t, "ip", "netns", "exec", right, "nft", "add table inet t; add chain inet t c { type filter hook input priority 0; }; add rule inet t c udp dport 862 numgen inc mod 3 == 0 drop")
	var targets []string
	for i := range 10 {
		targets = append(targets, aim(fmt.Sprint("b", i), "stamp-64", left, "10.9.0.1", "10.9.0.2:862"))
	}
	config := strings.Replace(node("a", left, "10.9.0.1", targets...), "deadline: 10s", "deadline: 50ms", 1)
	a := start(t, config)
	scrapes := 0
	a.waitFor("a good number of losses", func() bool {
		s := a.scrape()
		scrapes++
		sent, received, lost := s.sums("vigia_probe_sent_total"), s.sums("vigia_probe_received_total"), s.sums("vigia_probe_lost_total")
		for dst, n := range sent {
			if n != received[dst]+lost[dst] {
				t.Errorf("scrape %d, %s: %v sent, %v received, %v lost", scrapes, dst, n, received[dst], lost[dst])
			}
		}
		for dst, n := range s.sums("vigia_probe_accounting_mismatch") {
			if n != 0 {
				t.Errorf("scrape %d, %s: mismatch %v", scrapes, dst, n)
			}
		}
		return lost["b0"] > 30
	})
}

func TestReloadOnSIGHUP(t *testing.T) {
	d := start(t, fmt.Sprintf("node: a\nreflector: {listeners: [{address: %q}]}\n", testutil.FreePort(t, "udp", "127.0.0.1")))
	d.write("node: a\n" + paths + "targets: [{dst: b, path: direct, tenant: t, probe: stamp-64, address: \"127.0.0.1:1\"}]\n")
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	d.waitFor("the new target", func() bool { _, ok := d.scrape().value("vigia_probe_sent_total", "dst", "b"); return ok })
}

// TestStopsUnderLoad ends a daemon in the middle of its work; the clean-up of the
// fixture checks the exit code, and afterwards its port is free.
func TestStopsUnderLoad(t *testing.T) {
	left, right := network(t)
	b := start(t, node("b", right, "10.9.0.2"))
	a := start(t, node("a", left, "10.9.0.1", aim("b", "stamp-64", left, "10.9.0.1", "10.9.0.2:862")))
	a.waitFor("answers", func() bool { v, _ := a.scrape().value("vigia_probe_received_total"); return v > 10 })
	if code := b.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if code := a.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if code, _ := a.get("/-/healthy"); code != 0 {
		t.Errorf("still answers with %d", code)
	}
	testutil.WaitUnbound(t, right, "udp", 862)
	again := start(t, node("b", right, "10.9.0.2"))
	again.waitFor("being ready", func() bool { code, _ := again.get("/-/ready"); return code == http.StatusOK })
}
