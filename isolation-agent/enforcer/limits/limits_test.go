package limits_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"vigia/internal/bpf/vport"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/limits/shape"
	"vigia/isolation-agent/enforcer/refusal"
)

func TestApplyNeverAssumes(t *testing.T) {
	for name, sabotage := range map[string]func(*faulty){
		"set fails":               func(k *faulty) { k.setErr = errKernel },
		"another rate reads back": func(k *faulty) { k.lie = true },
		"state cannot be read":    func(k *faulty) { k.readErr = errKernel },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			sabotage(r.kernel)
			_, err := r.Apply("p", ask(1000))
			if err == nil {
				t.Fatal("the limit counts as applied")
			}
			if code := refusal.CodeOf(err); code != 0 {
				t.Errorf("a kernel failure is reported as the refusal %q", code)
			}
			if r.counts[limits.Set] != 0 {
				t.Error("counted as set")
			}
		})
	}
}

// TestEveryRefusalOfALimit refuses each kind of request, by code and field, without
// touching the kernel.
func TestEveryRefusalOfALimit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*limits.Request)
		code   refusal.Code
		field  string
	}{
		{"below the floor", func(r *limits.Request) { r.BytesPerSecond = 999 }, refusal.BelowFloor, "rate_bytes_per_second"},
		{"foreign tenant", func(r *limits.Request) { r.Tenant = "blue" }, refusal.TenantMismatch, "tenant"},
		{"no tenant", func(r *limits.Request) { r.Tenant = "" }, refusal.TenantMismatch, "tenant"},
		{"tcp", func(r *limits.Request) { r.Protocol = "tcp" }, refusal.BadField, "protocol"},
		{"no protocol", func(r *limits.Request) { r.Protocol = "" }, refusal.BadField, "protocol"},
		{"dropping without approval", func(r *limits.Request) { r.BytesPerSecond = 0 }, refusal.BadField, "rate_bytes_per_second"},
		{"absurd rate", func(r *limits.Request) { r.BytesPerSecond = vport.MaxRate + 1 }, refusal.BadField, "rate_bytes_per_second"},
		{"absurd burst", func(r *limits.Request) { r.BurstBytes = vport.MaxRate + 1 }, refusal.BadField, "burst_bytes"},
		{"absurd packets", func(r *limits.Request) { r.PacketsPerSecond = vport.MaxRate + 1 }, refusal.BadField, "packets_per_second"},
		{"absurd flows", func(r *limits.Request) { r.NewFlowsPerSecond = 1 << 62 }, refusal.BadField, "new_flows_per_second"},
		{"endless name", func(r *limits.Request) { r.ApprovedBy = strings.Repeat("x", 257) }, refusal.BadField, "approved_by"},
		{"short", func(r *limits.Request) { r.TTL = time.Second - 1 }, refusal.BadField, "ttl_seconds"},
		{"long", func(r *limits.Request) { r.TTL = time.Minute + 1 }, refusal.BadField, "ttl_seconds"},
		{"no id", func(r *limits.Request) { r.ID = uuid.Nil }, refusal.BadField, "id"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			req := ask(1000)
			tc.change(&req)
			_, err := r.Apply("p", req)
			var refused *refusal.Error
			if !errors.As(err, &refused) || refused.Code != tc.code || refused.Field != tc.field {
				t.Errorf("got %#v, want %s of %s", err, tc.code, tc.field)
			}
			if r.kernel.sets != 0 || r.counts[limits.Refuse] != 1 {
				t.Errorf("%d writes, %d refusals counted", r.kernel.sets, r.counts[limits.Refuse])
			}
		})
	}
}

func TestRefusalsBecauseOfThePort(t *testing.T) {
	r := newRig(t)
	for name, tc := range map[string]struct {
		port string
		req  limits.Request
		code refusal.Code
	}{
		"an unknown port":           {"nope", ask(1000), refusal.UnknownPort},
		"a tenant without contract": {"q", func() limits.Request { q := ask(1000); q.Tenant = "blue"; return q }(), refusal.NoContract},
	} {
		if _, err := r.Apply(tc.port, tc.req); refusal.CodeOf(err) != tc.code {
			t.Errorf("%s: %v, want %s", name, err, tc.code)
		}
	}
	if _, err := r.Remove("nope", uuid.Nil, nil); refusal.CodeOf(err) != refusal.UnknownPort {
		t.Errorf("removal from an unknown port: %v", err)
	}
	r.kernel.detached = true
	if _, err := r.Apply("p", ask(1000)); refusal.CodeOf(err) != refusal.NotAttached {
		t.Errorf("a port that nothing is attached to: %v", err)
	}
	if had, err := r.Remove("p", uuid.Nil, nil); had || err != nil {
		t.Errorf("removal from a port that nothing is attached to: %v, %v", had, err)
	}
}

func TestTheLimitsOfTheBoundsAreAllowed(t *testing.T) {
	for name, change := range map[string]func(*limits.Request){
		"the floor":           func(r *limits.Request) { r.BytesPerSecond = 1000 },
		"the shortest time":   func(r *limits.Request) { r.TTL = time.Second },
		"the longest time":    func(r *limits.Request) { r.TTL = limits.MaxTTL },
		"the highest rate":    func(r *limits.Request) { r.BytesPerSecond, r.BurstBytes = vport.MaxRate, vport.MaxRate },
		"the most packets":    func(r *limits.Request) { r.PacketsPerSecond = vport.MaxRate },
		"the most flows":      func(r *limits.Request) { r.NewFlowsPerSecond = vport.MaxRate },
		"the longest name":    func(r *limits.Request) { r.ApprovedBy = strings.Repeat("x", 256) },
		"everything":          func(r *limits.Request) { r.Protocol = limits.Everything },
		"a burst of one byte": func(r *limits.Request) { r.BurstBytes = 1 },
	} {
		r := newRig(t)
		req := ask(1000)
		change(&req)
		if got, err := r.Apply("p", req); err != nil || got.ID != req.ID || r.counts[limits.Set] != 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestDefaultBurst(t *testing.T) {
	r := newRig(t)
	for rate, want := range map[uint64]uint64{1000: 64 << 10, 100_000_000: 5_000_000} {
		if got := r.apply(t, ask(rate)); got.BurstBytes != want {
			t.Errorf("rate %d: burst %d, want %d", rate, got.BurstBytes, want)
		}
		if _, err := r.Remove("p", uuid.Nil, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestALimitIsRenewedByItsOwnActionAlone(t *testing.T) {
	r := newRig(t)
	req := ask(1000)
	r.apply(t, req)
	req.BytesPerSecond, req.TTL = 2000, 50*time.Second
	if got := r.apply(t, req); got.BytesPerSecond != 2000 || got.ExpiresIn != 50*time.Second || r.counts[limits.Extend] != 1 {
		t.Errorf("renewed: %+v, counted %v", got, r.counts)
	}
	if _, err := r.Apply("p", ask(3000)); refusal.CodeOf(err) != refusal.OtherLimit || r.limit().Rate != 2000 {
		t.Errorf("another action: %v, in the kernel %+v", err, r.limit())
	}
	if _, err := r.Remove("p", uuid.New(), nil); refusal.CodeOf(err) != refusal.OtherLimit || r.limit() == nil {
		t.Errorf("another action's removal: %v", err)
	}
	if had, err := r.Remove("p", req.ID, nil); !had || err != nil || r.limit() != nil {
		t.Errorf("its own removal: %v, %v", had, err)
	}
	if had, err := r.Remove("p", req.ID, nil); had || err != nil || r.counts[limits.Remove] != 1 {
		t.Errorf("once more: %v, %v, counted %v", had, err, r.counts)
	}
}

func TestRemoveNeverAssumes(t *testing.T) {
	r := newRig(t)
	r.apply(t, ask(1000))
	r.kernel.stuck = true
	if had, err := r.Remove("p", uuid.Nil, nil); had || err == nil {
		t.Errorf("a limit that stayed counts as removed: %v, %v", had, err)
	}
	r.kernel.stuck, r.kernel.clearErr = false, errKernel
	if _, err := r.RemoveAll(nil); !errors.Is(err, errKernel) {
		t.Errorf("got %v", err)
	}
	r.kernel.clearErr, r.kernel.readErr = nil, errKernel
	if _, err := r.RemoveAll(nil); !errors.Is(err, errKernel) {
		t.Errorf("got %v", err)
	}
	r.kernel.readErr = nil
	if n, err := r.RemoveAll(nil); n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
}

func TestLimitsThatExpireAreCountedOnce(t *testing.T) {
	r := newRig(t)
	r.Observe()
	if r.counts[limits.Expire] != 0 {
		t.Error("an expiry without a limit")
	}
	r.apply(t, ask(1000))
	r.Observe()
	delete(r.kernel.limits, 1)
	r.Observe()
	r.Observe()
	if got := r.counts[limits.Expire]; got != 1 {
		t.Errorf("%d expiries counted", got)
	}
	r.apply(t, ask(1000))
	r.kernel.readErr = errKernel
	r.Observe()
	if got := r.counts[limits.Expire]; got != 1 {
		t.Error("an unreadable kernel counts as an expiry")
	}
	if !strings.Contains(r.log.String(), "cannot read the limit of a port") {
		t.Errorf("the log says nothing of it:\n%s", r.log)
	}
}

func TestALimitOfAnEarlierProcessIsAdoptedWhenItsPortIsThere(t *testing.T) {
	r := newRig(t)
	r.kernel.limits[1] = &vport.Limit{ID: uuid.New(), Rate: 1000, Expires: time.Second}
	r.kernel.detached = true // the port comes later than this process
	r.Observe()
	if strings.Contains(r.log.String(), "adopted") {
		t.Errorf("adopted before it could be read:\n%s", r.log)
	}
	r.kernel.detached = false
	for range 3 {
		r.Observe()
	}
	if got := strings.Count(r.log.String(), "limit adopted"); got != 1 {
		t.Errorf("adopted %d times:\n%s", got, r.log)
	}
	delete(r.kernel.limits, 1)
	r.Observe()
	if r.counts[limits.Expire] != 1 {
		t.Errorf("counted %v", r.counts)
	}
	// A new interface of the same port may have a limit, too.
	(*r.inventory)[0].Index = 7
	r.kernel.limits[7] = &vport.Limit{ID: uuid.New(), Rate: 1000, Expires: time.Second}
	r.Observe()
	if got := strings.Count(r.log.String(), "limit adopted"); got != 2 {
		t.Errorf("adopted %d times:\n%s", got, r.log)
	}
}

func TestWhatALimitOfAPortThatIsGoneHasTakenIsFreedAfterItsTime(t *testing.T) {
	r := newRig(t)
	r.apply(t, ask(2000))
	r.limit().Age = shape.After
	if r.Observe(); len(r.classes.rates) != 1 {
		t.Fatalf("classes %v", r.classes.rates)
	}
	*r.inventory = inventory{blue}
	delete(r.kernel.limits, 1)
	if r.Observe(); len(r.classes.rates) != 1 {
		t.Error("freed at once: the port may come back")
	}
	r.now = r.now.Add(time.Minute)
	if r.Observe(); len(r.classes.rates) != 0 || r.counts[limits.Expire] != 1 {
		t.Errorf("after its time: classes %v, counted %v", r.classes.rates, r.counts)
	}
}

func TestStateOfADetachedPort(t *testing.T) {
	r := newRig(t)
	r.kernel.detached = true
	list, err := r.State()
	if err != nil || len(list) != 2 || list[0].Attached || list[0].Limit != nil {
		t.Errorf("got %+v, %v", list, err)
	}
	r.kernel.detached, r.kernel.readErr = false, errKernel
	if _, err := r.State(); !errors.Is(err, errKernel) {
		t.Errorf("got %v", err)
	}
}

func TestStateShowsContractAndLimit(t *testing.T) {
	r := newRig(t)
	req := ask(2000)
	r.apply(t, req)
	list, err := r.State()
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	p, q := list[0], list[1]
	if !p.Attached || p.Limit == nil || p.Limit.ID != req.ID || p.Contract == nil || p.Contract.Send.GuaranteeBytesPerSecond != 1000 {
		t.Errorf("p: %+v", p)
	}
	if !q.Attached || q.Limit != nil || q.Contract != nil {
		t.Errorf("q: %+v", q)
	}
	if byIndex := r.PortsByIndex(); byIndex[1].ID != "p" || byIndex[2].ID != "q" || len(byIndex) != 2 {
		t.Errorf("by index: %v", byIndex)
	}
}

func TestShapingTakesOverAfterTwoSeconds(t *testing.T) {
	r := newRig(t)
	req := ask(2000)
	if got := r.apply(t, req); got.Shaped || len(r.classes.rates) != 0 {
		t.Fatalf("at first it polices: %+v", got)
	}
	if r.Observe(); r.limit().Class != 0 {
		t.Errorf("shaped too early: %+v", r.limit())
	}
	r.limit().Age = shape.After
	if r.Observe(); r.limit().Class == 0 || r.classes.only() != 2000 {
		t.Errorf("not handed over: %+v %v", r.limit(), r.classes.rates)
	}
	req.BytesPerSecond = 3000
	if got := r.apply(t, req); !got.Shaped || r.classes.only() != 3000 {
		t.Errorf("a renewal changes the class: %+v %v", got, r.classes.rates)
	}
	if removed, err := r.Remove("p", req.ID, nil); err != nil || !removed || len(r.classes.rates) != 0 {
		t.Errorf("its class stays: %v %v %v", removed, err, r.classes.rates)
	}
}

func TestAShapedLimitThatExpiresGivesItsClassBack(t *testing.T) {
	r := newRig(t)
	r.apply(t, ask(2000))
	r.limit().Age = shape.After
	r.Observe()
	delete(r.kernel.limits, 1)
	if r.Observe(); len(r.classes.rates) != 0 || r.counts[limits.Expire] != 1 {
		t.Errorf("classes %v, counted %v", r.classes.rates, r.counts)
	}
}

func TestALimitThatCannotBeShapedIsPoliced(t *testing.T) {
	for _, err := range []error{errNoClass, errors.New("broken")} {
		r := newRig(t)
		r.classes.err = err
		req := ask(2000)
		r.apply(t, req)
		r.limit().Age = shape.After
		if r.Observe(); r.limit() == nil || r.limit().Class != 0 {
			t.Errorf("%v: %+v", err, r.limit())
		}
		if logged := strings.Contains(r.log.String(), "broken"); logged != (err != errNoClass) {
			t.Errorf("%v: the log says\n%s", err, r.log)
		}
		if got := r.apply(t, req); got.Shaped || r.counts[limits.Extend] != 1 {
			t.Errorf("%v: renewed as %+v", err, got)
		}
	}
}

func TestADeadProcessesClassIsMadeAgain(t *testing.T) {
	r := newRig(t)
	dead := vport.Limit{ID: uuid.New(), Rate: 5000, Burst: 1, Class: 0x1150a001, Expires: time.Minute, Age: time.Minute}
	r.kernel.limits[1] = &dead
	if r.Observe(); r.classes.only() != 5000 || r.limit().Class != r.classes.next {
		t.Errorf("class %x, classes %v", r.limit().Class, r.classes.rates)
	}
	// Where nothing can shape any more it is policed, and not sent to a class that is gone.
	r.restart(t)
	r.classes.err = errNoClass
	again := dead
	r.kernel.limits[1] = &again
	if r.Observe(); r.limit().Class != 0 || r.limit().Rate != 5000 || r.limit().Expires != time.Minute {
		t.Errorf("left as %+v", r.limit())
	}
}

func TestALimitFollowsItsPortsContract(t *testing.T) {
	r := newRig(t)
	r.apply(t, ask(2000))
	r.limit().Age = shape.After
	r.Observe()
	own := contract.Contract{Owner: contract.Owner{Tenant: "red", Port: "p"}, Send: guarantee(1500)}
	r.SetContracts(bought(t, contract.Contract{Owner: owner, Send: guarantee(1000)}, own))
	if r.Observe(); r.classes.owner != own.Owner {
		t.Errorf("shaped below the class of %s", r.classes.owner)
	}
	r.SetContracts(nil)
	if r.Observe(); r.limit() == nil || r.limit().Class != 0 || len(r.classes.rates) != 0 {
		t.Errorf("without a contract: %+v, classes %v", r.limit(), r.classes.rates)
	}
}

func TestPortsAreHeldToTheirContract(t *testing.T) {
	r := newRig(t)
	both := contract.Contract{Owner: owner, Send: guarantee(1000), SendPacketsPerSecond: 500, NewFlowsPerSecond: 20, ReceivePacketsPerSecond: 90, NewMACPairsPerSecond: 40}
	r.SetContracts(bought(t, both))
	r.Observe()
	if got, want := r.kernel.bounds[1], (vport.Bounds{Packets: 500, NewFlows: 20, Receive: 90, MACPairs: 40, Guarantee: 1000}); got != want {
		t.Errorf("p is held to %+v, want %+v", got, want)
	}
	if got := r.kernel.bounds[2]; got != (vport.Bounds{}) {
		t.Errorf("q has no contract and is held to %+v", got)
	}
	for field, change := range map[string]func(*limits.Request){
		"packets_per_second":   func(r *limits.Request) { r.PacketsPerSecond = 499 },
		"new_flows_per_second": func(r *limits.Request) { r.NewFlowsPerSecond = 19 },
	} {
		req := ask(2000)
		change(&req)
		var refused *refusal.Error
		if _, err := r.Apply("p", req); !errors.As(err, &refused) || refused.Code != refusal.BelowFloor || refused.Field != field {
			t.Errorf("below the contract's %s: %v", field, err)
		}
	}
	req := ask(2000)
	req.PacketsPerSecond, req.NewFlowsPerSecond = 500, 20
	if got := r.apply(t, req); got.PacketsPerSecond != 500 || got.NewFlowsPerSecond != 20 {
		t.Errorf("%+v", got)
	}
}

func TestAPortsOwnContractGoesBeforeItsTenants(t *testing.T) {
	r := newRig(t)
	own := contract.Contract{
		Owner: contract.Owner{Tenant: "red", Port: "p"}, Send: guarantee(3000), SendPacketsPerSecond: 700, NewFlowsPerSecond: 30, ReceivePacketsPerSecond: 90,
	}
	foreign := contract.Contract{Owner: contract.Owner{Tenant: "blue", Port: "p"}, Send: guarantee(1)} // says nothing of a port of red's
	r.SetContracts(bought(t, contract.Contract{Owner: owner, Send: guarantee(1000), SendPacketsPerSecond: 500}, own, foreign))
	r.Observe()
	if got, want := r.kernel.bounds[1], (vport.Bounds{Packets: 700, NewFlows: 30, Receive: 90, Guarantee: 3000}); got != want {
		t.Errorf("p is held to %+v, want %+v", got, want)
	}
	if _, err := r.Apply("p", ask(2999)); refusal.CodeOf(err) != refusal.BelowFloor {
		t.Errorf("below what the port has: %v", err)
	}
	r.apply(t, ask(3000))
	r.limit().Age = shape.After
	if r.Observe(); r.classes.owner != own.Owner {
		t.Errorf("shaped below the class of %q", r.classes.owner)
	}
	if list, err := r.State(); err != nil || list[0].Contract == nil || list[0].Contract.Owner != own.Owner {
		t.Errorf("shown %+v %v", list, err)
	}
	r.SetContracts(bought(t, foreign))
	if _, err := r.Apply("p", ask(5000)); refusal.CodeOf(err) != refusal.NoContract {
		t.Errorf("another tenant's contract: %v", err)
	}
}

func TestWithAPersonsApprovalALimitGoesBelowTheFloor(t *testing.T) {
	r := newRig(t)
	r.SetContracts(bought(t, contract.Contract{Owner: owner, Send: guarantee(1000), SendPacketsPerSecond: 500, NewFlowsPerSecond: 20}))
	req := ask(0)
	req.ApprovedBy, req.BurstBytes = "maria", 5000
	if got := r.apply(t, req); got.BytesPerSecond != 0 || got.BurstBytes != 0 {
		t.Fatalf("dropping: %+v", got)
	}
	r.limit().Age = shape.After
	if r.Observe(); r.limit().Class != 0 || len(r.classes.rates) != 0 {
		t.Errorf("what is dropped is handed to a shaper: %+v", r.limit())
	}
	req.BytesPerSecond, req.PacketsPerSecond, req.NewFlowsPerSecond = 999, 499, 19
	if got := r.apply(t, req); got.BytesPerSecond != 999 || got.PacketsPerSecond != 499 || got.NewFlowsPerSecond != 19 {
		t.Errorf("below every guarantee: %+v", got)
	}
	req.ApprovedBy, req.BytesPerSecond, req.PacketsPerSecond = "", 1000, 500
	var refused *refusal.Error
	if _, err := r.Apply("p", req); !errors.As(err, &refused) || refused.Code != refusal.BelowFloor || refused.Field != "new_flows_per_second" {
		t.Errorf("without approval: %v", err)
	}
}

func TestALimitOnEverythingStaysOneWhenItIsShaped(t *testing.T) {
	r := newRig(t)
	req := ask(2000)
	req.Protocol, req.NewFlowsPerSecond = limits.Everything, 30
	if got := r.apply(t, req); got.Protocol != limits.Everything {
		t.Fatalf("%+v", got)
	}
	r.limit().Age = shape.After
	if r.Observe(); r.limit().Class == 0 || !r.limit().Everything || r.limit().NewFlows != 30 {
		t.Errorf("handed over as %+v", r.limit())
	}
}

func TestALeaderOfThePastChangesNothing(t *testing.T) {
	r := newRig(t)
	term := func(n uint64) *uint64 { return &n }
	req := ask(2000)
	req.Term = term(5)
	if r.apply(t, req); r.Term() != 5 {
		t.Fatalf("term %d", r.Term())
	}
	sets := r.kernel.sets
	old := req
	old.Term, old.BytesPerSecond = term(4), 3000
	_, apply := r.Apply("p", old)
	_, remove := r.Remove("p", req.ID, term(4))
	_, all := r.RemoveAll(term(4))
	for name, err := range map[string]error{"apply": apply, "remove": remove, "remove all": all} {
		var refused *refusal.Error
		if !errors.As(err, &refused) || refused.Code != refusal.StaleTerm || refused.Field != "term" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r.kernel.sets != sets || r.limit() == nil || r.limit().Rate != 2000 {
		t.Errorf("the kernel has %+v after %d writes", r.limit(), r.kernel.sets-sets)
	}
	if _, err := r.Remove("p", req.ID, nil); err != nil {
		t.Errorf("who has no term is no leader of the past: %v", err)
	}
	r.terms.err = errKernel
	req.Term = term(6)
	if _, err := r.Apply("p", req); !errors.Is(err, errKernel) || r.limit() != nil {
		t.Errorf("a term that cannot be kept: %v, %+v", err, r.limit())
	}
}

func TestWhatIsSupportedAndWhatChangesAreNamed(t *testing.T) {
	for _, want := range []string{"all", "below_floor", "packets", "term"} {
		if !strings.Contains(strings.Join(limits.Supports(), " "), want) {
			t.Errorf("%q is not among %q", want, limits.Supports())
		}
	}
	seen := map[limits.Change]bool{}
	for _, c := range limits.Changes() {
		if c == "" || seen[c] {
			t.Errorf("change %q is empty or twice among %q", c, limits.Changes())
		}
		seen[c] = true
	}
}
