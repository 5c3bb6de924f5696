package scheduling

import (
	"math/rand/v2"
	"sync"
	"testing"

	"vigia/internal/bpf/vport"
)

func TestNoClassHasTwoUsersAndAllComeBack(t *testing.T) {
	var ids classIDs
	taken := map[uint16]bool{}
	for range limitClasses {
		id, ok := ids.take()
		if !ok || taken[id] || id < vport.FirstShape || int(id) >= vport.FirstShape+vport.Shapes {
			t.Fatalf("class %x, %v, after %d", id, ok, len(taken))
		}
		taken[id] = true
	}
	if id, ok := ids.take(); ok {
		t.Errorf("class %x, though all are taken", id)
	}
	for id := range taken {
		ids.release(id)
		ids.release(id) // once more changes nothing
	}
	if ids.used != 0 {
		t.Errorf("%d are still taken", ids.used)
	}
	for range limitClasses {
		if _, ok := ids.take(); !ok {
			t.Fatal("a class did not come back")
		}
	}
}

func TestAClassThatCameBackIsUsedLast(t *testing.T) {
	var ids classIDs
	first, _ := ids.take()
	ids.release(first)
	for i := range limitClasses - 1 {
		id, ok := ids.take()
		if !ok || id == first {
			t.Fatalf("class %x again after %d others, %v", id, i, ok)
		}
	}
	if id, ok := ids.take(); !ok || id != first {
		t.Errorf("class %x, %v; want the first, %x", id, ok, first)
	}
}

func TestClassesOfADeadProcessAreUsedLast(t *testing.T) {
	var ids classIDs
	for _, left := range []uint16{vport.FirstShape + 3, vport.FirstShape + 1, 7, 0x4242} {
		ids.skip(left)
	}
	for range limitClasses - 4 {
		if id, ok := ids.take(); !ok || id <= vport.FirstShape+3 {
			t.Fatalf("class %x, %v", id, ok)
		}
	}
	ids = classIDs{}
	ids.skip(vport.FirstShape + limitClasses - 1) // the very last: round it goes
	if id, ok := ids.take(); !ok || id != vport.FirstShape {
		t.Errorf("class %x, %v", id, ok)
	}
}

func TestWhatIsNoClassOfALimitIsNotTakenBack(t *testing.T) {
	var ids classIDs
	for range limitClasses {
		ids.take()
	}
	for _, id := range []uint16{0, 1, DefaultMinor, firstMinor, leafOffset, vport.FirstShape - 1, vport.FirstShape + limitClasses, 0xffff} {
		ids.release(id)
	}
	if ids.used != limitClasses {
		t.Errorf("%d of %d are taken", ids.used, limitClasses)
	}
}

// TestClassIDsAgreeWithASet drives the numbers at random beside a set of them.
func TestClassIDsAgreeWithASet(t *testing.T) {
	var ids classIDs
	random := rand.New(rand.NewPCG(3, 4))
	var have []uint16
	taken := map[uint16]bool{}
	for step := range 200_000 {
		if random.IntN(limitClasses) < len(have)/2+1 && len(have) > 0 {
			i := random.IntN(len(have))
			ids.release(have[i])
			delete(taken, have[i])
			have[i] = have[len(have)-1]
			have = have[:len(have)-1]
			continue
		}
		id, ok := ids.take()
		if ok != (len(have) < limitClasses) || taken[id] {
			t.Fatalf("step %d: class %x, %v, with %d taken", step, id, ok, len(have))
		}
		if !ok {
			continue
		}
		taken[id] = true
		have = append(have, id)
	}
	if ids.used != len(taken) {
		t.Errorf("%d are taken, %d are counted", len(taken), ids.used)
	}
}

// TestTwoUsersOfOneSchedulerNeverShareAClass has the limits of the isolation agent and
// those of the fast loop take and return classes of one Reconciler at the same time.
func TestTwoUsersOfOneSchedulerNeverShareAClass(t *testing.T) {
	n := newNode(t)
	var mu sync.Mutex
	inUse := map[uint32]int{}
	var wg sync.WaitGroup
	for user := range 2 {
		wg.Go(func() {
			for i := range 50 {
				name := []string{"a", "b"}[(user+i)%2]
				class, err := n.SetLimitClass(0, owner(name), uint64(1+i)*mbit)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if other, taken := inUse[class]; taken {
					t.Errorf("class %x is user %d's and user %d's", class, other, user)
				}
				inUse[class] = user
				mu.Unlock()
				if i%2 == 0 {
					mu.Lock()
					delete(inUse, class)
					mu.Unlock()
					if err := n.RemoveLimitClass(class); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if len(inUse) != 50 {
		t.Errorf("%d classes are in use", len(inUse))
	}
	n.mustKnow(50)
	for class := range inUse {
		if err := n.RemoveLimitClass(class); err != nil {
			t.Error(err)
		}
	}
	n.mustKnow(0)
}
