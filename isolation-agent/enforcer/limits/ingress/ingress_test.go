package ingress

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigia/internal/ports"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/limits/mechanismtest"
)

// node is a database with three vhost-user ports, as Nova writes them.
func node(t *testing.T) (*testutil.OVSDBServer, []ports.Port) {
	t.Helper()
	s := testutil.NewOVSDBServer(t)
	s.VSCtl("add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev")
	var out []ports.Port
	for i, kind := range []string{"dpdkvhostuserclient", "dpdkvhostuser", "dpdkvhostuserclient"} {
		device := fmt.Sprintf("vhu%d", i)
		s.VSCtl("add-port", "br-int", device, "--", "set", "Interface", device, "type="+kind, "external_ids:iface-id="+device, "external_ids:attached-mac=fa:16:3e:0:0:1")
		out = append(out, ports.Port{ID: device, Tenant: "red", Device: device, DataPlane: ports.OVSUserspace})
	}
	return s, out
}

func mechanism(s *testutil.OVSDBServer) *Mechanism { return New("unix:" + s.Socket) }

// said returns what ovs-vsctl reads: rate and burst.
func said(s *testutil.OVSDBServer, device string) string {
	return strings.Join(strings.Fields(s.VSCtl("get", "Interface", device, "ingress_policing_rate", "ingress_policing_burst")), " ")
}

func put(t *testing.T, m *Mechanism, port *ports.Port, l limits.Limit) {
	t.Helper()
	if err := m.Apply(limits.Target{Port: *port}, l, time.Minute); err != nil {
		t.Fatal(err)
	}
}

func TestMechanism(t *testing.T) {
	mechanismtest.Run(t, func(t *testing.T) mechanismtest.Subject {
		s, list := node(t)
		return mechanismtest.Subject{
			Mechanism: mechanism(s), Target: limits.Target{Port: list[0]}, Other: limits.Target{Port: list[1]},
			Gone:     limits.Target{Port: ports.Port{ID: "gone", Tenant: "red", Device: "gone"}},
			Unsuited: func(l limits.Limit) bool { return l.PacketsPerSecond > 0 || l.NewFlowsPerSecond > 0 },
		}
	})
}

func TestTheSwitchIsToldNoLessThanTheLimit(t *testing.T) {
	s, list := node(t)
	m := mechanism(s)
	l := mechanismtest.Limit(1_000_001)
	l.BurstBytes = 65_537
	put(t, m, &list[0], l)
	if got := said(s, "vhu0"); got != "8001 525" {
		t.Errorf("kbit/s and kbit are %s", got)
	}
	state, err := m.Read(&list[0])
	if err != nil || state.Limit != l || !state.WholePort || state.ExpiresIn <= 0 || state.ExpiresIn > time.Minute {
		t.Errorf("%+v %v", state, err)
	}
	if got := s.VSCtl("get", "Interface", "vhu0", "external_ids:iface-id", "external_ids:attached-mac"); !strings.Contains(got, "vhu0") || !strings.Contains(got, "fa:16:3e:0:0:1") {
		t.Errorf("what Nova wrote is %q", got)
	}
	if err := m.Remove(&list[0]); err != nil {
		t.Fatal(err)
	}
	if got := said(s, "vhu0"); got != "0 0" {
		t.Errorf("after the limit they are %s", got)
	}
	if got := s.VSCtl("get", "Interface", "vhu0", "external_ids"); strings.Contains(got, key) || !strings.Contains(got, "iface-id") {
		t.Errorf("after the limit there is %s", got)
	}
}

func TestPortsWithADeviceAndLimitsOfOtherThingsAreForOthers(t *testing.T) {
	s, list := node(t)
	m := mechanism(s)
	device := list[0]
	device.Index = 7
	if err := m.Apply(limits.Target{Port: device}, mechanismtest.Limit(1000), time.Minute); !errors.Is(err, limits.ErrUnsuited) {
		t.Errorf("a port with a device: %v", err)
	}
	if _, err := m.Read(&device); !errors.Is(err, limits.ErrNone) {
		t.Errorf("a port with a device: %v", err)
	}
	for name, change := range map[string]func(*limits.Limit){
		"drop all":           func(l *limits.Limit) { l.BytesPerSecond = 0 },
		"beyond the columns": func(l *limits.Limit) { l.BytesPerSecond = mostBytes + 1 },
		"a burst beyond":     func(l *limits.Limit) { l.BurstBytes = mostBytes + 1 },
		"packets":            func(l *limits.Limit) { l.PacketsPerSecond = 1 },
	} {
		l := mechanismtest.Limit(1000)
		change(&l)
		if err := m.Apply(limits.Target{Port: list[0]}, l, time.Minute); !errors.Is(err, limits.ErrUnsuited) || said(s, "vhu0") != "0 0" {
			t.Errorf("%s: %v, and the switch has %s", name, err, said(s, "vhu0"))
		}
	}
	most := mechanismtest.Limit(mostBytes)
	put(t, m, &list[0], most)
	if state, err := m.Read(&list[0]); err != nil || state.Limit != most {
		t.Errorf("the most that the columns hold reads back as %+v, %v", state, err)
	}
}

// TestWhatAnotherHasSetIsNeverLoosenedAndComesBack is about Neutron, whose agent polices by the same columns.
func TestWhatAnotherHasSetIsNeverLoosenedAndComesBack(t *testing.T) {
	s, list := node(t)
	m := mechanism(s)
	for name, c := range map[string]struct{ before, during string }{
		"stricter than the limit": {"4000 320", "4000 320"},
		"looser than the limit":   {"90000 800", "8000 525"},
	} {
		var rate, burst int
		if _, err := fmt.Sscan(c.before, &rate, &burst); err != nil {
			t.Fatal(err)
		}
		s.VSCtl("set", "Interface", "vhu0", fmt.Sprintf("ingress_policing_rate=%d", rate), fmt.Sprintf("ingress_policing_burst=%d", burst))
		l := mechanismtest.Limit(1_000_000)
		for range 2 { // put, and renewed
			put(t, m, &list[0], l)
			if got := said(s, "vhu0"); got != c.during {
				t.Errorf("%s: the switch has %s", name, got)
			}
		}
		if state, err := m.Read(&list[0]); err != nil || state.Limit != l {
			t.Errorf("%s: %+v %v", name, state, err)
		}
		if err := m.Remove(&list[0]); err != nil {
			t.Fatal(err)
		}
		if got := said(s, "vhu0"); got != c.before {
			t.Errorf("%s: after the limit the switch has %s", name, got)
		}
	}
}

func TestWhatAnotherSetsMeanwhileStays(t *testing.T) {
	s, list := node(t)
	m := mechanism(s)
	put(t, m, &list[0], mechanismtest.Limit(1_000_000))
	s.VSCtl("set", "Interface", "vhu0", "ingress_policing_rate=77", "ingress_policing_burst=7")
	testutil.WaitFor(t, "the limit to be seen as ended", func() bool {
		_, err := m.Read(&list[0])
		return errors.Is(err, limits.ErrNone)
	})
	if err := m.Remove(&list[0]); err != nil {
		t.Fatal(err)
	}
	if got, ids := said(s, "vhu0"), s.VSCtl("get", "Interface", "vhu0", "external_ids"); got != "77 7" || strings.Contains(ids, key) {
		t.Errorf("the switch has %s and %s", got, ids)
	}
	// The next limit finds what the other has set now.
	put(t, m, &list[0], mechanismtest.Limit(1_000_000))
	if got := said(s, "vhu0"); got != "77 7" {
		t.Errorf("the switch has %s", got)
	}
}

func TestAnotherProcessFindsTheLimitAndItsEnd(t *testing.T) {
	s, list := node(t)
	l := mechanismtest.Limit(1_000_000)
	put(t, mechanism(s), &list[0], l)
	next := mechanism(s)
	state, err := next.Read(&list[0])
	if err != nil || state.Limit != l || state.ExpiresIn <= 0 || state.ExpiresIn > time.Minute {
		t.Fatalf("%+v %v", state, err)
	}
	for name, c := range map[string]struct {
		clock     time.Duration
		expiresIn time.Duration
	}{
		"later":                      {2 * time.Minute, 0},
		"after a clock was set back": {-time.Hour, limits.MaxTTL},
	} {
		now := time.Now().Add(c.clock)
		next = mechanism(s)
		next.now = func() time.Time { return now }
		if state, err = next.Read(&list[0]); err != nil || state.ExpiresIn != c.expiresIn || state.Age < 0 {
			t.Errorf("%s: %+v %v", name, state, err)
		}
	}
}

func TestWhatIsNoRecordIsNone(t *testing.T) {
	s, list := node(t)
	m := mechanism(s)
	for i, text := range []string{"x", "{}", `{\"id\":\"0\"}`, "[" + strings.Repeat("1,", maxRecord) + "1]", `{\"id\":\"00000000-0000-4000-8000-000000000001\",\"protocol\":\"tcp\"}`} {
		s.VSCtl("set", "Interface", "vhu0", fmt.Sprintf("external_ids:%s=\"%s\"", key, text))
		m.read = time.Time{}
		if state, err := m.Read(&list[0]); !errors.Is(err, limits.ErrNone) {
			t.Errorf("%d: %+v %v", i, state, err)
		}
	}
	put(t, m, &list[0], mechanismtest.Limit(1_000_000))
	if _, err := m.Read(&list[0]); err != nil {
		t.Errorf("a limit over it: %v", err)
	}
}

func TestADatabaseThatIsAwayHoldsNothing(t *testing.T) {
	s, list := node(t)
	m := mechanism(s)
	l := mechanismtest.Limit(1_000_000)
	put(t, m, &list[0], l)
	s.Stop()
	if _, err := m.Read(&list[0]); !errors.Is(err, limits.ErrNotAttached) {
		t.Errorf("read: %v", err)
	}
	m.err = nil // as after the pause
	for what, err := range map[string]error{"applied": m.Apply(limits.Target{Port: list[0]}, l, time.Minute), "removed": m.Remove(&list[0])} {
		if err == nil || !strings.Contains(err.Error(), "vhu0") {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.Start()
	m.err, m.read = nil, time.Time{}
	testutil.WaitFor(t, "the limit, which the database kept", func() bool {
		state, err := m.Read(&list[0])
		return err == nil && state.Limit == l
	})
}

// TestADatabaseThatHangsHoldsNobodyUp stops the server without ending it: it takes connections, and answers nothing.
func TestADatabaseThatHangsHoldsNobodyUp(t *testing.T) {
	s, list := node(t)
	m := mechanism(s)
	var passed time.Duration // by the mechanism's clock, which stands still otherwise
	began := time.Now()
	m.now = func() time.Time { return began.Add(passed) }
	l := mechanismtest.Limit(1_000_000)
	put(t, m, &list[0], l)
	s.Signal(syscall.SIGSTOP)
	defer s.Signal(syscall.SIGCONT)
	passed = fresh
	asked := func() (waited int) {
		for range 100 {
			before := time.Now()
			if _, err := m.Read(&list[0]); !errors.Is(err, limits.ErrNotAttached) {
				t.Fatalf("read: %v", err)
			}
			if err := m.Remove(&list[0]); err == nil {
				t.Fatal("removed")
			}
			if time.Since(before) >= patience {
				waited++
			}
		}
		return waited
	}
	if n := asked(); n != 1 {
		t.Errorf("%d of 100 have waited for it", n)
	}
	passed += pause
	if n := asked(); n != 1 {
		t.Errorf("after the pause %d of 100 have waited for it", n)
	}
	s.Signal(syscall.SIGCONT)
	passed += pause
	if state, err := m.Read(&list[0]); err != nil || state.Limit != l {
		t.Errorf("%+v %v", state, err)
	}
}

func TestAPortThatSomebodyChangedMeanwhileIsNotWritten(t *testing.T) {
	s, _ := node(t)
	d := database{"unix:" + s.Socket}
	p, err := d.one(context.Background(), "vhu0")
	if err != nil {
		t.Fatal(err)
	}
	after := *p
	after.settings.Rate = 5
	for i, change := range []string{"ingress_policing_rate=1", "ingress_policing_burst=1", "external_ids:more=1"} {
		s.VSCtl("set", "Interface", "vhu0", change)
		if done, err := d.write(context.Background(), "vhu0", p, &after); err != nil || done {
			t.Errorf("%d: written %v, %v", i, done, err)
		}
		if p, err = d.one(context.Background(), "vhu0"); err != nil || p.settings.Rate == 5 {
			t.Fatalf("%+v %v", p, err)
		}
	}
	if done, err := d.write(context.Background(), "vhu0", p, &after); err != nil || !done {
		t.Errorf("written %v, %v", done, err)
	}
}
