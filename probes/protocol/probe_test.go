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
