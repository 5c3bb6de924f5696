package scheduling

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"vigia/internal/bpf/classify"
	"vigia/internal/tc"
	"vigia/isolation-agent/enforcer/contract"
)

// mbit is a megabit per second in bytes per second.
const mbit = 125_000

func link() Link { return Link{Device: "up0", RateBytesPerSecond: 100 * mbit, Headroom: 0.05} }

func owner(tenant string) contract.Owner { return contract.Owner{Tenant: tenant} }

func bandwidth(guarantee, ceiling uint64) contract.Bandwidth {
	return contract.Bandwidth{GuaranteeBytesPerSecond: guarantee * mbit, CeilingBytesPerSecond: ceiling * mbit}
}

func pair() []contract.Contract {
	return []contract.Contract{
		{
			Owner: owner("a"), Send: bandwidth(60, 100), Receive: bandwidth(71, 100),
			Matches: []classify.Match{{Network: classify.VXLAN, ID: 10}},
		},
		{
			Owner: owner("b"), Send: bandwidth(20, 100), Receive: bandwidth(23, 50),
			Matches: []classify.Match{{Network: classify.VXLAN, ID: 20}},
		},
	}
}

func set(t testing.TB, list ...contract.Contract) *contract.Set {
	t.Helper()
	s, err := contract.NewSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLimitAndThresholdFollowTheHeadroom(t *testing.T) {
	for _, tc := range []struct {
		rate             uint64
		headroom         float64
		limit, threshold uint64
	}{
		{100 * mbit, 0.05, 95 * mbit, 2.5 * mbit},
		{100 * mbit, 0.5, 50 * mbit, 25 * mbit},
		{10_000 * mbit, 0.001, 9_990 * mbit, 5 * mbit},
		{1, 0.05, 0, 0},
	} {
		l := Link{Device: "up0", RateBytesPerSecond: tc.rate, Headroom: tc.headroom}
		if l.Limit() != tc.limit || l.DropThreshold() != tc.threshold {
			t.Errorf("%+v: limit %d and threshold %d, want %d and %d", l, l.Limit(), l.DropThreshold(), tc.limit, tc.threshold)
		}
	}
}

func TestQueuesHoldBurstsAndTwoMilliseconds(t *testing.T) {
	for rate, want := range map[uint64]uint64{
		0: 131_072, 1 * mbit: 131_072, 32 * mbit: 131_072, 100 * mbit: 400_000, 190 * mbit: 760_000, 200 * mbit: 786_432,
		1000 * mbit: 786_432, 3200 * mbit: 800_000, 10_000 * mbit: 2_500_000, 400_000 * mbit: 100_000_000,
	} {
		if got := queueBytes(rate); got != want {
			t.Errorf("at %d bytes per second: %d bytes, want %d", rate, got, want)
		}
	}
	if got := newLeaf(tc.Class{}, 1<<32).queue.Limit; got != math.MaxUint32 {
		t.Errorf("what the kernel has no number for: %d", got)
	}
}

// TestBurstsLastAsLongAsASwitchMayBeAway: what a sender could not send for 10 ms it may catch up with, whatever its rate.
func TestBurstsLastAsLongAsASwitchMayBeAway(t *testing.T) {
	for ceiling, want := range map[uint64]uint32{
		1: 16_384, 10 * mbit: 16_384, 190 * mbit: 237_500, 400_000 * mbit: 500_000_000, 4_000_000 * mbit: math.MaxUint32, math.MaxUint64: math.MaxUint32,
	} {
		if got := class(1, 0, 2, contract.Bandwidth{GuaranteeBytesPerSecond: 1, CeilingBytesPerSecond: ceiling}, 1514).Burst; got != want {
			t.Errorf("at %d bytes per second: a burst of %d bytes, want %d", ceiling, got, want)
		}
	}
}

func TestAdmissionRefusesMoreThanTheLinkHas(t *testing.T) {
	l := link()
	for _, tc := range []struct {
		name                   string
		sendA, sendB           uint64
		receiveA, receiveB     uint64
		want                   string
		wantAvailable, wantSum int
	}{
		{"what fits", 60, 20, 71, 23, "", 0, 0},
		{"all that there is", 71, 23, 71, 23, "", 0, 0},
		{"a megabit too much to receive", 60, 20, 72, 23, "to receive", 95 * mbit * 99 / 100, 95 * mbit},
		{"a megabit too much to send", 72, 23, 60, 20, "to send", 95 * mbit * 99 / 100, 95 * mbit},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list := pair()
			list[0].Send, list[1].Send = bandwidth(tc.sendA, 100), bandwidth(tc.sendB, 100)
			list[0].Receive, list[1].Receive = bandwidth(tc.receiveA, 100), bandwidth(tc.receiveB, 100)
			err := Admit(&l, set(t, list...))
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			want := fmt.Sprintf("link up0 guarantees %d bytes per second %s, but has %d to give (rate less headroom and 1%% for what has no contract)", tc.wantSum, tc.want, tc.wantAvailable)
			if err == nil || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
	if err := Admit(&l, nil); err != nil {
		t.Errorf("without contracts: %v", err)
	}
}

func many(n int) []contract.Contract {
	var list []contract.Contract
	for i := range n {
		c := contract.Contract{Owner: owner(fmt.Sprint("tenant-", i)), Send: bandwidth(1, 1), Receive: bandwidth(1, 1)}
		if i%3 == 0 {
			c.Port = fmt.Sprint("port-", i)
		}
		list = append(list, c)
	}
	return list
}

func TestAContractKeepsItsClass(t *testing.T) {
	list := many(2000)
	all := Minors(list)
	seen := map[uint16]bool{}
	for owner, minor := range all {
		if minor < firstMinor || minor >= leafOffset || seen[minor] {
			t.Fatalf("%s has minor %x", owner, minor)
		}
		seen[minor] = true
	}
	kept := 0
	for owner, minor := range Minors(list[:1000]) {
		if all[owner] == minor {
			kept++
		}
	}
	if kept < 900 { // the others' numbers are a sixteenth of all
		t.Errorf("only %d of 1000 kept their class when others went", kept)
	}
	reversed := make([]contract.Contract, 0, len(list))
	for i := range list {
		reversed = append(reversed, list[len(list)-1-i])
	}
	for owner, minor := range Minors(reversed) {
		if all[owner] != minor {
			t.Fatalf("%s has minor %x, and %x in another order", owner, all[owner], minor)
		}
	}
}

func TestEveryClassFitsItsRange(t *testing.T) {
	all := Minors(many(minors)) // as many as there are numbers
	if len(all) != minors {
		t.Fatalf("%d of %d contracts have a class", len(all), minors)
	}
	for owner, minor := range all {
		if leaf := minor + leafOffset; minor < firstMinor || minor >= firstMinor+minors || leaf >= 0x8000 {
			t.Fatalf("%s has minor %x and leaf %x", owner, minor, leaf)
		}
	}
}

func TestDesiredLeadsMatchesToTheLeafOfTheirContract(t *testing.T) {
	d := newDesired([]Link{link()}, set(t, pair()...))
	got := d.matches()
	if len(got) != 2 {
		t.Fatalf("matches %v", got)
	}
	for i, name := range []string{"a", "b"} {
		want := d.ReceiveClass(owner(name))
		if class := got[pair()[i].Matches[0]]; class != want || tc.Handle(class).Major() != Major {
			t.Errorf("%s: frames go to %x, want %x", name, class, want)
		}
	}
	if empty := newDesired(nil, nil); len(empty.matches()) != 0 || len(empty.minors) != 0 {
		t.Errorf("without contracts: %+v", empty)
	}
}

func TestPlanSharesSpareBandwidthByGuarantee(t *testing.T) {
	l, desired := link(), newDesired([]Link{link()}, set(t, pair()...))
	both := directions()
	got := plan(device{index: 7}, &l, desired, both[1], nil)
	if len(got.inner) != 1 || got.inner[0].Rate != 95*mbit || got.inner[0].Ceil != 95*mbit || len(got.leaves) != 4 {
		t.Fatalf("plan %+v", got)
	}
	minor := desired.minors
	for _, leaf := range got.leaves {
		held := queueBytes(leaf.class.Ceil)
		switch leaf.class.Handle.Minor() {
		case DefaultMinor:
			held = leastQueue
			if leaf.class.Rate != 95*mbit/100 || leaf.class.Ceil != 95*mbit {
				t.Errorf("default class %+v", leaf.class)
			}
		case lowerMinor:
			if leaf.class.Rate != 95*mbit/1000 || leaf.class.Ceil != 95*mbit || leaf.class.Quantum != frame {
				t.Errorf("class of lower effort %+v", leaf.class)
			}
		case minor[owner("a")] + leafOffset:
			if leaf.class.Rate != 71*mbit || leaf.class.Ceil != 95*mbit || leaf.class.Quantum != 60_000 {
				t.Errorf("class of a %+v", leaf.class)
			}
		case minor[owner("b")] + leafOffset:
			if leaf.class.Rate != 23*mbit || leaf.class.Ceil != 50*mbit || leaf.class.Quantum != 19_436 {
				t.Errorf("class of b %+v", leaf.class)
			}
		default:
			t.Errorf("class %+v", leaf.class)
		}
		if leaf.queue.Parent != leaf.class.Handle || uint64(leaf.queue.Limit) != held || leaf.queue.Kind != "bfifo" {
			t.Errorf("queue %+v", leaf.queue)
		}
	}
	got = plan(device{index: 7}, &l, desired, both[0], nil)
	if len(got.inner) != 3 || got.inner[1].Rate+got.inner[2].Rate != 80*mbit {
		t.Errorf("sending %+v", got.inner)
	}
	for _, leaf := range got.leaves[2:] {
		if leaf.class.Parent.Minor() != leaf.class.Handle.Minor()-leafOffset || leaf.class.Rate > mbit {
			t.Errorf("below a contract's class: %+v", leaf.class)
		}
	}
}

func TestPlanHasTheClassesOfLimitsBelowTheirContracts(t *testing.T) {
	l, desired := link(), newDesired([]Link{link()}, set(t, pair()...))
	limits := map[uint16]*limitClass{
		0x8003: {owner: owner("a"), rate: 3 * mbit},
		0x8001: {owner: owner("b"), rate: 1000 * mbit},
		0x8002: {owner: owner("gone"), rate: mbit},
	}
	both := directions()
	var found []string
	for _, leaf := range plan(device{index: 7}, &l, desired, both[0], limits).leaves {
		if leaf.class.Handle.Minor() < 0x8000 {
			continue
		}
		found = append(found, fmt.Sprintf("%s below %s, %d to %d, %s of %d bytes", leaf.class.Handle, leaf.class.Parent, leaf.class.Rate, leaf.class.Ceil, leaf.queue.Kind, leaf.queue.Limit))
	}
	want := []string{
		fmt.Sprintf("1150:8001 below %s, %d to %d, bfifo of 380000 bytes", tc.MakeHandle(Major, desired.minors[owner("b")]), 10*mbit, 95*mbit),
		fmt.Sprintf("1150:8003 below %s, %d to %d, bfifo of 262144 bytes", tc.MakeHandle(Major, desired.minors[owner("a")]), 3*mbit/100, 3*mbit),
	}
	if strings.Join(found, "\n") != strings.Join(want, "\n") {
		t.Errorf("classes of limits\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
	for _, leaf := range plan(device{index: 7}, &l, desired, both[1], limits).leaves {
		if leaf.class.Handle.Minor() >= 0x8000 {
			t.Errorf("a limit on what is sent has a class on the receiving side: %+v", leaf.class)
		}
	}
}

// TestPlanNeverPromisesMoreThanItsLink holds plans of random contracts to what HTB needs.
func TestPlanNeverPromisesMoreThanItsLink(t *testing.T) {
	for n := 1; n <= 64; n *= 2 {
		l := Link{Device: "up0", RateBytesPerSecond: uint64(n) * 10 * mbit, Headroom: 0.05}
		var list []contract.Contract
		for i := range n {
			c := contract.Contract{Owner: owner(fmt.Sprint("t", i)), Send: bandwidth(uint64(1+i%9), 100_000)}
			c.Receive = bandwidth(uint64(1+(i*7)%9), uint64(9+i))
			list = append(list, c)
		}
		contracts := set(t, list...)
		if err := Admit(&l, contracts); err != nil {
			t.Fatal(err)
		}
		for _, d := range directions() {
			got := plan(device{index: 1}, &l, newDesired([]Link{l}, contracts), d, nil)
			below := map[tc.Handle]uint64{} // guarantees by parent
			ceil := map[tc.Handle]uint64{}
			handles := map[tc.Handle]bool{}
			all := append([]tc.Class{}, got.inner...)
			for _, leaf := range got.leaves {
				all = append(all, leaf.class)
			}
			for _, c := range all {
				if handles[c.Handle] || c.Rate == 0 || c.Rate > c.Ceil || c.Quantum == 0 || c.Quantum > maxQuantum || c.Burst < minBurst {
					t.Fatalf("%d contracts %s: class %+v", n, d.verb, c)
				}
				handles[c.Handle], ceil[c.Handle] = true, c.Rate
				below[c.Parent] += c.Rate
			}
			for parent, sum := range below {
				if parent.Minor() != 0 && sum > ceil[parent] {
					t.Errorf("%d contracts %s: below %s %d of %d bytes per second are guaranteed", n, d.verb, parent, sum, ceil[parent])
				}
			}
		}
	}
}
