// Package attribution is the source of elements that tenants share and of who uses
// them: softirq processing, ovs-vswitchd, uplinks' queues, the table of connections. It
// splits what each element was used for by what tenants' ports carried meanwhile.
package attribution

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/prometheus/procfs"

	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
	"vigia/internal/netns"
	"vigia/internal/ports"
	"vigia/internal/unixctl"
)

// Elements, as the label "resource" names them.
const (
	softirq   = "softirq"
	vswitchd  = "ovs-vswitchd"
	conntrack = "conntrack"
	queue     = "queue/" // and the device
)

// Source reads procfs and splits what is used by the packets of tenants' ports.
type Source struct {
	netns  string
	runDir string // of Open vSwitch; empty without it
	proc   proc
	before *usage
	last   carried           // at the scrape before
	shares map[share]float64 // seconds so far
	links  *links

	saturation saturation

	seconds, used, full, utilization, drops *exposition.Family
}

type share struct{ tenant, resource string }

// carried is what ports carried.
type carried struct {
	ports []ports.Port
	by    []source.Carried // of each
}

// of returns what the ports of a view carried then, by their positions in the view.
func (c *carried) of(v *source.View) []source.Carried {
	if source.SameList(c.ports, v.Ports) {
		return c.by
	}
	byID := make(map[string]source.Carried, len(c.ports))
	for i := range c.ports {
		byID[c.ports[i].ID] = c.by[i]
	}
	out := make([]source.Carried, len(v.Ports))
	for i := range v.Ports {
		out[i] = byID[v.Ports[i].ID]
	}
	return out
}

// grown is by how much what a tenant's ports carried grew since the scrape before.
type grown struct {
	by   float64
	seen bool // a port of it was there, and counted
}

// growth returns what each tenant's ports grew by, in the order of the view's tenants,
// and the sum. What is new, or started again, counts from the next time on.
func growth(v *source.View, before []source.Carried, counts func(p *ports.Port) bool, count func(c *source.Carried) uint64) (tenants []grown, sum float64) {
	names, of := v.Tenants()
	tenants = make([]grown, len(names))
	for i := range before {
		last, now := count(&before[i]), count(&v.Carried[i])
		if !before[i].Known || now < last || !counts(&v.Ports[i]) {
			continue
		}
		t := &tenants[of[i]]
		t.by, t.seen = t.by+float64(now-last), true
		sum += float64(now - last)
	}
	return tenants, sum
}

func packets(c *source.Carried) uint64 { return c.Packets }
func sent(c *source.Carried) uint64    { return c.Sent }

func every(*ports.Port) bool       { return true }
func userspace(p *ports.Port) bool { return p.DataPlane == ports.OVSUserspace }

// usage is what the elements have used so far, in seconds.
type usage struct {
	softirq  float64
	vswitchd float64
	pid      int // of vswitchd; 0 if it does not run
}

// New returns the source for the namespace, with the folder of Open vSwitch's
// pid file, or "" without Open vSwitch.
func New(f source.Families, netns, runDir string) (*Source, error) {
	proc, err := newProc(procfs.DefaultMountPoint)
	if err != nil {
		return nil, err
	}
	return &Source{
		netns: netns, runDir: runDir, proc: proc, shares: make(map[share]float64), links: newLinks(netns),
		seconds:     source.Family(f, "vigia_tenant_resource_seconds_total"),
		used:        source.Family(f, "vigia_resource_seconds_total"),
		full:        source.Family(f, "vigia_resource_full_seconds_total"),
		utilization: source.Family(f, "vigia_resource_utilization_ratio"),
		drops:       source.Family(f, "vigia_resource_drops_total"),
	}, nil
}

// Collect emits the elements and the tenants' shares. It runs after the sources
// that record View.Carried.
func (s *Source) Collect(v *source.View, out *exposition.Page) error {
	now, err := s.usage()
	if err != nil {
		return err
	}
	out.Emit(s.used, now.softirq, softirq, "cpu")
	if now.pid != 0 {
		out.Emit(s.used, now.vswitchd, vswitchd, "process")
		out.Emit(s.full, s.saturation.seconds(), vswitchd, "process")
	}
	var queues error
	if v.Carried != nil || len(v.Ports) == 0 { // else no source has read the ports this time: the next scrape attributes both
		before := s.last.of(v)
		s.split(v, now, before)
		queues = s.queues(v, before, out)
		s.last = carried{v.Ports, append(s.last.by[:0], v.Carried...)}
	}
	for k, seconds := range s.shares {
		out.Emit(s.seconds, seconds, k.tenant, k.resource, kind(k.resource))
	}
	return errors.Join(queues, s.softnet(out), s.connections(out))
}

// kind returns the label "kind" of an element.
func kind(resource string) string {
	switch {
	case resource == vswitchd:
		return "process"
	case strings.HasPrefix(resource, queue):
		return "queue"
	}
	return "cpu"
}

// Close frees the socket.
func (s *Source) Close() error { return s.links.close() }

func (s *Source) usage() (u usage, err error) {
	if u.softirq, err = s.proc.softirqSeconds(); err != nil {
		return u, err
	}
	if s.runDir == "" {
		return u, nil
	}
	u.pid, u.vswitchd, err = s.vswitchd()
	return u, err
}

// vswitchd returns the process id of ovs-vswitchd and its processor time; 0 if it does not run.
func (s *Source) vswitchd() (pid int, seconds float64, err error) {
	pid, err = unixctl.PID(s.runDir, vswitchd)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil // it does not run
	}
	if err != nil {
		return 0, 0, err
	}
	seconds, err = s.proc.processSeconds(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil // its pid file was left behind
	}
	return pid, seconds, err
}

// split attributes what was used since the scrape before to tenants, by the packets of
// their ports in that time. Packets cost about the same whatever their size; what ports of
// no tenant carried is attributed to no tenant.
func (s *Source) split(v *source.View, now usage, carried []source.Carried) {
	before := s.before
	s.before = &now
	if before == nil {
		return
	}
	tenants, sum := growth(v, carried, every, packets)
	s.add(v, softirq, now.softirq-before.softirq, tenants, sum)
	if now.pid != 0 && now.pid == before.pid {
		tenants, sum = growth(v, carried, userspace, packets)
		s.add(v, vswitchd, now.vswitchd-before.vswitchd, tenants, sum)
	}
}

func (s *Source) add(v *source.View, resource string, seconds float64, tenants []grown, sum float64) {
	names, _ := v.Tenants()
	for i, t := range tenants {
		if !t.seen {
			continue
		}
		k := share{names[i], resource}
		if sum > 0 && seconds > 0 {
			s.shares[k] += seconds * t.by / sum
		} else if _, ok := s.shares[k]; !ok {
			s.shares[k] = 0 // zero first
		}
	}
}

// softnet emits what the processors' receive queues dropped.
func (s *Source) softnet(out *exposition.Page) error {
	dropped, err := s.proc.softnetDropped()
	if err != nil {
		return err
	}
	out.Emit(s.drops, float64(dropped), softirq, "cpu", string(source.CPUBacklog))
	return nil
}

// connections emits how full the namespace's table of connections is and what
// that cost. Without connection tracking there is nothing to emit.
func (s *Source) connections(out *exposition.Page) error {
	var t connTable
	err := netns.Do(s.netns, func() (err error) {
		t, err = s.proc.connections()
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if t.max > 0 {
		out.Emit(s.utilization, float64(t.count)/float64(t.max), conntrack, "table")
	}
	if t.hasDrops {
		out.Emit(s.drops, float64(t.drops), conntrack, "table", string(source.ConntrackFull))
	}
	return nil
}
