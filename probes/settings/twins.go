package settings

import (
	"fmt"
	"math"

	"vigia/probes/sender"
)

// twinKey is what a target and its twin have in common, and the twin's path.
type twinKey struct{ dst, path, probe string }

// twins finds targets by what their twins say of them.
type twins struct {
	targets []Target
	byKey   map[twinKey][]int
}

func newTwins(targets []Target) *twins {
	w := &twins{targets: targets, byKey: make(map[twinKey][]int, len(targets))}
	for i := range targets {
		t := &targets[i]
		key := twinKey{t.Dst, t.Path, t.Probe}
		w.byKey[key] = append(w.byKey[key], i)
	}
	return w
}

// of returns the index of the target that t names as its twin, or -1: one of the
// same tenant before the operator's, and that before any other.
func (w *twins) of(t *Target) int {
	found, rank := -1, 0
	for _, i := range w.byKey[twinKey{t.Dst, t.Twin, t.Probe}] {
		r := 1
		switch w.targets[i].Tenant {
		case t.Tenant:
			r = 3
		case infrastructure:
			r = 2
		}
		if r > rank {
			found, rank = i, r
		}
	}
	return found
}

// infrastructure is the tenant that stands for the operator.
const infrastructure = "_infra"

// validateTwins checks that what is to be compared is there and comparable.
func validateTwins(e *faults, list string, targets []Target, classes map[string]*Class) {
	all, members := newTwins(targets), make(map[int]int)
	for i := range targets {
		t := &targets[i]
		if t.Twin == "" {
			continue
		}
		field := fmt.Sprintf("%s[%d].twin", list, i)
		if t.Twin == t.Path {
			e.add(field, t.Twin, "is the target's own path", "write the path to compare with, for example twin: direct")
			continue
		}
		twin := all.of(t)
		if twin < 0 {
			e.add(field, t.Twin, fmt.Sprintf("is not the path of a target with dst %s and probe %s", t.Dst, t.Probe), "add that target or correct it")
			continue
		}
		if targets[twin].Twin != "" {
			e.add(field, t.Twin, "is the path of a target that has a twin itself", "name the one that both are compared with")
		}
		if c := classes[t.Probe]; c != nil && c.protocol != nil && c.sourcePorts() > 1 {
			e.add(field, t.Twin, "needs a class with one source port", "choose another class")
		}
		members[twin]++
		if members[twin] == math.MaxUint8 {
			e.add(field, t.Twin, "has too many twins", fmt.Sprintf("at most %d", math.MaxUint8-1))
		}
	}
}

// joinTwins puts targets, converted from what is written in the same order, into
// groups around the one that they are compared with.
func joinTwins(written []Target, targets []sender.Target) {
	all, groups := newTwins(written), make(map[int][]int)
	for i := range written {
		if written[i].Twin == "" {
			continue
		}
		twin := all.of(&written[i])
		if groups[twin] == nil {
			groups[twin] = []int{twin}
		}
		groups[twin] = append(groups[twin], i)
	}
	for base, members := range groups {
		for rank, i := range members {
			targets[i].Twin = sender.Twin{Group: targets[base].Labels, Rank: uint8(rank), Size: uint8(len(members))}
		}
	}
}
