// Package toy emits series in the ways of which catalogtest knows.
package toy

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/exposition"
)

// Way is a type with constants.
type Way string

// The ways.
const (
	There Way = "there"
	Back  Way = "back"
	again Way = "there"

	fromTenant = "from_tenant"
)

type family func(name string) *exposition.Family

type families struct{ errors *exposition.Family }

type source struct {
	families
	bytes, ports *exposition.Family
	last         state
}

type state struct{ Name, other string }

func newSource(get family) *source {
	s := &source{families: families{errors: get("vigia_port_errors_total")}, bytes: get("vigia_port_bytes_total")}
	s.ports = get("vigia_exporter_ports")
	s.last.Name = "assigned"
	s.last.other = "of another field"
	_ = []state{{Name: "literal"}, {Name: "literal"}, {other: "x"}}
	return s
}

func (s *source) collect(out *exposition.Page, direction string) {
	out.Emit(s.bytes, 1, "to_tenant", "red", fromTenant) // the port may have any name
	out.Emit(s.errors, 1, "p", "red", direction)
	way := "to_tenant"
	if len(direction) > 3 {
		way = fromTenant
	}
	s.emit(out, s.errors, 1, "p", "red", way)
	for _, state := range []string{"resolved", "gone"} {
		out.Emit(s.ports, 1, state)
	}
	out.Emit(s.ports, 1, string(Back)+"ward")
	out.Emit(s.ports, 1, kind(direction))
	out.Emit(s.ports, 1, fmt.Sprint(direction))
}

func (s *source) emit(out *exposition.Page, f *exposition.Family, value uint64, labels ...string) {
	out.Emit(f, float64(value), labels...)
}

func kind(text string) string {
	switch text {
	case "one", "two":
		return "few"
	}
	if text == "three" || text == string(There) || len(text) == 3 {
		return `several`
	}
	a, b := pair()
	note(a, "first", b)
	note("x", text, "second")
	return string(again)
}

func pair() (a, b string) { return "a", "b" }

func note(_, _, _ string) {}

type emitter func(value float64, labels ...string)

func count(counter func(name string) *prometheus.CounterVec, made func(name string) emitter, outcome string, list []string) {
	alerts := counter("vigia_agent_alerts_total")
	alerts.WithLabelValues("firing", outcome).Inc()
	alerts.WithLabelValues(list...).Inc()
	reverts := made("vigia_agent_reverts_total")
	reverts(1, "ttl")
	ports := made("vigia_enforcer_ports")
	ports(1, "attached", "failed")
	fmt.Println(ports, "a word")
}
