package ovsdb

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"vigia/internal/testutil"
)

// TestConditionsKeepRowsOut follows a real server that has more than is wanted.
func TestConditionsKeepRowsOut(t *testing.T) {
	s := testutil.NewOVSDBServer(t)
	s.VSCtl("add-br", "br-int", "--", "add-port", "br-int", "a", "--", "add-port", "br-int", "b", "--", "add-port", "br-int", "c")
	only := func(r *Replica) { WithCondition("Interface", "name")(r) }
	replicas := map[string]*Replica{
		"monitor_cond_since": start(t, s.Socket, only),
		"monitor_cond":       start(t, withoutMethods(t, s.Socket, "monitor_cond_since"), only),
	}
	plain := start(t, withoutMethods(t, s.Socket, "monitor_cond_since", "monitor_cond"), only)
	testutil.WaitFor(t, "a copy of everything where there are no conditions", func() bool { return len(interfaces(plain)) == 4 })
	has := func(what string, want ...string) {
		t.Helper()
		for method, r := range replicas {
			testutil.WaitFor(t, fmt.Sprintf("%s: %s %v", method, what, want), func() bool {
				tables, err := r.Tables()
				names := slices.Sorted(maps.Keys(interfaces(r)))
				return err == nil && r.Method() == method && len(tables["Bridge"]) == 1 && slices.Equal(names, want)
			})
		}
	}
	set := func(values ...string) {
		for _, r := range append(slices.Collect(maps.Values(replicas)), plain) {
			r.SetCondition("Interface", values)
		}
	}
	has("nothing at first")
	set("b", "d")
	has("one of the two that are wanted exists:", "b")
	s.VSCtl("add-port", "br-int", "d", "--", "add-port", "br-int", "e")
	has("the other came:", "b", "d")
	set("a", "d")
	has("other rows:", "a", "d")
	s.Stop()
	set("c")
	s.Start()
	has("after a restart:", "c")
	s.VSCtl("set", "interface", "c", "external_ids:iface-id=x")
	for method, r := range replicas {
		testutil.WaitFor(t, method+": a change", func() bool { return interfaces(r)["c"].Map("external_ids")["iface-id"] == "x" })
	}
	set()
	has("nothing again")
	testutil.WaitFor(t, "all 6 interfaces where there are no conditions", func() bool {
		_, err := plain.Tables()
		return err == nil && len(interfaces(plain)) == 6
	})
	plain.SetCondition("Bridge", []string{"x"}) // has no condition: nothing happens
}

func TestServersThatRefuseAConditionAreNotTrusted(t *testing.T) {
	if err := refusal(message{Error: []byte(`{"error":"unknown monitor"}`), ID: []byte("3")}); err == nil {
		t.Error("a refusal is taken for an answer")
	}
	for _, m := range []message{{Error: []byte("null")}, {}, {Method: "echo", Error: []byte(`"x"`)}} {
		if err := refusal(m); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
	}
}
