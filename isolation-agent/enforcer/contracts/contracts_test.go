package contracts

import (
	"fmt"
	"strings"
	"testing"

	"vigia/internal/bpf/classify"
)

// mbit is a megabit per second in bytes per second.
const mbit = 125_000

func link() Link { return Link{Device: "up0", Rate: 100 * mbit, Headroom: 0.05} }

func pair() []Contract {
	return []Contract{
		{
			Name: "a", Send: Rates{60 * mbit, 100 * mbit}, Receive: Rates{71 * mbit, 100 * mbit},
			Matches: []classify.Match{{Network: classify.VXLAN, ID: 10}},
		},
		{
			Name: "b", Send: Rates{20 * mbit, 100 * mbit}, Receive: Rates{23 * mbit, 50 * mbit},
			Matches: []classify.Match{{Network: classify.VXLAN, ID: 20}},
		},
	}
}

func TestLimitAndThresholdFollowTheHeadroom(t *testing.T) {
	l := link()
	if got := l.Limit(); got != 95*mbit {
		t.Errorf("LIM_IN %d", got)
	}
	if got := l.DropThreshold(); got != 2.5*mbit {
		t.Errorf("D %d", got)
	}
}

func TestQueuesHoldTwoMilliseconds(t *testing.T) {
	for rate, want := range map[uint64]uint32{1 * mbit: 32, 100 * mbit: 32, 1000 * mbit: 166, 10_000 * mbit: 1666} {
		if got := QueueLimit(rate); got != want {
			t.Errorf("at %d bytes per second: %d packets, want %d", rate, got, want)
		}
	}
}

func TestAdmissionRefusesMoreThanTheLinkHas(t *testing.T) {
	l, list := link(), pair()
	if err := Admit(&l, list); err != nil {
		t.Fatal(err)
	}
	list[0].Receive.Guarantee = 72 * mbit // 72 + 23 = 95, and 1% is for the rest
	err := Admit(&l, list)
	if err == nil || !strings.Contains(err.Error(), "to receive") || !strings.Contains(err.Error(), "up0") {
		t.Errorf("error %v", err)
	}
	list = pair()
	list[1].Send.Guarantee = 40 * mbit
	if err = Admit(&l, list); err == nil || !strings.Contains(err.Error(), "to send") {
		t.Errorf("error %v", err)
	}
}

func TestANameKeepsItsClass(t *testing.T) {
	var list []Contract
	for i := range 2000 {
		list = append(list, Contract{Name: fmt.Sprint("tenant-", i)})
	}
	all := Minors(list)
	seen := map[uint16]bool{}
	for name, minor := range all {
		if minor < firstMinor || minor >= leafOffset || seen[minor] {
			t.Fatalf("%s has minor %x", name, minor)
		}
		seen[minor] = true
	}
	kept := 0
	for name, minor := range Minors(list[:1000]) {
		if all[name] == minor {
			kept++
		}
	}
	if kept < 950 {
		t.Errorf("only %d of 1000 kept their class when others went", kept)
	}
}

func TestPlanSharesSpareBandwidthByGuarantee(t *testing.T) {
	l, list := link(), pair()
	both := directions()
	got := plan(7, &l, list, both[1])
	if len(got.inner) != 1 || got.inner[0].Rate != 95*mbit || got.inner[0].Ceil != 95*mbit || len(got.leaves) != 3 {
		t.Fatalf("plan %+v", got)
	}
	minor := Minors(list)
	for _, leaf := range got.leaves {
		switch leaf.class.Handle.Minor() {
		case DefaultMinor:
			if leaf.class.Rate != 95*mbit/100 || leaf.class.Ceil != 95*mbit {
				t.Errorf("default class %+v", leaf.class)
			}
		case minor["a"] + leafOffset:
			if leaf.class.Rate != 71*mbit || leaf.class.Ceil != 95*mbit || leaf.class.Quantum != 60_000 {
				t.Errorf("class of a %+v", leaf.class)
			}
		case minor["b"] + leafOffset:
			if leaf.class.Rate != 23*mbit || leaf.class.Ceil != 50*mbit || leaf.class.Quantum != 19_436 {
				t.Errorf("class of b %+v", leaf.class)
			}
		}
		if leaf.queue.Parent != leaf.class.Handle || leaf.queue.Limit != QueueLimit(leaf.class.Ceil) || leaf.queue.Kind != "pfifo" {
			t.Errorf("queue %+v", leaf.queue)
		}
	}
	got = plan(7, &l, list, both[0])
	if len(got.inner) != 3 || got.inner[1].Rate+got.inner[2].Rate != 80*mbit {
		t.Errorf("sending %+v", got.inner)
	}
	for _, leaf := range got.leaves[1:] {
		if leaf.class.Parent.Minor() != leaf.class.Handle.Minor()-leafOffset || leaf.class.Rate > mbit {
			t.Errorf("below a contract's class: %+v", leaf.class)
		}
	}
}
