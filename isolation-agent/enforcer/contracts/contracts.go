// Package contracts turns what tenants bought into HTB classes: on the egress of
// a node's uplink for what they send, and on an IFB device behind its ingress for
// what they receive, where delivery is held slightly below the link's rate so that
// the queue, and with it demand, is here and visible.
//
// Everything is compared with the kernel and put right again; nothing of another
// owner is touched.
package contracts

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"vigia/internal/bpf/classify"
	"vigia/internal/bpf/vport"
	"vigia/internal/tc"
)

// Rates are what one direction of a contract is worth, in bytes per second.
type Rates struct {
	Guarantee uint64
	Ceiling   uint64
}

// Contract is what a tenant, or one port of it, bought.
type Contract struct {
	Name    string // see Name
	Tenant  string
	Port    string // empty: it is for all of the tenant's ports that have none of their own
	Send    Rates
	Receive Rates
	Matches []classify.Match
}

// Name identifies the contract of a tenant, or of one port of it, on a node.
func Name(tenant, port string) string {
	if port == "" {
		return tenant
	}
	return tenant + "/" + port
}

// Link is an uplink of the node.
type Link struct {
	Device   string
	Rate     uint64  // bytes per second, each way
	Headroom float64 // share of the rate that is never given out
}

// Limit returns what is given out of the link, LIM_IN and LIM_OUT.
func (l *Link) Limit() uint64 { return uint64(float64(l.Rate) * (1 - l.Headroom)) }

// DropThreshold returns D: half of the headroom, in bytes per second.
func (l *Link) DropThreshold() uint64 { return uint64(float64(l.Rate) * l.Headroom / 2) }

// What handles we own. The major number marks a qdisc as ours.
const (
	Major          = vport.ClassMajor
	filterPriority = 0xA150
	filterHandle   = 1
	filterName     = "vigia"
	rootMinor      = 1
	DefaultMinor   = 2 // what belongs to no contract
	firstMinor     = 0x0100
	minors         = 0x3f00
	// A contract's own class holds its guarantee; below it, on the sending side,
	// are one class for what no limit shapes, and one for each limit that does.
	leafOffset = 0x4000
	shapeMinor = vport.FirstShape
	shapes     = vport.Shapes
)

const (
	frame         = 1514 // bytes
	minQueue      = 32   // packets
	queueTime     = 2 * time.Millisecond
	burstTime     = 4 * time.Millisecond
	minBurst      = 16 << 10
	maxQuantum    = 60_000
	defaultsShare = 100 // the default class is guaranteed this part of the link
)

// DefaultClass is the class of what belongs to no contract, as major:minor.
const DefaultClass = uint32(Major)<<16 | DefaultMinor

// QueueLimit returns how many packets a class of that rate may hold: 2 ms of them,
// as the 160 packets of Gatekeeper's authors are at 1 Gbit/s, and never under 32.
func QueueLimit(rate uint64) uint32 {
	return uint32(max(minQueue, rate*uint64(queueTime)/uint64(time.Second)/1500))
}

// QueueBytes returns what QueueLimit is in bytes of full frames.
func QueueBytes(rate uint64) uint64 { return uint64(QueueLimit(rate)) * frame }

// Admit checks that a link has what the contracts guarantee. Direction is named
// as the tenant sees it.
func Admit(l *Link, list []Contract) error {
	available := l.Limit() - l.Limit()/defaultsShare
	for _, d := range directions() {
		var sum uint64
		for i := range list {
			sum += d.rates(&list[i]).Guarantee
		}
		if sum > available {
			return fmt.Errorf("link %s guarantees %d bytes per second %s, but has %d to give (rate less headroom and 1%% for what has no contract)",
				l.Device, sum, d.verb, available)
		}
	}
	return nil
}

type direction struct {
	verb    string
	rates   func(*Contract) Rates
	divided bool // limits shape parts of a contract
}

func directions() [2]direction {
	return [2]direction{
		{"to send", func(c *Contract) Rates { return c.Send }, true},
		{"to receive", func(c *Contract) Rates { return c.Receive }, false},
	}
}

// Minors gives every contract the minor number of its class. A name keeps its
// number whatever else is in the list, but for collisions.
func Minors(list []Contract) map[string]uint16 {
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].Name
	}
	slices.Sort(names)
	out := make(map[string]uint16, len(list))
	taken := make(map[uint16]bool, len(list))
	for _, name := range names {
		h := fnv.New32a()
		h.Write([]byte(name))
		n := uint16(h.Sum32() % minors)
		for taken[n] {
			n = (n + 1) % minors
		}
		taken[n] = true
		out[name] = firstMinor + n
	}
	return out
}

// Matches returns which class every match leads to.
func Matches(list []Contract) map[classify.Match]uint32 {
	minor := Minors(list)
	out := make(map[classify.Match]uint32)
	for i := range list {
		for _, m := range list[i].Matches {
			out[m] = LeafClass(minor[list[i].Name])
		}
	}
	return out
}

// LeafClass returns the class that a contract's frames go to, as major:minor.
func LeafClass(minor uint16) uint32 { return uint32(tc.MakeHandle(Major, minor+leafOffset)) }

// leaf is a class with the queue below it.
type leaf struct {
	class tc.Class
	queue tc.Qdisc
}

// tree is what one device shall have. Inner classes are made before leaves.
type tree struct {
	inner  []tc.Class
	leaves []leaf
}

// plan returns the classes of a device for one direction.
func plan(device int, l *Link, list []Contract, d direction) tree {
	limit := l.Limit()
	root := class(device, tc.MakeHandle(Major, 0), rootMinor, Rates{limit, limit}, maxQuantum)
	t := tree{inner: []tc.Class{root}}
	top := uint64(1)
	for i := range list {
		top = max(top, d.rates(&list[i]).Guarantee)
	}
	add := func(minor uint16, r Rates, divided bool) {
		r.Ceiling = min(r.Ceiling, limit)
		r.Guarantee = min(r.Guarantee, r.Ceiling)
		// Spare bandwidth is shared out as the guarantees are.
		quantum := uint32(min(max(r.Guarantee*maxQuantum/top, frame), maxQuantum))
		parent := root.Handle
		if divided {
			c := class(device, parent, minor, r, quantum)
			t.inner = append(t.inner, c)
			parent, minor, r.Guarantee = c.Handle, minor+leafOffset, ownShare(r.Guarantee)
		}
		t.leaves = append(t.leaves, newLeaf(class(device, parent, minor, r, quantum), "pfifo", QueueLimit(r.Ceiling)))
	}
	add(DefaultMinor, Rates{max(limit/defaultsShare, 1), limit}, false)
	minor := Minors(list)
	for i := range list {
		m := minor[list[i].Name]
		if !d.divided {
			m += leafOffset
		}
		add(m, d.rates(&list[i]), d.divided)
	}
	slices.SortFunc(t.leaves, func(a, b leaf) int { return cmp.Compare(a.class.Handle, b.class.Handle) })
	return t
}

// ownShare is what a class below a contract's has by itself: next to nothing, so
// that the contract's class decides.
func ownShare(guarantee uint64) uint64 { return max(guarantee/defaultsShare, 1) }

func class(device int, parent tc.Handle, minor uint16, r Rates, quantum uint32) tc.Class {
	return tc.Class{
		Link: device, Handle: tc.MakeHandle(Major, minor), Parent: parent, Kind: "htb", Rate: r.Guarantee, Ceil: r.Ceiling,
		Burst: uint32(max(minBurst, r.Ceiling*uint64(burstTime)/uint64(time.Second))), Quantum: quantum,
	}
}

func newLeaf(c tc.Class, kind string, limit uint32) leaf {
	return leaf{c, tc.Qdisc{Link: c.Link, Handle: tc.MakeHandle(c.Handle.Minor(), 0), Parent: c.Handle, Kind: kind, Limit: limit}}
}

// same tells whether a class is as wanted. The kernel keeps bursts in ticks of
// 64 ns, so that they come back slightly off.
func same(want, got *tc.Class) bool {
	off := max(want.Burst, got.Burst) - min(want.Burst, got.Burst)
	parent := want.Parent == got.Parent || (want.Parent.Minor() == 0 && got.Parent == tc.Root)
	return parent && want.Rate == got.Rate && want.Ceil == got.Ceil && want.Quantum == got.Quantum && off <= want.Burst/8+uint32(want.Rate>>23)+64
}
