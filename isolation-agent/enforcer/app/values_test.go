package app

import (
	"slices"
	"strings"
	"testing"

	"vigia/internal/catalog/catalogtest"
	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/notice"
)

const enforcer = "vigia/isolation-agent/enforcer/"

// TestClosedLabels compares what the enforcer can emit with the catalogue. Constants
// are read where they are emitted; what is computed there is listed here, from the
// code that computes it.
func TestClosedLabels(t *testing.T) {
	here := catalogtest.Load(t, enforcer+"app")
	values, computed := here.Emitted(t, "enforcer")
	api := catalogtest.Load(t, enforcer+"api")
	operations := slices.DeleteFunc(api.Strings(t, "Register"), func(s string) bool {
		return strings.Contains(s, "/") // the pattern of a route
	})
	changing := slices.Clone(operations)
	for _, reading := range here.Cases(t, "operation") {
		changing = slices.DeleteFunc(changing, func(o string) bool { return o == reading })
	}
	var changes []string
	for _, c := range limits.Changes() {
		changes = append(changes, string(c))
	}
	stages, _ := here.Arguments(t, "stage", 0)
	states, actions := drift(t)
	kinds, outcomes := notices()
	directions := []string{directionOf(false), directionOf(true)}
	lists := map[string][]string{
		"vigia_isolation_limit_bytes_per_second.protocol":  catalogtest.Load(t, enforcer+"limits").Constants(t, "Protocol"),
		"vigia_isolation_taken_bytes_per_second.direction": directions,
		"vigia_isolation_taken_bytes_total.direction":      directions,
		"vigia_enforcer_requests_total.operation":          operations,
		"vigia_enforcer_apply_seconds.operation":           changing,
		"vigia_enforcer_limits_total.change":               changes,
		"vigia_enforcer_reaction_seconds.stage":            stages,
		"vigia_enforcer_drift_total.state":                 states,
		"vigia_enforcer_drift_total.action":                actions,
		"vigia_enforcer_notices_total.kind":                kinds,
		"vigia_enforcer_notices_total.outcome":             outcomes,
	}
	for what, expressions := range computed {
		if lists[what] == nil {
			t.Errorf("%s is computed from %v: list its values", what, expressions)
		}
	}
	for what, list := range lists {
		values.Add(what, list...)
	}
	catalogtest.Compare(t, "enforcer", values)
}

// drift returns the states of what is found and the actions that are taken.
func drift(t *testing.T) (states, actions []string) {
	t.Helper()
	code := catalogtest.Load(t, enforcer+"scheduling")
	for _, function := range []string{"note", "mayRepair"} { // the second passes on to the first
		s, _ := code.Arguments(t, function, 2)
		a, _ := code.Arguments(t, function, 3)
		states, actions = append(states, s...), append(actions, a...)
	}
	return states, actions
}

// notices returns the kinds of notices, of which a peer may send any, and what becomes
// of them, which is ours to say.
func notices() (kinds, outcomes []string) {
	for k := range 256 {
		kinds = append(kinds, notice.Kind(k).String())
	}
	for o := notice.Outcome(1); o.String() != "unknown"; o++ {
		outcomes = append(outcomes, o.String())
	}
	return kinds, outcomes
}
