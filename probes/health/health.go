// Package health says whether this host is fit to measure. What a starved prober
// sees must not be put down to the network.
package health

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
)

// Reason is why a host is not fit.
type Reason uint8

// The reasons, in the order in which they are looked for.
const (
	Steal       Reason = iota // the hypervisor ran others on our processors
	Throttled                 // our control group's quota was used up
	CPUPressure               // runnable tasks wait for a processor (PSI)
	ScheduleLag               // the probe itself left too late
	NumReasons  = iota
)

// String returns the reason as the label value reason.
func (r Reason) String() string {
	return [NumReasons]string{"steal", "throttled", "cpu_pressure", "schedule_lag"}[r]
}

// Limits are from where on the host is not fit.
type Limits struct {
	CPUPressure float64       // share of time that some task waited; from 1 on never
	Steal       float64       // share of processor time
	ScheduleLag time.Duration // of one probe
}

// The defaults. Kernel stamps do not mind a busy host, so pressure is no reason
// unless someone says so.
const (
	DefaultCPUPressure = 1.0
	DefaultSteal       = 0.1
	DefaultScheduleLag = 100 * time.Millisecond
)

// BusyPressure is the share of time that some task waits for a processor from which on a
// host is busy: it delays packets itself, for its softirqs wait among the others.
const BusyPressure = 0.5

// Reading is what the kernel says; a value that it does not tell is negative.
type Reading struct {
	CPUPressure      float64 // share of the last 10 s
	Steal            float64 // share of the time since the reading before
	ThrottledSeconds float64 // in total
}

// period is the time between two readings.
const period = time.Second

// Monitor reads the host's state once a second. Its methods are safe for concurrent
// use.
type Monitor struct {
	root   string     // of the file system
	proc   *procfs.FS // nil without one: then nothing is known
	limits atomic.Pointer[Limits]
	state  atomic.Uint32 // bit per reason
	late   atomic.Bool   // whether a probe has left too late since the last reading
	now    func() time.Time

	mu              sync.Mutex
	reading         Reading
	stolen, ticks   uint64
	throttledBefore float64
	updated         time.Time
	busy            time.Duration
}

// New returns a monitor that reads proc and sys below a folder, / for those of this host.
func New(root string) *Monitor {
	m := &Monitor{root: root, throttledBefore: -1, now: time.Now}
	if proc, err := procfs.NewFS(filepath.Join(root, "proc")); err == nil {
		m.proc = &proc
	}
	m.limits.Store(&Limits{CPUPressure: DefaultCPUPressure, Steal: DefaultSteal, ScheduleLag: DefaultScheduleLag})
	m.Update()
	return m
}

// SetLimits replaces the limits.
func (m *Monitor) SetLimits(l Limits) { m.limits.Store(&l) }

// Run reads until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			m.Update()
		}
	}
}

// Update reads the host's state once.
func (m *Monitor) Update() {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := Reading{CPUPressure: m.pressure(), Steal: m.steal(), ThrottledSeconds: m.throttled()}
	limits := m.limits.Load()
	var state uint32
	if r.Steal >= limits.Steal {
		state |= 1 << Steal
	}
	if m.throttledBefore >= 0 && r.ThrottledSeconds > m.throttledBefore {
		state |= 1 << Throttled
	}
	if limits.CPUPressure < 1 && r.CPUPressure >= limits.CPUPressure {
		state |= 1 << CPUPressure
	}
	m.throttledBefore = r.ThrottledSeconds
	m.reading = r
	now := m.now()
	if late := m.late.Swap(false); late || state != 0 || r.CPUPressure >= BusyPressure {
		if !m.updated.IsZero() {
			m.busy += now.Sub(m.updated)
		}
	}
	m.updated = now
	m.state.Store(state)
}

// Reading returns the last reading.
func (m *Monitor) Reading() Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reading
}

// Busy returns for how long the host may have delayed probes itself: it was not fit for any
// reason, or tasks waited for a processor for BusyPressure of the time. It counts the time
// between two readings as the second says.
func (m *Monitor) Busy() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.busy
}

// Unfit reports whether the host is not fit for the reason, as of the last reading.
func (m *Monitor) Unfit(r Reason) bool { return m.state.Load()>>r&1 != 0 }

// Kernel reports why delays between kernel stamps are not to be trusted; ok is
// false when they are. Only a processor that stands still disturbs them.
func (m *Monitor) Kernel() (r Reason, ok bool) { return Steal, m.Unfit(Steal) }

// Application reports why the delay that user space saw of a probe which left lag
// nanoseconds late is not to be trusted; ok is false when it is.
func (m *Monitor) Application(lag int64) (r Reason, ok bool) {
	if state := m.state.Load(); state != 0 {
		for r = range Reason(ScheduleLag) {
			if state>>r&1 != 0 {
				return r, true
			}
		}
	}
	if lag <= int64(m.limits.Load().ScheduleLag) {
		return ScheduleLag, false
	}
	m.late.Store(true)
	return ScheduleLag, true
}

// pressure reads the share of the last ten seconds in which some task waited for a
// processor (Documentation/accounting/psi.rst).
func (m *Monitor) pressure() float64 {
	if m.proc == nil {
		return -1
	}
	stats, err := m.proc.PSIStatsForResource("cpu")
	if err != nil || stats.Some == nil {
		return -1
	}
	return stats.Some.Avg10 / 100
}

// The columns of the first line of /proc/stat (proc(5)): user, nice, system, idle,
// iowait, irq, softirq, steal; guest time is part of user time.
const (
	stealColumn = 8
	cpuColumns  = 9
)

// maxStatLine is more than the first line of /proc/stat can have.
const maxStatLine = 512

// steal reads the share of processor time that the hypervisor took, from the first line of
// /proc/stat. procfs would read the lines of all processors and interrupts, once a second:
// on 64 processors 100 times the work, and 110 kB to collect (BenchmarkStealBesideProcfs).
func (m *Monitor) steal() float64 {
	f, err := os.Open(filepath.Join(m.root, "proc/stat"))
	if err != nil {
		return -1
	}
	defer f.Close()
	var raw [maxStatLine]byte
	n, err := f.Read(raw[:])
	if err != nil {
		return -1
	}
	line, _, _ := bytes.Cut(raw[:n], []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) < cpuColumns || fields[0] != "cpu" {
		return -1
	}
	var ticks, stolen uint64
	for i, text := range fields[1:cpuColumns] {
		v, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return -1
		}
		ticks += v
		if i+1 == stealColumn {
			stolen = v
		}
	}
	more, all := stolen-m.stolen, ticks-m.ticks
	first := m.ticks == 0
	m.stolen, m.ticks = stolen, ticks
	if first || all == 0 || more > all {
		return 0
	}
	return float64(more) / float64(all)
}

// throttled reads for how long our control group was throttled, in seconds.
func (m *Monitor) throttled() float64 {
	for _, candidate := range m.cpuStats() {
		raw, err := os.ReadFile(filepath.Join(m.root, candidate))
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(bytes.NewReader(raw))
		for lines.Scan() {
			var v float64
			switch {
			case scan(lines.Text(), "throttled_usec %f", &v):
				return v / 1e6
			case scan(lines.Text(), "throttled_time %f", &v): // version 1
				return v / 1e9
			}
		}
	}
	return -1
}

func scan(line, format string, v *float64) bool {
	n, err := fmt.Sscanf(line, format, v)
	return err == nil && n == 1
}

// cpuStats returns where our control group's cpu.stat may be, version 2 first.
func (m *Monitor) cpuStats() (paths []string) {
	if m.proc == nil {
		return nil
	}
	self, err := m.proc.Self()
	if err != nil {
		return nil
	}
	groups, err := self.Cgroups()
	if err != nil {
		return nil
	}
	for _, g := range groups {
		for _, mount := range mounts(g.Controllers) {
			// With a namespace of its own the group is the root that is mounted.
			for _, group := range []string{g.Path, "/"} {
				paths = append(paths, filepath.Join("sys/fs/cgroup", mount, filepath.Clean("/"+group), "cpu.stat"))
			}
		}
	}
	return paths
}

// mounts returns where a hierarchy with the controllers is mounted.
func mounts(controllers []string) []string {
	switch {
	case len(controllers) == 0:
		return []string{"", "unified"}
	case slices.Contains(controllers, "cpu"):
		return []string{strings.Join(controllers, ","), "cpu"}
	}
	return nil
}
