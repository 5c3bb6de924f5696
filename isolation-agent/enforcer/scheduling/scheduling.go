// Package scheduling turns contracts into HTB classes: on the egress of a node's
// uplinks for what tenants send, and on an IFB device behind their ingress for what
// they receive, where delivery is held slightly below the link's rate so that the
// queue, and with it demand, is here and visible.
//
// Everything is compared with the kernel and put right again; nothing of another
// owner is touched. The package owns the numbers of all classes: those of contracts
// (Minors) and those of limits, which Reconciler.SetLimitClass hands out.
package scheduling

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"vigia/internal/bpf/classify"
	"vigia/internal/bpf/vport"
	"vigia/internal/tc"
	"vigia/isolation-agent/enforcer/contract"
)

// Link is an uplink of the node.
type Link struct {
	Device             string
	RateBytesPerSecond uint64  // each way
	Headroom           float64 // share of the rate that is never given out
}

// Limit returns what is given out of the link, LIM_IN and LIM_OUT, in bytes per second.
func (l *Link) Limit() uint64 { return uint64(float64(l.RateBytesPerSecond) * (1 - l.Headroom)) }

// DropThreshold returns D: half of the headroom, in bytes per second.
func (l *Link) DropThreshold() uint64 {
	return uint64(float64(l.RateBytesPerSecond) * l.Headroom / 2)
}

// What handles we own. The major number marks a qdisc as ours.
const (
	Major          = vport.ClassMajor
	filterPriority = 0xA150
	filterHandle   = 1
	filterName     = "vigia"
	rootMinor      = 1
	DefaultMinor   = 2 // what belongs to no contract
	lowerMinor     = uint16(classify.LowerEffort & 0xffff)
	firstMinor     = 0x0100
	minors         = 0x3f00
	// A contract's own class holds its guarantee; below it, on the sending side,
	// are one class for what no limit shapes, and one for each limit that does.
	leafOffset = 0x4000
)

// MaxContracts is how many contracts have classes at most.
const MaxContracts = minors

const (
	frame         = 1514          // bytes
	leastQueue    = 2 * 64 << 10  // bytes
	tcpQueue      = 12 * 64 << 10 // bytes
	tcpTime       = 32 * time.Millisecond
	queueTime     = 2 * time.Millisecond
	burstTime     = 10 * time.Millisecond // what a switch on a shared processor may be away, and then catches up with
	minBurst      = 16 << 10
	maxQuantum    = 60_000
	defaultsShare = 100 // the default class is guaranteed this part of the link
	lowersShare   = 1000
	leastRate     = 128 // bytes per second; below it a burst is more ticks than HTB counts
)

// DefaultClass is the class of what belongs to no contract, as major:minor.
const DefaultClass = uint32(Major)<<16 | DefaultMinor

// queueBytes returns how many bytes of frames a contract's class of that rate may hold, so that TCP is slowed and not
// cut: 32 ms of them, as far as that is twelve bursts of 64 KiB, in which ten flows of BBR have their windows.
func queueBytes(bytesPerSecond uint64) uint64 {
	return max(min(tcpQueue, lasting(bytesPerSecond, tcpTime)), leastBytes(bytesPerSecond))
}

// leastBytes returns what any class may hold: 2 ms, as the 160 packets of Gatekeeper's authors are at 1 Gbit/s, and
// twice what segmentation offload hands over at once.
func leastBytes(bytesPerSecond uint64) uint64 {
	return max(leastQueue, lasting(bytesPerSecond, queueTime))
}

func lasting(bytesPerSecond uint64, d time.Duration) uint64 {
	return bytesPerSecond / 1000 * uint64(d/time.Millisecond)
}

// IFBName returns the name of the device behind an uplink's ingress.
func IFBName(link int) string { return fmt.Sprintf("%s%d", classify.IFBPrefix, link) }

// Guarantees are what a link has left to guarantee, in bytes per second. Directions are the tenant's.
type Guarantees struct{ Send, Receive uint64 }

// Available returns what a link has to guarantee: its limit less the default class's part.
func Available(l *Link) Guarantees {
	available := l.Limit() - l.Limit()/defaultsShare
	return Guarantees{available, available}
}

// Has says whether there is as much as a contract guarantees.
func (g *Guarantees) Has(c *contract.Contract) bool {
	return c.Send.GuaranteeBytesPerSecond <= g.Send && c.Receive.GuaranteeBytesPerSecond <= g.Receive
}

// Sub takes away what a contract guarantees, at most all there is.
func (g *Guarantees) Sub(c *contract.Contract) {
	g.Send -= min(g.Send, c.Send.GuaranteeBytesPerSecond)
	g.Receive -= min(g.Receive, c.Receive.GuaranteeBytesPerSecond)
}

// Add gives back what a contract guaranteed that was taken away whole.
func (g *Guarantees) Add(c *contract.Contract) {
	g.Send += c.Send.GuaranteeBytesPerSecond
	g.Receive += c.Receive.GuaranteeBytesPerSecond
}

// Admit checks that a link has what the contracts guarantee. Directions are named as
// the tenant sees them.
func Admit(l *Link, contracts *contract.Set) error {
	available := Available(l).Send
	list := contracts.All()
	for _, d := range directions() {
		var sum uint64
		for i := range list {
			sum += d.bandwidth(&list[i]).GuaranteeBytesPerSecond
		}
		if sum > available {
			return fmt.Errorf("link %s guarantees %d bytes per second %s, but has %d to give (rate less headroom and 1%% for what has no contract)",
				l.Device, sum, d.verb, available)
		}
	}
	return nil
}

type direction struct {
	verb      string
	bandwidth func(*contract.Contract) contract.Bandwidth
	divided   bool // limits shape parts of a contract
}

func directions() [2]direction {
	return [2]direction{
		{"to send", func(c *contract.Contract) contract.Bandwidth { return c.Send }, true},
		{"to receive", func(c *contract.Contract) contract.Bandwidth { return c.Receive }, false},
	}
}

// Minors gives every contract the minor number of its class. A contract keeps its
// number whatever else is in the list, but for collisions.
func Minors(list []contract.Contract) map[contract.Owner]uint16 {
	owners := make([]contract.Owner, len(list))
	names := make(map[contract.Owner]string, len(list))
	for i := range list {
		owners[i] = list[i].Owner
		names[list[i].Owner] = list[i].String()
	}
	slices.SortFunc(owners, func(a, b contract.Owner) int { return cmp.Compare(names[a], names[b]) })
	out := make(map[contract.Owner]uint16, len(list))
	taken := make(map[uint16]bool, len(list))
	for _, owner := range owners {
		h := fnv.New32a()
		h.Write([]byte(names[owner]))
		n := uint16(h.Sum32() % minors)
		for taken[n] {
			n = (n + 1) % minors
		}
		taken[n] = true
		out[owner] = firstMinor + n
	}
	return out
}

// leafClass returns the class that a contract's frames go to, as major:minor.
func leafClass(minor uint16) uint32 { return uint32(tc.MakeHandle(Major, minor+leafOffset)) }

// Desired is what the uplinks shall have. It never changes; Set makes another one.
type Desired struct {
	Links     []Link
	Contracts *contract.Set
	minors    map[contract.Owner]uint16
}

func newDesired(links []Link, contracts *contract.Set) *Desired {
	return &Desired{Links: links, Contracts: contracts, minors: Minors(contracts.All())}
}

// ReceiveClass returns the class behind an uplink's ingress that a contract's frames
// go to, as major:minor.
func (d *Desired) ReceiveClass(owner contract.Owner) uint32 { return leafClass(d.minors[owner]) }

// matches returns which class every match leads to.
func (d *Desired) matches() map[classify.Match]uint32 {
	out := make(map[classify.Match]uint32)
	list := d.Contracts.All()
	for i := range list {
		for _, m := range list[i].Matches {
			out[m] = leafClass(d.minors[list[i].Owner])
		}
	}
	return out
}

// owners returns whose every class is, for those who read what classes drop.
func (d *Desired) owners() map[uint32]classify.Owner {
	list := d.Contracts.All()
	out := make(map[uint32]classify.Owner, len(list))
	for i := range list {
		out[leafClass(d.minors[list[i].Owner])] = classify.Owner(list[i].Owner)
	}
	return out
}
