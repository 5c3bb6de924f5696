package twin

import (
	"slices"
	"testing"
	"time"

	"vigia/probes/delay"
	"vigia/probes/protocol"
	"vigia/probes/sender"
)

type taxes []int64

func (x *taxes) Taxed(ns int64) { *x = append(*x, ns) }

func labels(path string) sender.Labels {
	return sender.Labels{Src: "a", Dst: "b", Path: path, Tenant: "_infra", Probe: "c"}
}

func members(paths ...string) (targets []sender.Target) {
	for i, path := range paths {
		targets = append(targets, sender.Target{
			Labels: labels(path), Interval: 10 * time.Millisecond, Deadline: time.Second,
			Twin: sender.Twin{Group: labels(paths[0]), Rank: uint8(i), Size: uint8(len(paths))},
		})
	}
	return targets
}

func answered(at, rtt int64) *protocol.Probe {
	return &protocol.Probe{Intended: at, State: protocol.Answered, Verdict: delay.Good, Stamps: delay.Stamps{T1: 1000, T4: 1000 + rtt}}
}

// Differences are taken within a moment, whatever settles first, and each once.
func TestDifferences(t *testing.T) {
	p := New()
	p.Set(members("direct", "vxlan", "gre"))
	var direct, vxlan, gre taxes
	const step = int64(10 * time.Millisecond)
	p.Settled(labels("vxlan"), answered(1*step, 30), &vxlan)
	p.Settled(labels("direct"), answered(2*step, 11), &direct)
	p.Settled(labels("direct"), answered(1*step, 10), &direct)
	p.Settled(labels("gre"), answered(2*step, 40), &gre)
	p.Settled(labels("gre"), answered(1*step, 7), &gre)
	p.Settled(labels("vxlan"), answered(3*step, 99), &vxlan) // its twin was lost
	if len(direct) != 0 || !slices.Equal(vxlan, taxes{20}) || !slices.Equal(gre, taxes{29, -3}) {
		t.Errorf("direct %v, vxlan %v, gre %v", direct, vxlan, gre)
	}
}

// Lost probes, and those whose stamps are no good, are compared with nothing.
func TestOnlyGoodSamples(t *testing.T) {
	p := New()
	p.Set(members("direct", "vxlan"))
	var got taxes
	lost, bad := answered(0, 10), answered(0, 10)
	lost.State, bad.Verdict = protocol.Lost, delay.ClockStep
	p.Settled(labels("direct"), lost, &got)
	p.Settled(labels("direct"), bad, &got)
	p.Settled(labels("vxlan"), answered(0, 30), &got)
	p.Settled(labels("other"), answered(0, 30), &got)
	if len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

// What is remembered is bounded: a sample never meets one of a later moment that
// falls on the same place.
func TestOldMomentsAreForgotten(t *testing.T) {
	p := New()
	p.Set(members("direct", "vxlan"))
	var got taxes
	rounds := int64(len(p.groups[labels("direct")].rounds))
	step := int64(10 * time.Millisecond)
	p.Settled(labels("direct"), answered(step, 10), &got)
	p.Settled(labels("vxlan"), answered(step+rounds*step, 30), &got)
	if len(got) != 0 {
		t.Errorf("two moments were compared: %v", got)
	}
}

// A reload that leaves a group as it is loses no pair, one that changes it starts
// it anew, and one that removes it ends it.
func TestSet(t *testing.T) {
	p := New()
	p.Set(members("direct", "vxlan"))
	var got taxes
	p.Settled(labels("direct"), answered(0, 10), &got)
	p.Set(members("direct", "vxlan"))
	p.Settled(labels("vxlan"), answered(0, 30), &got)
	if !slices.Equal(got, taxes{20}) {
		t.Errorf("after the same again: %v", got)
	}
	if p.Compared(labels("direct")) || !p.Compared(labels("vxlan")) || p.Compared(labels("gre")) {
		t.Error("the wrong ones are compared")
	}
	p.Set(members("direct", "gre"))
	p.Settled(labels("vxlan"), answered(1, 30), &got)
	p.Settled(labels("direct"), answered(1, 10), &got)
	p.Set(nil)
	p.Settled(labels("gre"), answered(1, 30), &got)
	if len(got) != 1 || p.Compared(labels("vxlan")) {
		t.Errorf("after changes: %v", got)
	}
}
