package police

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/limits/mechanismtest"
)

// node is a namespace with two ports that have the BPF program, and its manager.
func node(t *testing.T) (*vport.Manager, []ports.Port) {
	t.Helper()
	ns := testutil.NewNetNS(t)
	m, err := vport.Open(vport.Options{PinDir: testutil.NewBPFFS(t), NetNS: ns, MaxPorts: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	var out []ports.Port
	for i := range 2 {
		device := fmt.Sprintf("tap%d", i)
		testutil.IP(t, "-n", ns, "link", "add", device, "type", "veth", "peer", "name", device+"p")
		var index int
		if _, err := fmt.Sscanf(testutil.IP(t, "-n", ns, "-o", "link", "show", "dev", device), "%d:", &index); err != nil {
			t.Fatal(err)
		}
		if err := m.Attach(index, vport.TCX); err != nil {
			t.Fatal(err)
		}
		out = append(out, ports.Port{ID: device, Tenant: "red", Device: device, Index: index})
	}
	return m, out
}

func TestMechanism(t *testing.T) {
	mechanismtest.Run(t, func(t *testing.T) mechanismtest.Subject {
		m, list := node(t)
		return mechanismtest.Subject{
			Mechanism: New(m), Target: limits.Target{Port: list[0]}, Other: limits.Target{Port: list[1]},
			Gone: limits.Target{Port: ports.Port{ID: "gone", Tenant: "red", Index: 1 << 20}},
		}
	})
}

func TestAPortThatNobodyAttachedIsNotLimited(t *testing.T) {
	m, list := node(t)
	if err := m.Detach(list[0].Index); err != nil {
		t.Fatal(err)
	}
	if err := New(m).Apply(limits.Target{Port: list[0]}, mechanismtest.Limit(1000), time.Minute); !errors.Is(err, limits.ErrNotAttached) {
		t.Errorf("applied: %v", err)
	}
	if _, err := New(m).Read(&list[0]); !errors.Is(err, limits.ErrNotAttached) {
		t.Errorf("read: %v", err)
	}
}

func TestDroppingReadsBack(t *testing.T) {
	m, list := node(t)
	l := mechanismtest.Limit(0)
	l.BurstBytes = 0
	if err := New(m).Apply(limits.Target{Port: list[0]}, l, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, err := New(m).Read(&list[0]); err != nil || got.Limit != l || got.Shaped {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestALimitThatAnotherMechanismShapesIsLeftAlone(t *testing.T) {
	m, list := node(t)
	const class = vport.ClassMajor<<16 | vport.FirstShape
	if err := Write(m, list[0].Index, mechanismtest.Limit(1000), class, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, err := New(m).Read(&list[0]); err != nil || !got.Stale || !got.Shaped {
		t.Errorf("the limit of a process that is gone: %+v, %v", got, err)
	}
	if err := New(m).Remove(&list[0]); err != nil {
		t.Fatal(err)
	}
	if _, got, err := Lookup(m, list[0].Index); err != nil || got != class {
		t.Errorf("class %x, %v", got, err)
	}
}

func TestAnotherProcessFindsTheLimit(t *testing.T) {
	m, list := node(t)
	l := mechanismtest.Limit(1000)
	if err := New(m).Apply(limits.Target{Port: list[0]}, l, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, err := New(m).Read(&list[0]); err != nil || got.Limit != l || got.Stale {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestWhatTheProgramCannotReckonWithIsAnError(t *testing.T) {
	m, list := node(t)
	for name, change := range map[string]func(*limits.Limit){
		"a rate beyond the highest":  func(l *limits.Limit) { l.BytesPerSecond = vport.MaxRate + 1 },
		"a burst beyond the highest": func(l *limits.Limit) { l.BurstBytes = vport.MaxRate + 1 },
		"packets beyond the highest": func(l *limits.Limit) { l.PacketsPerSecond = vport.MaxRate + 1 },
		"flows beyond the highest":   func(l *limits.Limit) { l.NewFlowsPerSecond = vport.MaxRate + 1 },
		"a rate without a burst":     func(l *limits.Limit) { l.BurstBytes = 0 },
	} {
		l := mechanismtest.Limit(1000)
		change(&l)
		if err := New(m).Apply(limits.Target{Port: list[0]}, l, time.Minute); err == nil || errors.Is(err, limits.ErrUnsuited) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := New(m).Read(&list[0]); !errors.Is(err, limits.ErrNone) {
			t.Errorf("%s: something is in force, %v", name, err)
		}
	}
}
