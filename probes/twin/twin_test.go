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

// exchanged is a question or a request, which leaves no stamps, or a handshake, whose time the kernel tells.
func exchanged(at, application, rtt int64) *protocol.Probe {
	p := &protocol.Probe{Intended: at, State: protocol.Answered, ByExchange: true, Application: application, Verdict: delay.NoKernelStamp, Stamps: delay.Stamps{Kernel: delay.T2 | delay.T3, OneClock: true}}
	if rtt > 0 {
		p.Stamps, p.Verdict = delay.Stamps{T1: 1000, T4: 1000 + rtt, Kernel: delay.T1 | delay.T4, OneClock: true}, delay.Good
	}
	return p
}

// What applications see is compared where there are no stamps, and never with what stamps say.
func TestExchangesAreCompared(t *testing.T) {
	p := New()
	p.Set(members("endpoint", "service"))
	var endpoint, service taxes
	const step = int64(10 * time.Millisecond)
	p.Settled(labels("endpoint"), exchanged(1*step, 400, 0), &endpoint)
	p.Settled(labels("service"), exchanged(1*step, 450, 0), &service)
	p.Settled(labels("service"), exchanged(2*step, 300, 0), &service)
	p.Settled(labels("endpoint"), exchanged(2*step, 310, 0), &endpoint)
	p.Settled(labels("endpoint"), exchanged(3*step, 900, 20), &endpoint)
	p.Settled(labels("service"), exchanged(3*step, 999, 0), &service) // one has stamps
	p.Settled(labels("endpoint"), exchanged(4*step, 900, 20), &endpoint)
	p.Settled(labels("service"), exchanged(4*step, 700, 35), &service) // both have
	lost := exchanged(5*step, 400, 0)
	lost.State = protocol.Lost
	p.Settled(labels("endpoint"), lost, &endpoint)
	p.Settled(labels("service"), exchanged(5*step, 450, 0), &service)
	if len(endpoint) != 0 || !slices.Equal(service, taxes{50, -10, 15}) {
		t.Errorf("endpoint %v, service %v", endpoint, service)
	}
}

// A packet whose stamps are missing or no good is not taken for what an application saw.
func TestPacketsWithoutStampsAreNotCompared(t *testing.T) {
	p := New()
	p.Set(members("direct", "vxlan"))
	var got taxes
	for _, path := range []string{"direct", "vxlan"} {
		packet := exchanged(0, 10, 0)
		packet.ByExchange = false
		p.Settled(labels(path), packet, &got)
		stepped := exchanged(int64(time.Second), 10, 30)
		stepped.Verdict = delay.ClockStep
		p.Settled(labels(path), stepped, &got)
	}
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
