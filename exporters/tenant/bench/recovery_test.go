package bench

import (
	"strings"
	"testing"
	"time"

	"vigia/internal/testutil"
)

const (
	recoveryPorts  = 100
	recoveryRounds = 3
	// away is how long a daemon stays away: long enough that whoever looks for it does
	// so at the longest intervals.
	away = 8 * time.Second
	// mostRecovery is the budget.
	mostRecovery = 5
)

// BenchmarkRecovery kills the daemons of Open vSwitch and the exporter, as a crash
// would, and measures from the moment that they are back until metrics are whole. While
// ovs-vswitchd has no ovsdb-server it serves no OpenFlow, and it looks for one at intervals
// of up to eight seconds: what OpenFlow tells is measured from when it has found it.
func BenchmarkRecovery(b *testing.B) {
	n := newNode(interruptible(b), b)
	devices := n.devices(recoveryPorts)
	s := n.vswitch(devices)
	e := n.ours("ovsdb: unix:" + s.Socket + "\n")
	e.waitForPorts(b, recoveryPorts)
	e.waitForCollectors(b)
	for _, d := range []struct {
		name        string
		kill, start func()
		fails       string // what shows that the loss was noticed
		settled     func() // returns when others that need the daemon have found it again
	}{
		{"ovsdb-server", s.Stop, s.Start, "ovsdb", func() { s.Set("set", "bridge", "br0", "other_config:bench="+time.Now().Format("150405")) }},
		{"ovs-vswitchd", s.StopSwitch, s.StartSwitch, "openflow", func() {}},
		{"vigia-exporter", func() { e.crash(b) }, func() { e.again(b) }, "", func() {}},
	} {
		worst := time.Duration(0)
		for range b.N * recoveryRounds {
			n.say("killing %s", d.name)
			d.kill()
			select {
			case <-time.After(away):
			case <-n.ctx.Done():
			}
			for d.fails != "" && e.works(b, d.fails) {
				n.goOn()
				time.Sleep(50 * time.Millisecond)
			}
			n.goOn()
			d.start()
			start := time.Now()
			e.waitForPorts(b, recoveryPorts)
			for d.fails != "" && !e.works(b, d.fails) {
				n.goOn()
				time.Sleep(20 * time.Millisecond)
			}
			took := time.Since(start)
			d.settled()
			start = time.Now()
			e.waitForCollectors(b)
			took += time.Since(start)
			b.Logf("%-14s away for %.0f s or more: whole again after %.2f s", d.name, away.Seconds(), took.Seconds())
			worst = max(worst, took)
		}
		testutil.Budget(b, "recovery from a crash of "+d.name, worst.Seconds(), mostRecovery, "s")
		b.ReportMetric(worst.Seconds(), d.name+"-s")
	}
}

// works tells whether a collector worked at its last try.
func (e *exporter) works(b testing.TB, collector string) bool {
	b.Helper()
	got, err := e.get("/metrics")
	if err != nil {
		b.Fatal(err)
	}
	return strings.Contains(string(got.body), `vigia_exporter_collector_success{collector="`+collector+`"} 1`+"\n")
}

// waitForCollectors waits until no collector fails.
func (e *exporter) waitForCollectors(b testing.TB) {
	b.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		e.node.goOn()
		got, err := e.get("/metrics")
		failing := ""
		for line := range strings.Lines(string(got.body)) {
			if strings.HasPrefix(line, "vigia_exporter_collector_success{") && strings.HasSuffix(line, " 0\n") {
				failing += line
			}
		}
		if err == nil && len(got.body) > 0 && failing == "" {
			return
		}
		if time.Since(start) > time.Minute {
			b.Fatalf("collectors fail for a minute: %v\n%s", err, failing)
		}
	}
}
