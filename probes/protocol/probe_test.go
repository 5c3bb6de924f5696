package protocol

import (
	"testing"

	"vigia/probes/delay"
)

// TestComplete goes through what stamps an answered probe may have.
func TestComplete(t *testing.T) {
	const all = delay.T1 | delay.T2 | delay.T3 | delay.T4
	for _, tc := range []struct {
		name     string
		stamps   delay.Stamps
		hardware bool
		want     bool
	}{
		{"nothing", delay.Stamps{}, false, false},
		{"no send stamp", delay.Stamps{Kernel: all &^ delay.T1}, false, false},
		{"no follow-up", delay.Stamps{Kernel: all &^ delay.T3}, false, false},
		{"all of the kernel's", delay.Stamps{Kernel: all}, false, true},
		{"the device did not stamp the arrival", delay.Stamps{Kernel: all}, true, true},
		{"the device's send stamp is to come", delay.Stamps{Kernel: all, Device4: 7, Far: delay.Hardware}, true, false},
		{"and is not wanted", delay.Stamps{Kernel: all, Device4: 7, Far: delay.Hardware}, false, true},
		{"and could not be compared", delay.Stamps{Kernel: all, Device4: 7}, true, true},
		{"and is wanted of an echo", delay.Stamps{Kernel: all, Device4: 7, OneClock: true}, true, false},
		{"both of the device's", delay.Stamps{Kernel: all, Device1: 3, Device4: 7, Far: delay.Hardware}, true, true},
	} {
		p := Probe{Stamps: tc.stamps}
		if got := p.Complete(tc.hardware); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestLag(t *testing.T) {
	if p := (Probe{Intended: 1000, SentAt: 1700}); p.Lag() != 700 {
		t.Errorf("lag %d", p.Lag())
	}
}

// TestSplit tells the application's part from our own.
func TestSplit(t *testing.T) {
	const wall = 1_000_000 // CLOCK_REALTIME less CLOCK_MONOTONIC
	probe := func(change func(p *Probe)) Probe {
		p := Probe{
			Intended: 100, SentAt: 110, Sent: wall + 110, ReadAt: 500,
			Stamps: delay.Stamps{T1: wall + 115, T4: wall + 215, Kernel: delay.T1 | delay.T4},
		}
		change(&p)
		p.Split(wall + p.ReadAt)
		return p
	}
	for _, tc := range []struct {
		name        string
		change      func(p *Probe)
		application int64
		own         Own
		known       bool
	}{
		{"stamped", func(*Probe) {}, 100, Own{Known: true, Send: 5, Read: 285}, true},
		{"no send stamp", func(p *Probe) { p.Stamps.Kernel = delay.T4 }, 390, Own{}, false},
		{"no receive stamp", func(p *Probe) { p.Stamps.Kernel = delay.T1 }, 390, Own{}, false},
		{"the clock was stepped", func(p *Probe) { p.Stamps.ReceivedSteps = 1 }, 390, Own{}, false},
		{"implausible", func(p *Probe) { p.Stamps.T4 = wall }, 390, Own{}, false},
		{"an exchange that the kernel timed", func(p *Probe) { p.ByExchange = true }, 100, Own{}, true},
		{"an exchange of user space", func(p *Probe) { p.ByExchange, p.Stamps.Kernel = true, 0 }, 390, Own{}, true},
	} {
		p := probe(tc.change)
		if p.Application != tc.application || p.Own != tc.own || p.ApplicationKnown() != tc.known {
			t.Errorf("%s: %d, %+v, known %v", tc.name, p.Application, p.Own, p.ApplicationKnown())
		}
		if whole := p.Lag() + p.Own.Send + p.Application + p.Own.Read; p.Own.Known && whole != p.ReadAt-p.Intended {
			t.Errorf("%s: the parts are %d of %d", tc.name, whole, p.ReadAt-p.Intended)
		}
	}
}
