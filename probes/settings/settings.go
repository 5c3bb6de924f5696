// Package settings reads and checks the configuration of vigia-probe.
package settings

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"vigia/internal/config"
	"vigia/probes/bulk"
	"vigia/probes/clockerror"
	"vigia/probes/health"
	"vigia/probes/moment"
	"vigia/probes/objective"
	"vigia/probes/pathmtu"
	"vigia/probes/protocol/registry"
	"vigia/probes/reflector"
	"vigia/probes/sender"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
	"vigia/probes/tsinfo"
)

// Settings is a checked configuration.
type Settings struct {
	Fixed
	Live

	// As they were written, for what depends on networks that are found later.
	file    *File
	classes map[string]*Class
}

// Live is what a reload puts into force.
type Live struct {
	Node      string
	Reflector reflector.Config
	Paths     []Path
	Targets   []sender.Target
	// Clock says who knows our clock's error; MaxOnewayError is how much of both
	// clocks one-way delays accept.
	Clock          clockerror.Config
	MaxOnewayError time.Duration
	Health         health.Limits
	Hardware       tsinfo.Mode
	Moments        moment.Config

	// PathMTU says of which classes' targets the path MTU is searched.
	PathMTU map[string]pathmtu.Plan

	Sites []Site
	// AllSeries says that targets have all series that they can have, also of what has not
	// occurred.
	AllSeries bool
	// PairSeries is how many series pairs of meshes may have of their own.
	PairSeries int
	BulkServer bulk.Config
	Bulk       bulk.Plan
	Objectives []objective.Objective
	// Bounds are the objectives that operators set; a path that is empty stands for
	// all that have none of their own.
	Bounds map[ClassPath]objective.Bounds
}

const defaultMaxRate = 10000

// Load reads and checks the file at path.
func Load(path string) (*Settings, error) {
	f := File{protocols: registry.All()}
	if err := config.Load(path, &f); err != nil {
		return nil, err
	}
	return f.settings(), nil
}

// Parse does what Load does with the content of a file called name.
func Parse(name string, raw []byte) (*Settings, error) {
	f := File{protocols: registry.All()}
	if err := config.Parse(name, raw, &f); err != nil {
		return nil, err
	}
	return f.settings(), nil
}

// Summary says in a line what the settings make the program do.
func (s *Settings) Summary() string {
	rate := 0.0
	for _, t := range s.Targets {
		rate += 1 / t.Interval.Seconds()
	}
	return fmt.Sprintf("node %s: %d targets, %.6g probes/s, %d reflector listeners",
		s.Node, len(s.Targets), rate, len(s.Reflector.Listeners))
}

// settings converts a file that Validate has found right.
func (f *File) settings() *Settings {
	directory := os.Getenv("STATE_DIRECTORY")
	s := &Settings{
		Fixed: Fixed{
			BulkState:       stateFile(f.Bulk.state(), directory, bulkState),
			ObjectivesState: stateFile(f.ObjectivesState, directory, objectivesState),
			MomentsState:    stateFile(f.Moments.State, directory, momentsState),
		},
		Live: Live{Node: f.Node, Paths: f.Paths, Reflector: f.Reflector.config(f.keys)},
	}
	classes := make(map[string]*Class, len(f.Classes))
	for i := range f.Classes {
		classes[f.Classes[i].Name] = &f.Classes[i]
	}
	s.file, s.classes = f, classes
	s.Clock, s.MaxOnewayError = f.Clock.config(), f.Clock.maxOnewayError()
	s.Health = f.Health.limits()
	s.Moments = f.Moments.config()
	s.Hardware = hardwareModes[f.Timestamps.Hardware]
	s.Targets = f.convert(f.Targets, classes)
	s.Sites, s.PairSeries = f.sites(classes, nil), f.Mesh.pairSeries()
	s.AllSeries = f.Series == allSeries
	s.BulkServer, s.Bulk = f.bulk()
	s.Objectives, s.Bounds = f.objectives(), f.bounds()
	s.PathMTU = f.searches()
	return s
}

// convert converts targets, and joins those that are twins.
func (f *File) convert(written []Target, classes map[string]*Class) (targets []sender.Target) {
	for _, t := range written {
		c := classes[t.Probe]
		source, _ := ParseSource(t.Source)
		host, port, _ := c.parseAddress(t.Address)
		target := sender.Target{
			Labels: sender.Labels{Src: f.Node, Dst: t.Dst, Path: t.Path, Tenant: t.Tenant, Probe: t.Probe},
			Netns:  t.Netns, Source: source, Host: host, Port: port,
			Channel: timestamping.Channel{Device: t.Device},
		}
		c.apply(&target)
		if keyed := f.keyed[keyedClass{c.Name, t.KeyFile}]; keyed != nil {
			target.Protocol = keyed
		}
		targets = append(targets, target)
	}
	joinTwins(written, targets)
	return targets
}

// hardwareModes are what timestamps.hardware can be.
var hardwareModes = map[string]tsinfo.Mode{"": tsinfo.Auto, "auto": tsinfo.Auto, "off": tsinfo.Off, "enable": tsinfo.Enable}

// What series can be.
const (
	usualSeries = "usual"
	allSeries   = "all"
)

const defaultMaxOnewayError = time.Millisecond

// clockSources are what clock.source can be.
var clockSources = map[string]clockerror.Source{
	"": "", "auto": "", string(clockerror.SourceChrony): clockerror.SourceChrony,
	string(clockerror.SourcePTP): clockerror.SourcePTP, string(clockerror.SourceKernel): clockerror.SourceKernel,
}

func (c *Clock) config() clockerror.Config {
	return clockerror.Config{
		Source: clockSources[c.Source], Stated: time.Duration(c.ErrorBound), Chrony: c.Chrony, PTPPath: c.PTP4L,
	}
}

func (c *Clock) maxOnewayError() time.Duration {
	if c.MaxOnewayError == 0 {
		return defaultMaxOnewayError
	}
	return time.Duration(c.MaxOnewayError)
}

func (h *Health) limits() health.Limits {
	l := health.Limits{
		CPUPressure: health.DefaultCPUPressure, Steal: health.DefaultSteal, ScheduleLag: health.DefaultScheduleLag,
	}
	if h.CPUPressure != nil {
		l.CPUPressure = *h.CPUPressure
	}
	if h.Steal != nil {
		l.Steal = *h.Steal
	}
	if h.ScheduleLag != 0 {
		l.ScheduleLag = time.Duration(h.ScheduleLag)
	}
	return l
}

func (r *Reflector) config(keys map[string]stamp.Keys) reflector.Config {
	c := reflector.Config{MaxRate: defaultMaxRate}
	if r == nil {
		return c
	}
	if r.MaxRate != 0 {
		c.MaxRate = r.MaxRate
	}
	for _, l := range r.Listeners {
		address, _ := netip.ParseAddrPort(l.Address)
		key := sockets.Key{Netns: l.Netns, Local: address}
		c.Listeners = append(c.Listeners, key)
		if l.KeyFile != "" {
			if c.Keys == nil {
				c.Keys = make(map[sockets.Key]stamp.Keys)
			}
			c.Keys[key] = keys[l.KeyFile]
		}
	}
	c.Allow = prefixes(r.Allow)
	return c
}

const defaultDeadline = time.Second
