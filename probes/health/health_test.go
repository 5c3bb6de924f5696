package health

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// host is a file system whose state a test changes.
type host struct {
	t            *testing.T
	root         string
	user, stolen int
}

// newHost returns one with an empty proc, in which we are process 42.
func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, root: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(h.root, "proc/42"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("42", filepath.Join(h.root, "proc/self")); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *host) write(name, content string) {
	h.t.Helper()
	path := filepath.Join(h.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) pressure(percent float64) {
	h.write("proc/pressure/cpu", fmt.Sprintf("some avg10=%.2f avg60=1.00 avg300=1.00 total=1\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=0\n", percent))
}

// ran adds clock ticks, of which some were stolen.
func (h *host) ran(ticks, stolen int) {
	h.user, h.stolen = h.user+ticks-stolen, h.stolen+stolen
	h.write("proc/stat", fmt.Sprintf("cpu  %d 0 0 100 0 0 0 %d 50 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n", h.user, h.stolen))
}

func TestNothingIsKnown(t *testing.T) {
	m := New(newHost(t).root)
	if r := m.Reading(); r != (Reading{-1, -1, -1}) {
		t.Errorf("%+v", r)
	}
	if _, bad := m.Kernel(); bad {
		t.Error("a host that tells nothing is called unfit")
	}
}

func TestSteal(t *testing.T) {
	h := newHost(t)
	h.ran(1000, 500) // since boot; says nothing about now
	m := New(h.root)
	if _, bad := m.Kernel(); bad {
		t.Error("unfit by what was stolen before")
	}
	h.ran(100, 9)
	m.Update()
	if _, bad := m.Kernel(); bad || m.Reading().Steal != 0.09 {
		t.Errorf("unfit at %v", m.Reading())
	}
	h.ran(100, 10)
	m.Update()
	if r, bad := m.Kernel(); !bad || r != Steal {
		t.Errorf("fit at %v", m.Reading())
	}
	if r, bad := m.Application(0); !bad || r != Steal {
		t.Error("user space is fit when the kernel is not")
	}
	h.ran(100, 0)
	m.Update()
	if m.Unfit(Steal) {
		t.Error("it does not end")
	}
}

func TestPressure(t *testing.T) {
	h := newHost(t)
	h.pressure(99.5)
	m := New(h.root)
	if _, bad := m.Application(0); bad || m.Reading().CPUPressure != 0.995 {
		t.Errorf("unfit by default at %v", m.Reading())
	}
	m.SetLimits(Limits{CPUPressure: 0.6, Steal: 1, ScheduleLag: time.Second})
	m.Update()
	if r, bad := m.Application(0); !bad || r != CPUPressure {
		t.Errorf("%v %v", r, bad)
	}
	if _, bad := m.Kernel(); bad {
		t.Error("pressure is said to disturb kernel stamps")
	}
	h.pressure(59)
	m.Update()
	if _, bad := m.Application(0); bad {
		t.Error("it does not end")
	}
}

func TestScheduleLag(t *testing.T) {
	m := New(newHost(t).root)
	if _, bad := m.Application(int64(DefaultScheduleLag)); bad {
		t.Error("unfit at the limit")
	}
	if r, bad := m.Application(int64(DefaultScheduleLag) + 1); !bad || r != ScheduleLag {
		t.Errorf("%v %v", r, bad)
	}
}

// clock is a time that a test sets.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// pass lets a time pass and reads the host's state.
func (c *clock) pass(m *Monitor, d time.Duration) {
	c.at = c.at.Add(d)
	m.Update()
}

func TestBusy(t *testing.T) {
	h := newHost(t)
	h.pressure(49.9)
	h.ran(100, 0)
	m, c := New(h.root), &clock{at: time.Unix(1000, 0)}
	m.now, m.updated = c.now, c.at
	step := func(what string, want time.Duration) {
		t.Helper()
		c.pass(m, 2*time.Second)
		if m.Busy() != want {
			t.Errorf("%s: busy for %v, not %v", what, m.Busy(), want)
		}
	}
	h.ran(100, 0)
	step("at rest", 0)
	m.Application(int64(DefaultScheduleLag))
	h.ran(100, 0)
	step("a probe just in time", 0)
	m.Application(int64(DefaultScheduleLag) + 1)
	h.ran(100, 0)
	step("a probe too late", 2*time.Second)
	h.ran(100, 0)
	step("no probe since", 2*time.Second)
	h.pressure(50)
	h.ran(100, 0)
	step("tasks wait, by default no reason to be unfit", 4*time.Second)
	m.Application(int64(DefaultScheduleLag) + 1)
	h.ran(100, 50)
	step("three reasons at once", 6*time.Second)
	h.pressure(0)
	h.ran(100, 0)
	step("at rest again", 6*time.Second)
}

// TestBusyFromTheFirstReading: of the time before it nothing is known.
func TestBusyFromTheFirstReading(t *testing.T) {
	h := newHost(t)
	h.pressure(99)
	if m := New(h.root); m.Busy() != 0 {
		t.Errorf("busy for %v before there was time", m.Busy())
	}
}

// TestALateProbeCountsOnce, when it leaves while the state is read, too.
func TestALateProbeCountsOnce(t *testing.T) {
	m, c := New(newHost(t).root), &clock{at: time.Unix(1000, 0)}
	m.now, m.updated = c.now, c.at
	for range 100 {
		done := make(chan struct{})
		go func() {
			m.Application(int64(time.Second))
			close(done)
		}()
		m.Update()
		<-done
		before := m.Busy()
		c.pass(m, time.Second)
		c.pass(m, time.Second)
		if after := m.Busy(); after-before > time.Second {
			t.Fatalf("one late probe counts %v", after-before)
		}
	}
}

func TestThrottling(t *testing.T) {
	for name, tc := range map[string]struct{ cgroup, file, format string }{
		"version 2":           {"0::/system.slice/vigia.service\n", "sys/fs/cgroup/system.slice/vigia.service/cpu.stat", "usage_usec 1\nnr_throttled 4\nthrottled_usec %d000000\n"},
		"its own namespace":   {"0::/pod/x\n", "sys/fs/cgroup/cpu.stat", "throttled_usec %d000000\n"},
		"outside of the root": {"0::/../../x\n", "sys/fs/cgroup/x/cpu.stat", "throttled_usec %d000000\n"},
		"version 1":           {"3:cpuset:/x\n1:cpu,cpuacct:/docker/1\n", "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.stat", "nr_throttled 3\nthrottled_time %d000000000\n"},
		"mixed":               {"1:cpu:/\n0::/\n", "sys/fs/cgroup/cpu/cpu.stat", "throttled_time %d000000000\n"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.write("proc/self/cgroup", tc.cgroup)
			h.write(tc.file, fmt.Sprintf(tc.format, 7))
			m := New(h.root)
			if m.Reading().ThrottledSeconds != 7 || m.Unfit(Throttled) {
				t.Errorf("%+v", m.Reading())
			}
			h.write(tc.file, fmt.Sprintf(tc.format, 8))
			m.Update()
			if r, bad := m.Application(0); !bad || r != Throttled {
				t.Errorf("%v %v", r, bad)
			}
			m.Update()
			if m.Unfit(Throttled) {
				t.Error("it does not end")
			}
		})
	}
}

func TestNonsense(t *testing.T) {
	h := newHost(t)
	h.write("proc/pressure/cpu", "some avg10=x")
	h.write("proc/stat", "cpu a b c d e f g h\n")
	h.write("proc/self/cgroup", "0::/a\n")
	h.write("sys/fs/cgroup/a/cpu.stat", "throttled_usec\n")
	if r := New(h.root).Reading(); r != (Reading{-1, -1, -1}) {
		t.Errorf("%+v", r)
	}
	h.write("proc/self/cgroup", "x\n0\n")
	h.write("proc/stat", "")
	h.write("proc/pressure/cpu", "full avg10=1.00 avg60=1.00 avg300=1.00 total=1\n")
	if r := New(h.root).Reading(); r != (Reading{-1, -1, -1}) {
		t.Errorf("%+v", r)
	}
	if r := New(t.TempDir()).Reading(); r != (Reading{-1, -1, -1}) {
		t.Errorf("without proc: %+v", r)
	}
}

// TestThisHost reads the real thing.
func TestThisHost(t *testing.T) {
	r := New("/").Reading()
	if r.Steal != 0 {
		t.Errorf("/proc/stat: %v", r.Steal)
	}
	if _, err := os.Stat("/proc/pressure/cpu"); err == nil && (r.CPUPressure < 0 || r.CPUPressure > 1) {
		t.Errorf("/proc/pressure/cpu: %v", r.CPUPressure)
	}
}

// statOf is a /proc/stat of so many processors.
func statOf(processors int) string {
	var s strings.Builder
	s.WriteString("cpu  12345678 0 1234567 99999999 12 0 12 50 0 0\n")
	for i := range processors {
		fmt.Fprintf(&s, "cpu%d 123456 0 12345 999999 12 0 12 50 0 0\n", i)
	}
	s.WriteString("intr 123456" + strings.Repeat(" 0", 20*processors) + "\nctxt 1\nbtime 1\nprocesses 1\nprocs_running 1\nprocs_blocked 0\nsoftirq 1 2 3 4 5 6 7 8 9 10 11\n")
	return s.String()
}

// BenchmarkStealBesideProcfs reads the stolen time of hosts of several sizes as we do and by
// procfs, in turns, and prints the ratio.
func BenchmarkStealBesideProcfs(b *testing.B) {
	for _, processors := range []int{2, 64, 256} {
		b.Run(fmt.Sprintf("processors=%d", processors), func(b *testing.B) {
			root := b.TempDir()
			if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
				b.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "proc/stat"), []byte(statOf(processors)), 0o600); err != nil {
				b.Fatal(err)
			}
			m := New(root)
			var own, other time.Duration
			for range b.N {
				start := time.Now()
				m.steal()
				between := time.Now()
				if _, err := m.proc.Stat(); err != nil {
					b.Fatal(err)
				}
				own, other = own+between.Sub(start), other+time.Since(between)
			}
			b.ReportMetric(float64(own)/float64(b.N), "ours-ns")
			b.ReportMetric(float64(other)/float64(b.N), "procfs-ns")
			b.ReportMetric(testing.AllocsPerRun(10, func() { m.steal() }), "ours-allocs")
			b.ReportMetric(testing.AllocsPerRun(10, func() { _, _ = m.proc.Stat() }), "procfs-allocs")
			b.ReportMetric(float64(own)/float64(other), "ratio")
		})
	}
}
