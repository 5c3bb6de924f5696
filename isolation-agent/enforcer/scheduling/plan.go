package scheduling

import (
	"cmp"
	"math"
	"slices"
	"time"

	"vigia/internal/tc"
	"vigia/isolation-agent/enforcer/contract"
)

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

// device is where classes are made.
type device struct {
	index   int
	largest uint64 // bytes of a packet that offload has not cut yet
}

// plan returns the classes of a device for one direction, limits' classes among them.
func plan(dev device, l *Link, desired *Desired, d direction, limits map[uint16]*limitClass) tree {
	limit := l.Limit()
	root := class(dev.index, tc.MakeHandle(Major, 0), rootMinor, contract.Bandwidth{GuaranteeBytesPerSecond: limit, CeilingBytesPerSecond: limit}, maxQuantum)
	t := tree{inner: []tc.Class{root}}
	list := desired.Contracts.All()
	top := uint64(1)
	for i := range list {
		top = max(top, d.bandwidth(&list[i]).GuaranteeBytesPerSecond)
	}
	add := func(minor uint16, b contract.Bandwidth, divided bool) {
		b.CeilingBytesPerSecond = min(b.CeilingBytesPerSecond, limit)
		b.GuaranteeBytesPerSecond = min(b.GuaranteeBytesPerSecond, b.CeilingBytesPerSecond)
		// Spare bandwidth is shared out as the guarantees are.
		quantum := uint32(min(max(b.GuaranteeBytesPerSecond*maxQuantum/top, frame), maxQuantum))
		parent := root.Handle
		if divided {
			c := class(dev.index, parent, minor, b, quantum)
			t.inner = append(t.inner, c)
			parent, minor, b.GuaranteeBytesPerSecond = c.Handle, minor+leafOffset, ownShare(b.GuaranteeBytesPerSecond)
		}
		held := queueBytes(b.CeilingBytesPerSecond)
		if minor == DefaultMinor { // probes meet it
			held = leastBytes(b.CeilingBytesPerSecond)
		}
		t.leaves = append(t.leaves, newLeaf(class(dev.index, parent, minor, b, quantum), max(held, 2*dev.largest)))
	}
	add(DefaultMinor, contract.Bandwidth{GuaranteeBytesPerSecond: max(limit/defaultsShare, 1), CeilingBytesPerSecond: limit}, false)
	// Bulk tests and the like have a queue of their own, so that what probes meet is not the operator's own doing, and
	// next to no guarantee: they have what is left.
	add(lowerMinor, contract.Bandwidth{GuaranteeBytesPerSecond: max(limit/lowersShare, leastRate), CeilingBytesPerSecond: limit}, false)
	for i := range list {
		minor := desired.minors[list[i].Owner]
		if !d.divided {
			minor += leafOffset
		}
		add(minor, d.bandwidth(&list[i]), d.divided)
	}
	if d.divided {
		for minor, c := range limits {
			if parent, known := desired.minors[c.owner]; known {
				t.leaves = append(t.leaves, limitLeaf(dev, l, parent, minor, c.rate))
			}
		}
	}
	slices.SortFunc(t.leaves, func(a, b leaf) int { return cmp.Compare(a.class.Handle, b.class.Handle) })
	return t
}

// ownShare is what a class below a contract's has by itself: next to nothing, so
// that the contract's class decides.
func ownShare(guarantee uint64) uint64 { return max(guarantee/defaultsShare, 1) }

func class(device int, parent tc.Handle, minor uint16, b contract.Bandwidth, quantum uint32) tc.Class {
	burst := b.CeilingBytesPerSecond / uint64(time.Second/burstTime)
	return tc.Class{
		Link: device, Handle: tc.MakeHandle(Major, minor), Parent: parent, Kind: "htb", Rate: b.GuaranteeBytesPerSecond, Ceil: b.CeilingBytesPerSecond,
		Burst: uint32(min(max(minBurst, burst), math.MaxUint32)), Quantum: quantum,
	}
}

func newLeaf(c tc.Class, bytes uint64) leaf {
	limit := uint32(min(bytes, math.MaxUint32))
	return leaf{c, tc.Qdisc{Link: c.Link, Handle: tc.MakeHandle(c.Handle.Minor(), 0), Parent: c.Handle, Kind: "bfifo", Limit: limit}}
}

// same reports whether a class is as wanted. The kernel keeps an inner class's quantum as it was before the class had
// others below it: HTB uses those of leaves alone.
func same(want, got *tc.Class, inner bool) bool {
	parent := want.Parent == got.Parent || (want.Parent.Minor() == 0 && got.Parent == tc.Root)
	quantum := inner || want.Quantum == got.Quantum
	return parent && want.Rate == got.Rate && want.Ceil == got.Ceil && quantum && want.KeptBurst() == got.Burst
}
