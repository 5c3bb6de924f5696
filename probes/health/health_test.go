package health

import (
	"fmt"
	"os"
	"testing"
	"testing/fstest"
	"time"
)

// host is a file system whose state a test changes.
type host struct {
	fstest.MapFS
	user, stolen int
}

func newHost() *host { return &host{MapFS: fstest.MapFS{}} }

func (h *host) write(name, content string) { h.MapFS[name] = &fstest.MapFile{Data: []byte(content)} }

func (h *host) pressure(percent float64) {
	h.write("proc/pressure/cpu", fmt.Sprintf("some avg10=%.2f avg60=1.00 avg300=1.00 total=1\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=0\n", percent))
}

// ran adds clock ticks, of which some were stolen.
func (h *host) ran(ticks, stolen int) {
	h.user, h.stolen = h.user+ticks-stolen, h.stolen+stolen
	h.write("proc/stat", fmt.Sprintf("cpu  %d 0 0 100 0 0 0 %d 50 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n", h.user, h.stolen))
}

func TestNothingIsKnown(t *testing.T) {
	m := New(newHost())
	if r := m.Reading(); r != (Reading{-1, -1, -1}) {
		t.Errorf("%+v", r)
	}
	if _, bad := m.Kernel(); bad {
		t.Error("a host that tells nothing is called unfit")
	}
}

func TestSteal(t *testing.T) {
	h := newHost()
	h.ran(1000, 500) // since boot; says nothing about now
	m := New(h)
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
	h := newHost()
	h.pressure(99.5)
	m := New(h)
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
	m := New(newHost())
	if _, bad := m.Application(int64(DefaultScheduleLag)); bad {
		t.Error("unfit at the limit")
	}
	if r, bad := m.Application(int64(DefaultScheduleLag) + 1); !bad || r != ScheduleLag {
		t.Errorf("%v %v", r, bad)
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
			h := newHost()
			h.write("proc/self/cgroup", tc.cgroup)
			h.write(tc.file, fmt.Sprintf(tc.format, 7))
			m := New(h)
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
	h := newHost()
	h.write("proc/pressure/cpu", "some avg10=x")
	h.write("proc/stat", "cpu a b c d e f g h\n")
	h.write("proc/self/cgroup", "x\n0\n0::/a\n")
	h.write("sys/fs/cgroup/a/cpu.stat", "throttled_usec\n")
	if r := New(h).Reading(); r != (Reading{-1, -1, -1}) {
		t.Errorf("%+v", r)
	}
}

// TestThisHost reads the real thing.
func TestThisHost(t *testing.T) {
	r := New(os.DirFS("/")).Reading()
	if r.Steal != 0 {
		t.Errorf("/proc/stat: %v", r.Steal)
	}
	if _, err := os.Stat("/proc/pressure/cpu"); err == nil && (r.CPUPressure < 0 || r.CPUPressure > 1) {
		t.Errorf("/proc/pressure/cpu: %v", r.CPUPressure)
	}
}
