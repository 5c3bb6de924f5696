package limits_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/common/promslog"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/leaderterm"
	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/limits/police"
	"vigia/isolation-agent/enforcer/limits/shape"
	"vigia/isolation-agent/enforcer/scheduling"
)

// faulty is a kernel that fails or lies on demand; what a good kernel does is
// tested with the real one in packages police, shape and app.
type faulty struct {
	limits                    map[int]*vport.Limit
	setErr, readErr, clearErr error
	lie                       bool // reads back another rate than was set
	stuck                     bool // removal has no effect
	detached                  bool
	sets, reads               int
	bounds                    map[int]vport.Bounds
}

func (k *faulty) SetLimit(index int, r vport.LimitRequest) error {
	k.sets++
	if k.setErr != nil {
		return k.setErr
	}
	if k.lie {
		r.Rate /= 2
	}
	now := &vport.Limit{
		ID: r.ID, Everything: r.Everything, Rate: r.Rate, Burst: r.Burst, Packets: r.Packets, NewFlows: r.NewFlows, Class: r.Class, Expires: r.TTL,
	}
	if old := k.limits[index]; old != nil && old.ID == r.ID {
		now.Age = old.Age
	}
	k.limits[index] = now
	return nil
}

func (k *faulty) RemoveLimit(index int) error {
	if k.clearErr == nil && !k.stuck {
		delete(k.limits, index)
	}
	return k.clearErr
}

func (k *faulty) Limit(index int) (vport.Limit, error) {
	k.reads++
	switch {
	case k.readErr != nil:
		return vport.Limit{}, k.readErr
	case k.detached:
		return vport.Limit{}, vport.ErrNotAttached
	case k.limits[index] == nil:
		return vport.Limit{}, vport.ErrNoLimit
	}
	return *k.limits[index], nil
}

func (k *faulty) SyncBounds(want map[int]vport.Bounds) error {
	k.bounds = want
	return k.readErr
}

func (k *faulty) Signals(int) (vport.Signals, error) { return vport.Signals{}, k.readErr }
func (k *faulty) Read(int) (vport.Counters, error)   { return vport.Counters{}, k.readErr }

// classes remembers the classes that it was asked for.
type classes struct {
	rates map[uint32]uint64
	owner contract.Owner // of the last class
	next  uint32
	err   error
}

func (c *classes) SetLimitClass(class uint32, owner contract.Owner, rate uint64) (uint32, error) {
	c.owner = owner
	if c.err != nil {
		return 0, c.err
	}
	if class == 0 {
		c.next++
		class = c.next
	}
	c.rates[class] = rate
	return class, nil
}

func (c *classes) RemoveLimitClass(class uint32) error {
	delete(c.rates, class)
	return nil
}

// only returns the rate of the only class; 0 if there is not one.
func (c *classes) only() uint64 {
	if len(c.rates) != 1 {
		return 0
	}
	for _, rate := range c.rates {
		return rate
	}
	return 0
}

// terms may be unable to remember.
type terms struct {
	highest uint64
	err     error
}

func (f *terms) Highest() uint64 { return f.highest }

func (f *terms) Admit(term uint64) error {
	if term < f.highest {
		return leaderterm.ErrStale
	}
	if f.err == nil {
		f.highest = term
	}
	return f.err
}

type inventory []ports.Port

func (i *inventory) Ports() ([]ports.Port, []ports.SourceState) { return *i, nil }

func (i *inventory) Lookup(id string) (ports.Port, bool) {
	for _, p := range *i {
		if p.ID == id {
			return p, true
		}
	}
	return ports.Port{}, false
}

var (
	red   = ports.Port{ID: "p", Tenant: "red", Index: 1}
	blue  = ports.Port{ID: "q", Tenant: "blue", Index: 2}
	owner = contract.Owner{Tenant: "red"}
)

// rig is a node with port p of red, which has a contract, and q of blue, which has none.
type rig struct {
	*limits.Limits
	kernel    *faulty
	classes   *classes
	inventory *inventory
	terms     *terms
	log       *testutil.Output
	counts    map[limits.Change]int
	now       time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{
		kernel: &faulty{limits: map[int]*vport.Limit{}}, classes: &classes{rates: map[uint32]uint64{}}, terms: &terms{},
		counts: map[limits.Change]int{}, now: time.Now(), inventory: &inventory{red, blue}, log: &testutil.Output{},
	}
	r.restart(t)
	return r
}

// restart is a new process with the usual table of mechanisms.
func (r *rig) restart(t *testing.T) {
	t.Helper()
	r.start(t, limits.Row{Name: "shape", Mechanism: shape.New(r.kernel, r.classes)}, limits.Row{Name: "police", Mechanism: police.New(r.kernel)})
}

// start is a new process with another table of mechanisms.
func (r *rig) start(t *testing.T, table ...limits.Row) {
	t.Helper()
	r.Limits = limits.New(limits.Config{
		Kernel: r.kernel, Inventory: r.inventory, Terms: r.terms, Mechanisms: table, Logger: promslog.New(&promslog.Config{Writer: r.log}),
		Contracts: bought(t, contract.Contract{Owner: owner, Send: guarantee(1000)}),
		Count:     func(c limits.Change) { r.counts[c]++ },
	})
	r.SetClock(func() time.Time { return r.now })
}

// limit returns what the kernel has on p.
func (r *rig) limit() *vport.Limit { return r.kernel.limits[1] }

func guarantee(rate uint64) contract.Bandwidth {
	return contract.Bandwidth{GuaranteeBytesPerSecond: rate, CeilingBytesPerSecond: 9000}
}

// bought is contracts that receive as they send.
func bought(t *testing.T, list ...contract.Contract) *contract.Set {
	t.Helper()
	for i := range list {
		list[i].Receive = list[i].Send
	}
	s, err := contract.NewSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask is a request of a new action for p.
func ask(rate uint64) limits.Request {
	return limits.Request{Limit: limits.Limit{ID: uuid.New(), Protocol: limits.UDP, BytesPerSecond: rate}, Tenant: "red", TTL: time.Minute}
}

// apply puts a limit on p that must be put.
func (r *rig) apply(t *testing.T, req limits.Request) limits.State {
	t.Helper()
	got, err := r.Apply("p", req)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

var (
	errKernel  = errors.New("kernel says no")
	errNoClass = scheduling.ErrNoClass
)
