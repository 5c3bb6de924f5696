package ovs

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"vigia/exporters/tenant/source/sourcetest"
	"vigia/internal/catalog"
	"vigia/internal/exposition"
	"vigia/internal/testutil"
)

func page(t *testing.T, s *Source) (string, error) {
	t.Helper()
	p := exposition.NewPage(nil)
	err := s.Collect(sourcetest.View(nil, nil, nil, time.Now()), p)
	var out strings.Builder
	if _, err := p.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.String(), err
}

func TestARealSwitchIsReadAndFoundAgainAfterARestart(t *testing.T) {
	catalogue, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	sw := testutil.NewVSwitch(t, testutil.NewNetNS(t))
	sw.Set("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	s := New(catalogue.NewFactory("exporter", prometheus.NewRegistry()), sw.Dir, 50*time.Millisecond)
	if _, err := page(t, s); err == nil {
		t.Error("there are answers before there was a question")
	}
	go s.Run(t.Context())
	complete := func() bool {
		text, err := page(t, s)
		for _, want := range []string{
			`vigia_ovs_datapath_lookups_total{datapath="netdev@ovs-netdev",result="lost"} 0`,
			`vigia_ovs_datapath_flows{datapath="netdev@ovs-netdev"}`,
			`vigia_ovs_flow_limit{datapath="netdev@ovs-netdev"} `,
			`vigia_ovs_thread_packets_total{thread="main"}`,
		} {
			if err != nil || !strings.Contains(text, want) {
				return false
			}
		}
		return !strings.Contains(text, "util_xalloc")
	}
	testutil.WaitFor(t, "all answers", complete)
	testutil.WaitFor(t, "a coverage counter", func() bool {
		text, err := page(t, s)
		return err == nil && strings.Contains(text, `vigia_ovs_coverage_events_total{event="rev_`)
	})
	if age, ok := s.Age(); !ok || age > time.Minute {
		t.Errorf("age %s, %v", age, ok)
	}
	sw.StopSwitch()
	testutil.WaitFor(t, "the failure", func() bool { text, err := page(t, s); return err != nil && text == "" })
	sw.StartSwitch()
	testutil.WaitFor(t, "all answers again", complete)
}

const pmds = `pmd thread numa_id 0 core_id 12:
  packets received: 5000
  miss with success upcall: 7
  miss with failed upcall: 2
  idle cycles: 900 (90.00%)
  processing cycles: 100 (10.00%)
main thread:
  packets received: 3
`

func TestThreadsAreParsed(t *testing.T) {
	got, err := parseThreads(pmds)
	want := []thread{{"pmd-12", 5000, 7, 2, 100, 900, true}, {name: "main", received: 3}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(thread{})); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := parseThreads("main thread:\n  packets received: many\n"); err == nil {
		t.Error("words were taken for a number")
	}
}

func TestDatapathsAreParsed(t *testing.T) {
	got, err := parseDatapaths("system@ovs-system:\n  lookups: hit:10 missed:2 lost:1\n  flows: 4\n  masks: hit:9 total:1 hit/pkt:0.90\n  port 0: ovs-system (internal)\n")
	want := []datapath{{"system@ovs-system", []lookup{{"hit", 10}, {"missed", 2}, {"lost", 1}}, 4}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(datapath{}, lookup{})); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"no datapath here\n", "  flows: 4\n", "a@b:\n  flows: x\n", "a\x00b:\n"} {
		if got, err := parseDatapaths(bad); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
	if _, err := parseDatapaths(strings.Repeat("a@b:\n", maxItems+1)); err == nil {
		t.Error("an endless answer was taken")
	}
}

func TestUpcallsAreParsed(t *testing.T) {
	got, err := parseUpcalls("system@ovs-system:\n  flows         : (current 12) (avg 3) (max 40) (limit 200000)\n  dump duration : 250ms\n  ufid enabled : true\n\n  4: (keys 12)\n")
	want := []upcalls{{"system@ovs-system", 12, 200000, 250 * time.Millisecond}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(upcalls{}), cmpopts.EquateEmpty()); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestCoverageTakesTotals(t *testing.T) {
	got, err := parseCoverage("Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash=3bdb3e56:\n" +
		"upcall_flow_limit_hit      0.0/sec     0.000/sec        0.0000/sec   total: 24\n110 events never hit\n")
	if diff := cmp.Diff(map[string]uint64{"upcall_flow_limit_hit": 24}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if !telling("upcall_flow_limit_hit") || !telling("datapath_drop_meter") || telling("util_xalloc") {
		t.Error("the wrong events are exported by default")
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(pmds)
	f.Add("a@b:\n  lookups: hit:1 missed:2 lost:3\n  flows: 4\n")
	f.Add("a:\n  flows : (current 1) (limit 2)\n  dump duration : 3ms\n")
	f.Add("x  0.0/sec total: 3\n")
	f.Fuzz(func(t *testing.T, text string) {
		d, _ := parseDatapaths(text)
		u, _ := parseUpcalls(text)
		c, _ := parseCoverage(text)
		th, _ := parseThreads(text)
		if n := len(text); len(d) > n || len(u) > n || len(c) > n || len(th) > n {
			t.Errorf("%d bytes give %d, %d, %d and %d items", n, len(d), len(u), len(c), len(th))
		}
	})
}
