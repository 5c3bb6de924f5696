package export

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/catalog"
	"vigia/internal/catalog/catalogtest"
	"vigia/probes/accounting"
	"vigia/probes/bulk"
	"vigia/probes/delay"
	"vigia/probes/health"
	"vigia/probes/mesh"
	"vigia/probes/moment"
	"vigia/probes/objective"
	"vigia/probes/pathmtu"
	"vigia/probes/protocol/get"
	dnslookup "vigia/probes/protocol/lookup"
	"vigia/probes/sender"
)

// named returns the names of the first n of an enumeration.
func named[T interface {
	~int | ~uint8
	fmt.Stringer
}](n int) []string {
	var out []string
	for i := range n {
		out = append(out, T(i).String())
	}
	return out
}

// TestClosedLabels compares what the probe can emit with the catalogue.
func TestClosedLabels(t *testing.T) {
	ways, unfit := named[delay.Direction](int(delay.RoundTrip)), named[health.Reason](int(health.ScheduleLag))
	values := catalogtest.Values{
		"vigia_probe_lost_total.cause":                      named[accounting.Cause](accounting.NumCauses),
		"vigia_probe_quarantined_total.reason":              append(named[delay.Verdict](delay.NumVerdicts)[delay.Good+1:], named[health.Reason](health.NumReasons)...),
		"vigia_probe_judged_total.objective":                named[objective.Kind](objective.NumKinds),
		"vigia_probe_objective_seconds.objective":           named[objective.Kind](objective.NumKinds),
		"vigia_probe_host_unfit.reason":                     unfit,
		"vigia_probe_dscp_rewritten_total.direction":        ways,
		"vigia_probe_oneway_delay_seconds.direction":        ways,
		"vigia_probe_clock_error_bound_seconds.direction":   ways,
		"vigia_probe_delay_variation_seconds.direction":     named[delay.Direction](delay.NumDirections),
		"vigia_probe_timestamps_total.point":                named[sender.Point](sender.NumPoints),
		"vigia_probe_timestamps_total.source":               named[sender.Source](sender.NumSources),
		"vigia_probe_host_clock_error_bound_seconds.source": catalogtest.Load(t, "vigia/probes/clockerror").Constants(t, "Source"),
		"vigia_probe_own_delay_seconds.stage":               named[ownStage](numStages),
		"vigia_bulk_lost_packets_total.cause":               {lostByNetwork, lostByReceiver},
		"vigia_probe_mesh_lost_total.cause":                 named[fault](int(numFaults)),
		"vigia_probe_mesh_judged_total.objective":           named[objective.Kind](objective.NumKinds),
		"vigia_probe_http_failed_total.failure":             get.Failures(),
		"vigia_probe_http_phase_seconds_total.phase":        get.Phases(),
		"vigia_probe_dns_failed_total.failure":              dnslookup.Failures(),
		"vigia_probe_dns_phase_seconds_total.phase":         dnslookup.Phases(),
		"vigia_probe_mesh_pairs.state":                      pairStates,
		"vigia_probe_unreachable_ratio.scope":               named[mesh.Scope](len(mesh.Scopes())),
		"vigia_probe_outside_unreachable_ratio.scope":       named[mesh.Scope](len(mesh.Scopes()))[mesh.ScopeRack:],
	}
	for _, o := range pathmtu.Outcomes() {
		values.Add("vigia_probe_path_mtu_searches_total.outcome", string(o))
	}
	for _, r := range moment.Results() {
		values.Add("vigia_probe_moments_total.result", string(r))
	}
	for _, r := range rejections() {
		values.Add("vigia_reflector_rejected_total.reason", r.String())
	}
	for _, r := range bulk.Results() {
		values.Add("vigia_bulk_runs_total.result", string(r))
	}
	for what, protocols := range bulkProtocols(t) {
		values.Add(what, protocols...)
	}
	catalogtest.Compare(t, "probe", values)
}

// bulkProtocols returns of which protocols each metric of bulk tests has series, after
// one test of each: some say nothing of one of them.
func bulkProtocols(t *testing.T) catalogtest.Values {
	t.Helper()
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	m := NewBulk(c.NewFactory("probe", reg), reg, slog.New(slog.DiscardHandler), func() uint64 { return 0 })
	var tests []bulk.Target
	for _, protocol := range []bulk.Protocol{bulk.TCP, bulk.UDP} {
		tests = append(tests, bulk.Target{Labels: sender.Labels{Probe: string(protocol)}, Protocol: protocol})
	}
	m.Set([][]bulk.Target{tests})
	for i := range tests {
		m.Done(&tests[i], &bulk.Outcome{Result: bulk.Completed})
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(catalogtest.Values)
	for _, family := range families {
		for _, series := range family.Metric {
			for _, label := range series.Label {
				if label.GetName() == "protocol" {
					out.Add(family.GetName()+".protocol", label.GetValue())
				}
			}
		}
	}
	return out
}

// TestListsAreWhole looks at the lists that are not made of the constants themselves.
func TestListsAreWhole(t *testing.T) {
	for path, tc := range map[string]struct {
		kind   string
		listed int
	}{
		"vigia/probes/bulk":    {"Result", len(bulk.Results())},
		"vigia/probes/moment":  {"Result", len(moment.Results())},
		"vigia/probes/pathmtu": {"Outcome", len(pathmtu.Outcomes())},
	} {
		if constants := catalogtest.Load(t, path).Constants(t, tc.kind); len(constants) != tc.listed {
			t.Errorf("%s: %d constants are a %s, %d are listed", path, len(constants), tc.kind, tc.listed)
		}
	}
}
