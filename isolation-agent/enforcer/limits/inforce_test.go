package limits_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"vigia/internal/ports"
)

// inForce returns the ports with a limit in force and their rates.
func (r *rig) inForce(t *testing.T) (ids []string, rates []uint64) {
	t.Helper()
	list, err := r.InForce()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		ids, rates = append(ids, l.Port.ID+" of "+l.Port.Tenant), append(rates, l.Limit.BytesPerSecond)
	}
	return ids, rates
}

func TestLimitsInForceAreThoseInTheKernel(t *testing.T) {
	r := newRig(t)
	expect := func(what string, want ...uint64) {
		t.Helper()
		if ids, rates := r.inForce(t); !slices.Equal(rates, want) || len(want) == 1 && ids[0] != "p of red" {
			t.Errorf("%s: %v of %v, want %v", what, rates, ids, want)
		}
	}
	expect("before any")
	req := ask(2000)
	r.apply(t, req)
	expect("as soon as it is applied", 2000)
	r.Observe()
	expect("and seen", 2000)
	if there, err := r.Remove("p", req.ID, nil); err != nil || !there {
		t.Fatal(there, err)
	}
	expect("once it is removed")
	r.apply(t, ask(3000))
	delete(r.kernel.limits, 1)
	expect("expired, and nobody has noticed")
	r.apply(t, ask(4000))
	r.kernel.detached = true
	expect("without the program that would apply it")
	r.kernel.detached = false
	r.restart(t)
	expect("in a new process, before its first look", 4000)
	r.Observe()
	expect("and after it", 4000)
	r.kernel.readErr = errKernel
	if list, err := r.InForce(); !errors.Is(err, errKernel) || list != nil {
		t.Errorf("%v, %v", list, err)
	}
}

// TestPortsWithoutALimitAreNotAskedEachTime: once they were looked at, the kernel is asked
// of none of a thousand.
func TestPortsWithoutALimitAreNotAskedEachTime(t *testing.T) {
	r := newRig(t)
	for i := range 1000 {
		*r.inventory = append(*r.inventory, ports.Port{ID: "more" + time.Duration(i).String(), Tenant: "red", Index: 10 + i})
	}
	r.apply(t, ask(2000))
	before := r.kernel.reads
	if _, rates := r.inForce(t); len(rates) != 1 || r.kernel.reads-before < 1002 {
		t.Errorf("%d limits after %d reads: the first look is at every port", len(rates), r.kernel.reads-before)
	}
	r.Observe()
	before = r.kernel.reads
	if _, rates := r.inForce(t); len(rates) != 1 || r.kernel.reads-before > 2 {
		t.Errorf("%d limits after %d reads, want one after one read", len(rates), r.kernel.reads-before)
	}
}
