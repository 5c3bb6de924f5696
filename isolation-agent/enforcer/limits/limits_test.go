package limits

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/common/promslog"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
)

// faulty is a kernel that fails or lies on demand; what a good kernel does is
// tested with the real one in package app.
type faulty struct {
	limit                     *vport.Limit
	setErr, readErr, clearErr error
	lie                       bool // reads back another rate than was set
	stuck                     bool // removal has no effect
	sets                      int
}

func (k *faulty) SetLimit(_ int, r vport.LimitRequest) error {
	k.sets++
	if k.setErr != nil {
		return k.setErr
	}
	if k.lie {
		r.Rate /= 2
	}
	k.limit = &vport.Limit{ID: r.ID, Rate: r.Rate, Burst: r.Burst, Packets: r.Packets, Expires: r.TTL}
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
	r.Limits = New(r.kernel, inv, map[string]Contract{"red": {Guarantee: 1000, Ceiling: 9000}}, promslog.NewNopLogger(),
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
	if had, err := r.Remove("p", uuid.Nil); had || err == nil {
		t.Errorf("a limit that stayed counts as removed: %v, %v", had, err)
	}
	r.kernel.stuck, r.kernel.clearErr = false, errKernel
	if _, err := r.RemoveAll(); !errors.Is(err, errKernel) {
		t.Errorf("got %v", err)
	}
	r.kernel.clearErr = nil
	if n, err := r.RemoveAll(); n != 1 || err != nil {
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
