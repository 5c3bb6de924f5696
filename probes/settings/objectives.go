package settings

import (
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strings"
	"time"

	"vigia/internal/config"
	"vigia/probes/objective"
	"vigia/probes/sender"
)

// ClassObjective says what the targets of a class must keep to.
type ClassObjective struct {
	Path   string          `yaml:"path" help:"name of a path, whose targets it is for; absent: all targets of the class that have none of their path"`
	Delay  config.Duration `yaml:"delay" help:"that 99 % of round trips stay within; below the deadline; absent: learned from the target's first hour"`
	Jitter config.Duration `yaml:"jitter" help:"that 99 % of differences of consecutive round trips stay within; below the deadline; absent: learned"`
}

// Objective is what a tenant was promised.
type Objective struct {
	Tenant string          `yaml:"tenant" help:"whose; required"`
	Ratio  float64         `yaml:"ratio" help:"of good probes, between 0 and 1; required"`
	RTT    config.Duration `yaml:"rtt" help:"of a good probe at most; absent: any"`
}

func (f *File) validateObjectives(e *faults) {
	seen := make(map[string]bool)
	for i, o := range f.Objectives {
		field := fmt.Sprintf("objectives[%d]", i)
		e.label(field+".tenant", o.Tenant, "tenant: blue")
		if seen[o.Tenant] {
			e.add(field+".tenant", o.Tenant, "has an objective already", "keep one")
		}
		seen[o.Tenant] = true
		if o.Ratio <= 0 || o.Ratio >= 1 {
			e.add(field+".ratio", o.Ratio, "is not a share between 0 and 1", "write for example ratio: 0.999")
		}
		if o.RTT < 0 || time.Duration(o.RTT) > maxDeadline {
			e.add(field+".rtt", o.RTT, "is out of bounds", fmt.Sprintf("write a round-trip time of at most %v", maxDeadline))
		}
	}
	if f.ObjectivesState != "" && !filepath.IsAbs(f.ObjectivesState) {
		e.add("objectives_state", f.ObjectivesState, "is not an absolute path", "write for example /var/lib/vigia-probe/"+objectivesState)
	}
}

func (f *File) objectives() (out []objective.Objective) {
	for _, o := range f.Objectives {
		out = append(out, objective.Objective{Tenant: o.Tenant, Ratio: o.Ratio, RTT: time.Duration(o.RTT)})
	}
	return out
}

// validateClassObjectives checks the objectives of a class's targets.
func (c *Class) validateClassObjectives(e *faults, field string, paths map[string]bool) {
	seen := make(map[string]bool)
	for i, o := range c.Objectives {
		field := fmt.Sprintf("%s.objectives[%d]", field, i)
		if o.Path != "" && !paths[o.Path] {
			e.add(field+".path", o.Path, "is not declared under paths", "declare it there or correct it")
		}
		if seen[o.Path] {
			e.add(field, nil, "is for the same path as another", "keep one")
		}
		seen[o.Path] = true
		if o.Delay == 0 && o.Jitter == 0 {
			e.add(field, nil, "has neither delay nor jitter", "add one, for example delay: 10ms")
		}
		for _, bound := range []struct {
			key   string
			value time.Duration
		}{{"delay", time.Duration(o.Delay)}, {"jitter", time.Duration(o.Jitter)}} {
			if bound.value < 0 || bound.value > 0 && bound.value >= c.deadline() {
				e.add(field+"."+bound.key, bound.value, "is out of bounds: probes are lost from the deadline on", fmt.Sprintf("write less than %v", c.deadline()))
			}
		}
	}
}

// objectivesState is the name of the file that remembers what was learned.
const objectivesState = "objectives.json"

// bounds returns what operators want, by class and path; the path is empty for all others.
func (f *File) bounds() (bounds map[ClassPath]objective.Bounds) {
	for i := range f.Classes {
		for _, o := range f.Classes[i].Objectives {
			if bounds == nil {
				bounds = make(map[ClassPath]objective.Bounds)
			}
			bounds[ClassPath{f.Classes[i].Name, o.Path}] = objective.Bounds{
				objective.Delay: time.Duration(o.Delay), objective.Jitter: time.Duration(o.Jitter),
			}
		}
	}
	return bounds
}

// ClassPath are the targets of a class on a path.
type ClassPath struct{ Class, Path string }

// Judged returns the objectives of targets: those of their class and path, else of their
// class. Each comes with all that its delays depend on: the address, the class, the kind
// of the path.
func (l *Live) Judged(targets []sender.Target) []objective.Target {
	kinds := make(map[string]Path, len(l.Paths))
	for _, p := range l.Paths {
		kinds[p.Name] = p
	}
	out := make([]objective.Target, 0, len(targets))
	for i := range targets {
		t := &targets[i]
		bounds := l.Bounds[ClassPath{t.Labels.Probe, t.Labels.Path}]
		for kind, usual := range l.Bounds[ClassPath{t.Labels.Probe, ""}] {
			if bounds[kind] == 0 {
				bounds[kind] = usual
			}
		}
		out = append(out, objective.Target{Labels: t.Labels, Identity: identity(t, kinds[t.Labels.Path]), Bounds: bounds})
	}
	return out
}

// identity tells what is probed, and how, in few letters. Keys are no part of it.
func identity(t *sender.Target, kind Path) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %v %q %d %q %d %d %d %d %d %+v %+v", t.Protocol.Traits().Name, t.Netns, t.Source, t.Host, t.Port,
		t.Channel.Device, t.Size, t.DSCP, t.Interval, t.Deadline, max(t.Flows, 1), t.Channel, kind)
	return fmt.Sprintf("%016x", h.Sum64())
}

// stateFile returns the file to remember something in: as configured, or of that name in
// the directory that systemd gives the service (systemd.exec(5), StateDirectory).
func stateFile(configured, directory, name string) string {
	switch {
	case configured != "":
		return configured
	case filepath.IsAbs(directory) && !strings.Contains(directory, ":"):
		return filepath.Join(directory, name)
	}
	return ""
}
