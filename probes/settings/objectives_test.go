package settings

import (
	"strings"
	"testing"
	"time"

	"vigia/probes/objective"
	"vigia/probes/sender"
)

const judgedFile = `node: a
paths:
  - {name: direct, dataplane: none, encap: none, mode: normal, security: none, layer: underlay, placement: remote}
  - {name: vxlan, dataplane: ovs, encap: vxlan, mode: normal, security: none, layer: overlay, placement: remote}
  - {name: gre, dataplane: ovs, encap: gre, mode: normal, security: none, layer: overlay, placement: remote}
classes:
  - name: fast
    protocol: stamp
    size: 64
    interval: 100ms
    deadline: 500ms
    objectives:
      - {delay: 10ms, jitter: 5ms}
      - {path: vxlan, delay: 2ms}
      - {path: gre, jitter: 1ms}
  - {name: plain, protocol: stamp, size: 64, interval: 1s}
targets:
  - {dst: b, path: direct, tenant: t, probe: fast, address: "10.0.0.2:862"}
  - {dst: b, path: vxlan, tenant: t, probe: fast, address: "10.0.0.2:862"}
  - {dst: b, path: gre, tenant: t, probe: fast, address: "10.0.0.2:862"}
  - {dst: b, path: gre, tenant: t, probe: plain, address: "10.0.0.2:862"}
objectives_state: /srv/learned.json
`

func judged(t *testing.T, text string) (*Settings, []objective.Target) {
	t.Helper()
	s, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s, s.Judged(s.Targets)
}

// TestObjectivesOfTargets: that of the path goes before that of the class, each bound for
// itself; where there is none, it is learned.
func TestObjectivesOfTargets(t *testing.T) {
	s, targets := judged(t, judgedFile)
	want := []objective.Bounds{
		{10 * time.Millisecond, 5 * time.Millisecond},
		{2 * time.Millisecond, 5 * time.Millisecond},
		{10 * time.Millisecond, time.Millisecond},
		{},
	}
	for i, target := range targets {
		if target.Bounds != want[i] || target.Labels != s.Targets[i].Labels {
			t.Errorf("%+v: %v, want %v", target.Labels, target.Bounds, want[i])
		}
	}
	if s.ObjectivesState != "/srv/learned.json" {
		t.Errorf("state %q", s.ObjectivesState)
	}
}

// TestIdentityOfTargets changes by what their delays depend on, and by nothing else.
func TestIdentityOfTargets(t *testing.T) {
	_, before := judged(t, judgedFile)
	for _, tc := range []struct {
		old, new string
		same     bool
	}{
		{"deadline: 500ms", "deadline: 600ms", false},
		{"interval: 100ms", "interval: 50ms", false},
		{"interval: 100ms", "interval: 100ms\n    dscp: 46", false},
		{"size: 64", "size: 1400", false},
		{"interval: 100ms", "interval: 100ms\n    source_ports: 4", false},
		{"encap: none, mode: normal", "encap: none, mode: openflow", false},
		{"probe: fast, address: \"10.0.0.2:862\"}", "probe: fast, address: \"10.0.0.3:862\"}", false},
		{"probe: fast, address: \"10.0.0.2:862\"}", "probe: fast, address: \"10.0.0.2:863\"}", false},
		{"probe: fast, address", "probe: fast, netns: red, address", false},
		{"probe: fast, address", "probe: fast, source: 10.0.0.1, address", false},
		{"probe: fast, address", "probe: fast, device: eth1, address", false},
		{"delay: 10ms", "delay: 20ms", true},
		{"objectives_state: /srv/learned.json", "health: {steal: 0.3}", true},
		{"interval: 1s", "interval: 2s", true}, // of another class
		{"encap: gre", "encap: geneve", true},  // of another path
	} {
		text := strings.Replace(judgedFile, tc.old, tc.new, 1)
		if text == judgedFile {
			t.Fatalf("%q is not there", tc.old)
		}
		_, after := judged(t, text)
		if same := before[0].Identity == after[0].Identity; same != tc.same {
			t.Errorf("%s: the same %v, want %v", tc.new, same, tc.same)
		}
	}
	s, _ := judged(t, judgedFile)
	paused := s.Targets[0]
	paused.Paused, paused.Twin = true, sender.Twin{Size: 2}
	if got := s.Judged([]sender.Target{paused}); got[0].Identity != before[0].Identity {
		t.Error("a paused target is another")
	}
}

func TestObjectivesThatAreWrong(t *testing.T) {
	for _, tc := range []struct{ old, new, want string }{
		{"{delay: 10ms, jitter: 5ms}", "{delay: 0s}", `classes[0].objectives[0]: has neither delay nor jitter; add one, for example delay: 10ms`},
		{"delay: 10ms", "delay: 500ms", `classes[0].objectives[0].delay: "500ms": is out of bounds: probes are lost from the deadline on; write less than 500ms`},
		{"jitter: 5ms", "jitter: -1s", `classes[0].objectives[0].jitter: "-1s": is out of bounds`},
		{"path: vxlan, delay", "path: geneve, delay", `classes[0].objectives[1].path: "geneve": is not declared under paths; declare it there or correct it`},
		{"path: gre, jitter", "path: vxlan, jitter", `classes[0].objectives[2]: is for the same path as another; keep one`},
		{"/srv/learned.json", "learned.json", `objectives_state: "learned.json": is not an absolute path; write for example /var/lib/vigia-probe/objectives.json`},
	} {
		_, err := Parse("f.yaml", []byte(strings.Replace(judgedFile, tc.old, tc.new, 1)))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.new, err, tc.want)
		}
	}
}

// TestObjectivesStateBySystemd: without a file of its own it is in systemd's directory.
func TestObjectivesStateBySystemd(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", "/var/lib/vigia-probe")
	s, _ := judged(t, strings.Replace(judgedFile, "objectives_state: /srv/learned.json\n", "", 1))
	if s.ObjectivesState != "/var/lib/vigia-probe/objectives.json" {
		t.Errorf("state %q", s.ObjectivesState)
	}
}
