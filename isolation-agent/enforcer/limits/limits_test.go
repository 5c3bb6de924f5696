package limits

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/common/promslog"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/contracts"
	"vigia/isolation-agent/enforcer/fence"
)

// faulty is a kernel that fails or lies on demand; what a good kernel does is
// tested with the real one in package app.
type faulty struct {
	limit                     *vport.Limit
	setErr, readErr, clearErr error
	lie                       bool // reads back another rate than was set
	stuck                     bool // removal has no effect
	sets                      int
	packets, newFlows         uint64 // of the contract
	receive                   uint64
	age                       time.Duration
}

// shaper remembers what it was asked for.
type shaper struct {
	rates    map[uint16]uint64
	contract string // of the last class
	err      error
}

func (s *shaper) Shape(contract string, id uint16, rate uint64) (uint32, error) {
	s.contract = contract
	if s.err != nil {
		return 0, s.err
	}
	s.rates[id] = rate
	return 0x11508000 + uint32(id), nil
}

func (s *shaper) Unshape(id uint16) error {
	delete(s.rates, id)
	return nil
}

// terms is a fence that may be unable to remember.
type terms struct {
	highest uint64
	err     error
}

func (f *terms) Term() uint64 { return f.highest }

func (f *terms) Admit(term uint64) error {
	if term < f.highest {
		return fence.ErrStale
	}
	if f.err == nil {
		f.highest = term
	}
	return f.err
}

func (k *faulty) SetLimit(_ int, r vport.LimitRequest) error {
	k.sets++
	if k.setErr != nil {
		return k.setErr
	}
	if k.lie {
		r.Rate /= 2
	}
	k.limit = &vport.Limit{
		ID: r.ID, Everything: r.Everything, Rate: r.Rate, Burst: r.Burst, Packets: r.Packets, NewFlows: r.NewFlows, Class: r.Class,
		Expires: r.TTL, Age: k.age,
	}
	return nil
}

func (k *faulty) RemoveLimit(int) error {
	if k.clearErr == nil && !k.stuck {
		k.limit = nil
	}
	return k.clearErr
}

func (k *faulty) Limit(int) (vport.Limit, error) {
	if k.readErr != nil {
		return vport.Limit{}, k.readErr
	}
	if k.limit == nil {
		return vport.Limit{}, vport.ErrNoLimit
	}
	return *k.limit, nil
}

func (k *faulty) Observe(want map[int]vport.Bounds) (map[int]bool, error) {
	for _, b := range want {
		k.packets, k.newFlows, k.receive = b.Packets, b.NewFlows, b.Receive
	}
	return map[int]bool{1: k.limit != nil}, k.readErr
}

func (k *faulty) Signals(int) (vport.Signals, error) { return vport.Signals{}, k.readErr }
func (k *faulty) Read(int) (vport.Counters, error)   { return vport.Counters{}, k.readErr }

type inventory []ports.Port

func (i inventory) Ports() ([]ports.Port, []ports.SourceState) { return i, nil }

func (i inventory) Lookup(id string) (ports.Port, bool) {
	for _, p := range i {
		if p.ID == id {
			return p, true
		}
	}
	return ports.Port{}, false
}

type rig struct {
	*Limits
	kernel *faulty
	counts map[Change]int
}

func newRig() *rig {
	r := &rig{kernel: &faulty{}, counts: map[Change]int{}}
	inv := inventory{{ID: "p", Tenant: "red", Index: 1}, {ID: "q", Tenant: "blue", Index: 1}}
	r.Limits = New(r.kernel, inv, &terms{}, Contracts{{Tenant: "red"}: {Guarantee: 1000, Ceiling: 9000}}, promslog.NewNopLogger(),
		func(c Change) { r.counts[c]++ })
	return r
}

func request() Request {
	return Request{ID: uuid.MustParse("11111111-1111-4111-8111-111111111111"), Tenant: "red", Protocol: "udp", Rate: 1000, TTL: time.Minute}
}

var errKernel = errors.New("kernel says no")

func TestApplyNeverAssumes(t *testing.T) {
	for _, tc := range []struct {
		name     string
		sabotage func(*faulty)
	}{
		{"set fails", func(k *faulty) { k.setErr = errKernel }},
		{"another rate reads back", func(k *faulty) { k.lie = true }},
		{"state cannot be read", func(k *faulty) { k.readErr = errKernel }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig()
			tc.sabotage(r.kernel)
			_, err := r.Apply("p", request())
			if err == nil {
				t.Fatal("the limit counts as applied")
			}
			var refusal *Refusal
			if errors.As(err, &refusal) {
				t.Errorf("a kernel failure is reported as the refusal %q", refusal.Code)
			}
			if r.counts[Set] != 0 {
				t.Error("counted as set")
			}
		})
	}
}

func TestApplyRefusesWithoutTouchingTheKernel(t *testing.T) {
	for name, change := range map[string]func(*Request){
		"below the floor": func(r *Request) { r.Rate = 999 },
		"foreign tenant":  func(r *Request) { r.Tenant = "blue" },
		"tcp":             func(r *Request) { r.Protocol = "tcp" },
		"drop":            func(r *Request) { r.Rate = 0 },
		"endless name":    func(r *Request) { r.ApprovedBy = strings.Repeat("x", 1000) },
		"absurd flows":    func(r *Request) { r.NewFlows = 1 << 62 },
		"short":           func(r *Request) { r.TTL = time.Millisecond },
		"long":            func(r *Request) { r.TTL = 2 * time.Hour },
		"no id":           func(r *Request) { r.ID = uuid.Nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			req := request()
			change(&req)
			var refusal *Refusal
			if _, err := r.Apply("p", req); !errors.As(err, &refusal) {
				t.Errorf("got %v, want a refusal", err)
			}
			if r.kernel.sets != 0 || r.counts[Refuse] != 1 {
				t.Errorf("%d writes, %d refusals counted", r.kernel.sets, r.counts[Refuse])
			}
		})
	}
}

func TestDefaultBurst(t *testing.T) {
	r := newRig()
	for rate, want := range map[uint64]uint64{1000: 64 << 10, 100_000_000: 5_000_000} {
		req := request()
		req.Rate = rate
		if got, err := r.Apply("p", req); err != nil || got.Burst != want {
			t.Errorf("rate %d: burst %d, %v; want %d", rate, got.Burst, err, want)
		}
	}
}

func TestRemoveNeverAssumes(t *testing.T) {
	r := newRig()
	if _, err := r.Apply("p", request()); err != nil {
		t.Fatal(err)
	}
	r.kernel.stuck = true
	if had, err := r.Remove("p", uuid.Nil, nil); had || err == nil {
		t.Errorf("a limit that stayed counts as removed: %v, %v", had, err)
	}
	r.kernel.stuck, r.kernel.clearErr = false, errKernel
	if _, err := r.RemoveAll(nil); !errors.Is(err, errKernel) {
		t.Errorf("got %v", err)
	}
	r.kernel.clearErr = nil
	if n, err := r.RemoveAll(nil); n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
}

func TestObserve(t *testing.T) {
	r := newRig()
	r.Observe()
	if r.counts[Expire] != 0 {
		t.Error("an expiry without a limit")
	}
	r.kernel.limit = &vport.Limit{ID: request().ID, Rate: 1000, Expires: time.Second} // set by an earlier process
	r.Observe()
	r.kernel.limit = nil
	r.Observe()
	r.Observe()
	if got := r.counts[Expire]; got != 2 { // ports p and q share the fake's one limit
		t.Errorf("%d expiries counted, want one a port", got)
	}
	r.kernel.limit = &vport.Limit{ID: request().ID, Rate: 1000, Expires: time.Second}
	r.Observe()
	r.kernel.readErr = errKernel
	r.Observe()
	if got := r.counts[Expire]; got != 2 {
		t.Error("an unreadable kernel counts as an expiry")
	}
}

func TestStateOfADetachedPort(t *testing.T) {
	r := newRig()
	r.kernel.readErr = vport.ErrNotAttached
	list, err := r.State()
	if err != nil || len(list) != 2 || list[0].Attached || list[0].Limit != nil {
		t.Errorf("got %+v, %v", list, err)
	}
	r.kernel.readErr = errKernel
	if _, err := r.State(); !errors.Is(err, errKernel) {
		t.Errorf("got %v", err)
	}
}

func ask(rate uint64) Request {
	return Request{ID: uuid.New(), Tenant: "red", Protocol: "udp", Rate: rate, TTL: time.Minute}
}

func TestShapingTakesOverAfterTwoSeconds(t *testing.T) {
	r := newRig()
	r.inventory = inventory{{ID: "p", Tenant: "red", Index: 1}}
	s := &shaper{rates: map[uint16]uint64{}}
	r.SetShaper(s)
	req := ask(2000)
	if got, err := r.Apply("p", req); err != nil || got.Class != 0 || len(s.rates) != 0 {
		t.Fatalf("at first it polices: %+v %v", got, err)
	}
	if r.Observe(); r.kernel.limit.Class != 0 {
		t.Errorf("shaped too early: %+v", r.kernel.limit)
	}
	r.kernel.age, r.kernel.limit.Age = ShapeAfter, ShapeAfter
	if r.Observe(); r.kernel.limit.Class == 0 || s.rates[firstShape] != 2000 {
		t.Errorf("not handed over: %+v %v", r.kernel.limit, s.rates)
	}
	req.Rate = 3000
	if got, err := r.Apply("p", req); err != nil || got.Class == 0 || s.rates[firstShape] != 3000 {
		t.Errorf("a renewal changes the class: %+v %v %v", got, err, s.rates)
	}
	if removed, err := r.Remove("p", req.ID, nil); err != nil || !removed || len(s.rates) != 0 {
		t.Errorf("its class stays: %v %v %v", removed, err, s.rates)
	}
}

func TestALimitThatCannotBeShapedIsPoliced(t *testing.T) {
	for _, err := range []error{contracts.ErrNoShape, errors.New("broken")} {
		r := newRig()
		r.SetShaper(&shaper{err: err})
		if _, err := r.Apply("p", ask(2000)); err != nil {
			t.Fatal(err)
		}
		r.kernel.limit.Age = ShapeAfter
		if r.Observe(); r.kernel.limit == nil || r.kernel.limit.Class != 0 {
			t.Errorf("%v: %+v", err, r.kernel.limit)
		}
	}
}

func TestADeadProcessesClassIsMadeAgain(t *testing.T) {
	r := newRig()
	r.inventory = inventory{{ID: "p", Tenant: "red", Index: 1}}
	s := &shaper{rates: map[uint16]uint64{}}
	r.SetShaper(s)
	r.kernel.limit = &vport.Limit{ID: uuid.New(), Rate: 5000, Burst: 1, Class: 0x1150a001, Expires: time.Minute, Age: time.Minute}
	if r.Observe(); s.rates[firstShape] != 5000 || r.kernel.limit.Class != 0x11508000+firstShape {
		t.Errorf("class %x, shapes %v", r.kernel.limit.Class, s.rates)
	}
}

func TestPortsAreHeldToTheirContract(t *testing.T) {
	r := newRig()
	r.SetContracts(Contracts{{Tenant: "red"}: {Guarantee: 1000, Ceiling: 9000, Packets: 500, NewFlows: 20}, {Tenant: "blue"}: {Guarantee: 1, Ceiling: 1, Packets: 500, NewFlows: 20}})
	if r.Observe(); r.kernel.packets != 500 || r.kernel.newFlows != 20 {
		t.Errorf("%d packets, %d new flows", r.kernel.packets, r.kernel.newFlows)
	}
	req := ask(2000)
	req.Packets = 499
	var refusal *Refusal
	if _, err := r.Apply("p", req); !errors.As(err, &refusal) || refusal.Code != "below_floor" || refusal.Field != "packets_per_second" {
		t.Errorf("below the contract's packets: %v", err)
	}
	req.Packets = 500
	if got, err := r.Apply("p", req); err != nil || got.Packets != 500 {
		t.Errorf("%+v %v", got, err)
	}
}

func TestAPortsOwnContractGoesBeforeItsTenants(t *testing.T) {
	r := newRig()
	r.inventory = inventory{{ID: "p", Tenant: "red", Index: 1}}
	s := &shaper{rates: map[uint16]uint64{}}
	r.SetShaper(s)
	own := Contract{Guarantee: 3000, Ceiling: 9000, Packets: 700, NewFlows: 30, Receive: 90}
	r.SetContracts(Contracts{
		{Tenant: "red"}:             {Guarantee: 1000, Ceiling: 9000, Packets: 500},
		{Tenant: "red", Port: "p"}:  own,
		{Tenant: "blue", Port: "p"}: {Guarantee: 1, Ceiling: 9000}, // says nothing of a port of red's
	})
	if r.Observe(); r.kernel.packets != 700 || r.kernel.newFlows != 30 || r.kernel.receive != 90 {
		t.Errorf("%d packets, %d new flows, %d received", r.kernel.packets, r.kernel.newFlows, r.kernel.receive)
	}
	var refusal *Refusal
	if _, err := r.Apply("p", ask(2999)); !errors.As(err, &refusal) || refusal.Code != "below_floor" {
		t.Errorf("below what the port has: %v", err)
	}
	if _, err := r.Apply("p", ask(3000)); err != nil {
		t.Error(err)
	}
	r.kernel.age, r.kernel.limit.Age = ShapeAfter, ShapeAfter
	if r.Observe(); s.contract != "red/p" {
		t.Errorf("shaped below the class of %q", s.contract)
	}
	if list, err := r.State(); err != nil || len(list) != 1 || list[0].Contract != own {
		t.Errorf("shown %+v %v", list, err)
	}
	r.SetContracts(Contracts{{Tenant: "blue", Port: "p"}: own})
	if _, err := r.Apply("p", ask(5000)); !errors.As(err, &refusal) || refusal.Code != "no_contract" {
		t.Errorf("another tenant's contract: %v", err)
	}
}

func TestWithAPersonsApprovalALimitGoesBelowTheFloor(t *testing.T) {
	r := newRig()
	r.SetContracts(Contracts{{Tenant: "red"}: {Guarantee: 1000, Ceiling: 9000, Packets: 500, NewFlows: 20}})
	s := &shaper{rates: map[uint16]uint64{}}
	r.SetShaper(s)
	req := ask(0)
	req.ApprovedBy = "maria"
	got, err := r.Apply("p", req)
	if err != nil || got.Rate != 0 || got.Burst != 0 {
		t.Fatalf("dropping: %+v %v", got, err)
	}
	r.kernel.age, r.kernel.limit.Age = ShapeAfter, ShapeAfter
	if r.Observe(); r.kernel.limit.Class != 0 || len(s.rates) != 0 {
		t.Errorf("what is dropped is handed to a shaper: %+v", r.kernel.limit)
	}
	req.Rate, req.Packets, req.NewFlows = 999, 499, 19
	if got, err := r.Apply("p", req); err != nil || got.Rate != 999 || got.Packets != 499 || got.NewFlows != 19 {
		t.Errorf("below every guarantee: %+v %v", got, err)
	}
	var refusal *Refusal
	req.ApprovedBy, req.Rate, req.Packets = "", 1000, 500
	if _, err := r.Apply("p", req); !errors.As(err, &refusal) || refusal.Code != "below_floor" || refusal.Field != "new_flows_per_second" {
		t.Errorf("without approval: %v", err)
	}
}

func TestALimitOnEverythingStaysOneWhenItIsShaped(t *testing.T) {
	r := newRig()
	r.inventory = inventory{{ID: "p", Tenant: "red", Index: 1}}
	r.SetShaper(&shaper{rates: map[uint16]uint64{}})
	req := ask(2000)
	req.Protocol, req.NewFlows = Everything, 30
	if got, err := r.Apply("p", req); err != nil || Protocol(&got) != Everything {
		t.Fatalf("%+v %v", got, err)
	}
	r.kernel.limit.Age = ShapeAfter
	if r.Observe(); r.kernel.limit.Class == 0 || !r.kernel.limit.Everything || r.kernel.limit.NewFlows != 30 {
		t.Errorf("handed over as %+v", r.kernel.limit)
	}
}

func TestALeaderOfThePastChangesNothing(t *testing.T) {
	r := newRig()
	term := func(n uint64) *uint64 { return &n }
	req := ask(2000)
	req.Term = term(5)
	if _, err := r.Apply("p", req); err != nil || r.Term() != 5 {
		t.Fatalf("term %d, %v", r.Term(), err)
	}
	sets := r.kernel.sets
	old := req
	old.Term, old.Rate = term(4), 3000
	_, apply := r.Apply("p", old)
	_, remove := r.Remove("p", req.ID, term(4))
	_, all := r.RemoveAll(term(4))
	for name, err := range map[string]error{"apply": apply, "remove": remove, "remove all": all} {
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Code != "stale_term" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r.kernel.sets != sets || r.kernel.limit == nil || r.kernel.limit.Rate != 2000 {
		t.Errorf("the kernel has %+v after %d writes", r.kernel.limit, r.kernel.sets-sets)
	}
	if _, err := r.Remove("p", req.ID, nil); err != nil {
		t.Errorf("who has no term is no leader of the past: %v", err)
	}
	r.fence.(*terms).err = errKernel
	req.Term = term(6)
	if _, err := r.Apply("p", req); !errors.Is(err, errKernel) || r.kernel.limit != nil {
		t.Errorf("a term that cannot be kept: %v, %+v", err, r.kernel.limit)
	}
}
