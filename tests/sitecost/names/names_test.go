package names

import (
	"testing"
	"time"
)

func TestNamesAreFoundAndOfOneWidth(t *testing.T) {
	for _, pair := range [][2]string{
		{Node(0), Node(99999)},
		{Tenant(0), Tenant(0xffff)},
		{Port(0, 0, 0), Port(0xffff, 999, Generations-1)},
	} {
		if len(pair[0]) != len(pair[1]) {
			t.Errorf("%q and %q are not of one width", pair[0], pair[1])
		}
		for _, name := range pair {
			if got := Pattern.FindString(`a="` + name + `"`); got != name {
				t.Errorf("Pattern finds %q, want %q", got, name)
			}
		}
	}
}

func TestAPortIsReadBack(t *testing.T) {
	node, place, generation, ok := ParsePort(Port(1000, 49, 77))
	if !ok || node != 1000 || place != 49 || generation != 77 {
		t.Errorf("got %d, %d, %d, %t", node, place, generation, ok)
	}
	for _, wrong := range []string{"", "_overflow", "6d5a5c3e-0000-4000-9d2b-00000000000", Node(3)} {
		if _, _, _, ok := ParsePort(wrong); ok {
			t.Errorf("%q is taken for a port", wrong)
		}
	}
}

// In the course of one life every place gets one new port, and not all places at once.
func TestPortsChangeOnceInALife(t *testing.T) {
	const life, steps, places = time.Hour, 60, 50
	start := time.Unix(1_700_000_000, 0)
	var changed [steps]int
	for place := range places {
		last := Generation(3, place, start, life)
		sum := 0
		for step := range steps {
			next := Generation(3, place, start.Add(time.Duration(step+1)*life/steps), life)
			if next != last {
				changed[step]++
				sum++
			}
			last = next
		}
		if sum != 1 {
			t.Errorf("place %d changed %d times in one life", place, sum)
		}
	}
	for step, n := range changed {
		if n > places/4 {
			t.Errorf("%d of %d places changed in step %d", n, places, step)
		}
	}
	if Generation(3, 4, start, 0) != 0 {
		t.Error("a life without end has generations")
	}
}
