package settings

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	"vigia/internal/config"
	"vigia/internal/netns"
	"vigia/probes/clockerror"
	"vigia/probes/protocol"
	"vigia/probes/stamp"
)

// Bounds of what can be configured.
const (
	minInterval = 100 * time.Microsecond
	maxInterval = time.Hour
	minDeadline = time.Millisecond
	maxDeadline = time.Minute
	// maxInFlight bounds the memory of one target.
	maxInFlight = 1 << 16
	maxTargets  = 50_000
	maxRate     = 1_000_000
	maxDSCP     = 63
	lowerEffort = 1 // RFC 8622
)

var labelRE = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}$`)

const labelFix = "write letters, digits and . _ : - , at most 128, beginning with a letter, a digit or _"

// faults collects what is wrong.
type faults []error

func (f *faults) add(field string, value any, problem, fix string) {
	*f = append(*f, &config.FieldError{Field: field, Value: value, Problem: problem, Fix: fix})
}

// maxFaults is how many mistakes are reported.
const maxFaults = 50

func (f *faults) join() error {
	if more := len(*f) - maxFaults; more > 0 {
		return errors.Join(errors.Join((*f)[:maxFaults]...), fmt.Errorf("and %d further mistakes", more))
	}
	return errors.Join(*f...)
}

// label checks a value that becomes a label.
func (f *faults) label(field, value, example string) {
	switch {
	case value == "":
		f.add(field, nil, "is missing", "add it, for example "+example)
	case !labelRE.MatchString(value):
		f.add(field, value, "cannot be a label", labelFix)
	}
}

func (f *faults) netns(field, value string) {
	if _, err := netns.Path(value); err != nil {
		f.add(field, value, "is not a network namespace", "write a name in "+netns.Dir+", an absolute path, or neutron: and the id of a network")
	}
}

// Validate checks everything and returns all faults.
func (f *File) Validate() error {
	var e faults
	e.label("node", f.Node, "node: compute1")
	if len(f.Targets) == 0 && len(f.Discovery) == 0 && f.Bulk == nil && (f.Reflector == nil || len(f.Reflector.Listeners) == 0) {
		e.add("targets", nil, "are missing, and so are reflector.listeners: there is nothing to do", "add one of them")
	}
	f.keys, f.keyed = make(map[string]stamp.Keys), make(map[keyedClass]protocol.Protocol)
	f.Reflector.validate(&e)
	if f.Reflector != nil {
		for i, l := range f.Reflector.Listeners {
			f.loadKeys(&e, fmt.Sprintf("reflector.listeners[%d].key_file", i), l.KeyFile)
		}
	}
	f.Clock.validate(&e)
	f.Health.validate(&e)
	f.Mesh.validate(&e)
	f.Moments.validate(&e)
	paths := f.validatePaths(&e)
	classes := f.validateClasses(&e, paths)
	if len(f.Targets) > maxTargets {
		e.add("targets", len(f.Targets), "are too many", fmt.Sprintf("at most %d for one process", maxTargets))
		return e.join()
	}
	seen := make(map[[4]string]int)
	for i := range f.Targets {
		t, field := &f.Targets[i], fmt.Sprintf("targets[%d]", i)
		t.validate(&e, field, paths, classes)
		f.validateFurtherTarget(&e, field, t)
		f.validateKeys(&e, field+".key_file", classes[t.Probe], t.KeyFile)
		id := [4]string{t.Dst, t.Path, t.Tenant, t.Probe}
		if first, twice := seen[id]; twice {
			e.add(field, nil, fmt.Sprintf("has the same dst, path, tenant and probe as targets[%d]", first), "remove one, or make one of the four differ")
		} else {
			seen[id] = i
		}
	}
	if _, ok := hardwareModes[f.Timestamps.Hardware]; !ok {
		e.add("timestamps.hardware", f.Timestamps.Hardware, "is no way to use hardware stamps", "write auto, off or enable")
	}
	if f.Series != "" && f.Series != usualSeries && f.Series != allSeries {
		e.add("series", f.Series, "is no choice of series", "write "+usualSeries+" or "+allSeries)
	}
	validateTwins(&e, "targets", f.Targets, classes)
	f.validateDiscovery(&e, paths, classes)
	f.Bulk.validate(&e, f.Node, paths)
	f.validateFurtherUse(&e)
	f.validateObjectives(&e)
	return e.join()
}

// maxClockError bounds what is called the error of a clock.
const maxClockError = time.Second

func (c *Clock) validate(e *faults) {
	for _, v := range []struct {
		key   string
		value time.Duration
	}{{"error_bound", time.Duration(c.ErrorBound)}, {"max_oneway_error", time.Duration(c.MaxOnewayError)}} {
		if v.value < 0 || v.value > maxClockError {
			e.add("clock."+v.key, v.value, "is out of bounds", fmt.Sprintf("write 1ns to %v", maxClockError))
		}
	}
	if _, ok := clockSources[c.Source]; !ok {
		e.add("clock.source", c.Source, "does not know the error of a clock", "write auto, chrony, ptp4l or kernel")
	} else if c.Source != "" && c.ErrorBound != 0 {
		e.add("clock.source", c.Source, "is not asked where clock.error_bound states the error", "remove one of the two")
	}
	if problem := clockerror.CheckAddress(c.Chrony); problem != "" {
		e.add("clock.chrony", c.Chrony, problem, "write for example "+clockerror.DefaultChrony+" or /run/chrony/chronyd.sock")
	}
	if c.PTP4L != "" && !filepath.IsAbs(c.PTP4L) {
		e.add("clock.ptp4l", c.PTP4L, "is not the absolute path of a unix socket", "write for example "+clockerror.DefaultPTP)
	}
}

func (h *Health) validate(e *faults) {
	for _, v := range []struct {
		key   string
		value *float64
	}{{"cpu_pressure", h.CPUPressure}, {"steal", h.Steal}} {
		if v.value != nil && !(*v.value > 0 && *v.value <= 1) {
			e.add("health."+v.key, *v.value, "is no share of time", "write a number above 0 and up to 1, for example 0.5")
		}
	}
	if lag := time.Duration(h.ScheduleLag); lag < 0 || lag > maxDeadline {
		e.add("health.schedule_lag", lag, "is out of bounds", fmt.Sprintf("write 1ns to %v", maxDeadline))
	}
}

// loadKeys reads a key file, once.
func (f *File) loadKeys(e *faults, field, path string) {
	if _, known := f.keys[path]; known || path == "" {
		return
	}
	if !checkKeyPath(e, field, path) {
		return
	}
	keys, err := stamp.LoadKeys(path)
	if err != nil {
		e.unusableKeys(field, path, err)
		return
	}
	f.keys[path] = keys
}

func checkKeyPath(e *faults, field, path string) bool {
	if !filepath.IsAbs(path) {
		e.add(field, path, "is not an absolute path", "write for example /etc/vigia/stamp.key")
		return false
	}
	return true
}

func (f *faults) unusableKeys(field, path string, err error) {
	f.add(field, path, "cannot be used: "+err.Error(), "one hexadecimal key per line, for example from: openssl rand -hex 32")
}

func (r *Reflector) validate(e *faults) {
	if r == nil {
		return
	}
	if r.MaxRate < 0 || r.MaxRate > maxRate {
		e.add("reflector.max_rate", r.MaxRate, "is out of bounds", fmt.Sprintf("write 1 to %d packets per second", maxRate))
	}
	seen := make(map[Listener]int)
	for i, l := range r.Listeners {
		field := fmt.Sprintf("reflector.listeners[%d]", i)
		e.netns(field+".netns", l.Netns)
		if problem := checkListener(l.Address); problem != "" {
			e.add(field+".address", l.Address, problem, fmt.Sprintf("write IP:port, for example 10.0.0.1:%d or [fd00::1]:%d", stamp.Port, stamp.Port))
		}
		l.KeyFile = "" // a socket has one mode
		if first, twice := seen[l]; twice {
			e.add(field, nil, fmt.Sprintf("is the same as reflector.listeners[%d]", first), "remove one")
		} else {
			seen[l] = i
		}
	}
	for i, a := range r.Allow {
		if problem, fix := checkPrefix(a); problem != "" {
			e.add(fmt.Sprintf("reflector.allow[%d]", i), a, problem, fix)
		}
	}
}

func (f *File) validatePaths(e *faults) map[string]bool {
	names := make(map[string]bool)
	for i, p := range f.Paths {
		field := fmt.Sprintf("paths[%d]", i)
		e.label(field+".name", p.Name, "name: ovs-vxlan")
		e.label(field+".dataplane", p.Dataplane, "dataplane: ovs")
		e.label(field+".encap", p.Encap, "encap: vxlan")
		e.label(field+".mode", p.Mode, "mode: normal")
		e.label(field+".security", p.Security, "security: none")
		e.label(field+".layer", p.Layer, "layer: overlay")
		e.label(field+".placement", p.Placement, "placement: remote")
		for j, file := range p.FoundBy {
			if !filepath.IsAbs(file) {
				e.add(fmt.Sprintf("%s.found_by[%d]", field, j), file, "is not an absolute path", "write for example /run/vigia/site/pods.json")
			}
		}
		if len(p.FoundBy) > 0 && p.Dataplane != Auto && p.Encap != Auto {
			e.add(field+".found_by", nil, "has nothing to find", "write dataplane: auto or encap: auto, or remove it")
		}
		f.validateFurther(e, field, &p)
		if names[p.Name] {
			e.add(field+".name", p.Name, "is the name of another path", "choose another")
		}
		names[p.Name] = true
	}
	return names
}

func (f *File) validateClasses(e *faults, paths map[string]bool) map[string]*Class {
	names := make(map[string]*Class)
	for i := range f.Classes {
		c, field := &f.Classes[i], fmt.Sprintf("classes[%d]", i)
		c.validate(e, field, f.protocols)
		c.validateClassObjectives(e, field, paths)
		if names[c.Name] != nil {
			e.add(field+".name", c.Name, "is the name of another class", "choose another")
		}
		names[c.Name] = c
	}
	return names
}

func (c *Class) validate(e *faults, field string, protocols table) {
	e.label(field+".name", c.Name, "name: stamp-64")
	c.resolveProtocol(e, field, protocols)
	c.validateProtocol(e, field)
	c.validateFlows(e, field)
	c.validatePathMTU(e, field+".path_mtu")
	interval, deadline := time.Duration(c.Interval), c.deadline()
	switch {
	case interval == 0:
		e.add(field+".interval", nil, "is missing", "add it, for example interval: 100ms")
	case interval < minInterval || interval > maxInterval:
		e.add(field+".interval", interval, "is out of bounds", fmt.Sprintf("write %v to %v", minInterval, maxInterval))
	}
	switch {
	case interval == 0 && c.Deadline == 0:
	case deadline < minDeadline || deadline > maxDeadline:
		e.add(field+".deadline", deadline, "is out of bounds", fmt.Sprintf("write %v to %v", minDeadline, maxDeadline))
	case interval >= minInterval && deadline/interval > maxInFlight:
		e.add(field+".deadline", deadline, "leaves too many probes in flight at this interval",
			fmt.Sprintf("at most %v, or a longer interval", interval*maxInFlight))
	case c.oneAtATime() && deadline > interval:
		e.add(field+".deadline", deadline, "is longer than the interval, and there is one probe at a time", fmt.Sprintf("at most %v", interval))
	}
}

func (t *Target) validate(e *faults, field string, paths map[string]bool, classes map[string]*Class) {
	e.label(field+".dst", t.Dst, "dst: compute2")
	e.label(field+".path", t.Path, "path: ovs-vxlan")
	e.label(field+".tenant", t.Tenant, "tenant: _infra")
	e.label(field+".probe", t.Probe, "probe: stamp-64")
	if t.Path != "" && !paths[t.Path] {
		e.add(field+".path", t.Path, "is not declared under paths", "declare it there or correct it")
	}
	class := classes[t.Probe]
	if t.Probe != "" && class == nil {
		e.add(field+".probe", t.Probe, "is not declared under classes", "declare it there or correct it")
	}
	e.netns(field+".netns", t.Netns)
	source, sourceProblem := ParseSource(t.Source)
	if sourceProblem != "" {
		e.add(field+".source", t.Source, sourceProblem, "write IP or IP:port, for example 10.0.0.1 or [fd00::1]:40000")
	}
	c := classes[t.Probe]
	if c == nil {
		c = &Class{}
	}
	if source.Port() != 0 && c.protocol != nil && (c.sourcePorts() > 1 || c.traits.Flows != protocol.PortFlows) {
		e.add(field+".source", t.Source, "has a port, and the class chooses ports itself", "write the address alone")
	}
	e.device(field+".device", t.Device)
	if t.Address == "" {
		e.add(field+".address", nil, "is missing", fmt.Sprintf("add it, for example address: 10.0.0.2:%d", stamp.Port))
		return
	}
	host, _, problem := c.parseAddress(t.Address)
	if problem != "" {
		e.add(field+".address", t.Address, problem, c.addressFix())
		return
	}
	if problem := CheckFamilies(source, host); problem != "" {
		e.add(field+".source", t.Source, problem, "write both as IPv4 or both as IPv6")
	}
}
