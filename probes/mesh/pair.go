package mesh

import (
	"math/bits"
	"time"
)

// Outcome is what a settled probe says of the way to a peer and back.
type Outcome uint8

// The outcomes.
const (
	Fine    Outcome = iota // answered
	Slow                   // answered later than the objective
	Lost                   // not answered, and no fault of a socket's buffer
	Nothing                // no evidence: dropped at a socket of either end
)

// When a pair is bad, and when a peer is out of reach.
const (
	// Of the last window probes of a pair, badLost lost or badSlow slow make it bad.
	window  = 32
	badLost = 2
	badSlow = 8
	// hold is for how long a pair stays bad after it was last found so: long enough for
	// twenty scrapes, so that its series do not come and go.
	hold = 5 * time.Minute
	// A peer is out of reach after unreachableRun losses in a row that take
	// unreachableFor at least, and doubted after doubtRun: whoever judges many pairs at
	// once sees those of which it will say so a moment later.
	unreachableRun = 3
	unreachableFor = 1500 * time.Millisecond
	doubtRun       = 2
	// patience is how long evidence holds after a probe was due.
	patience = 5 * time.Second
)

// Pair is the evidence of one pair. The zero value has none.
type Pair struct {
	lost, slow uint32 // the last probes, the latest in bit 0
	run        uint32 // losses in a row
	began      int64  // when the first of them was settled
	last       int64  // when the last probe was
	badAt      int64  // when the pair was last found bad
	everBad    bool
}

// Settled takes a probe that was settled at a time, in nanoseconds of any clock.
func (p *Pair) Settled(o Outcome, now int64) {
	if o == Nothing {
		return
	}
	p.lost, p.slow, p.last = p.lost<<1, p.slow<<1, now
	switch o {
	case Lost:
		p.lost |= 1
		if p.run++; p.run == 1 {
			p.began = now
		}
	case Slow:
		p.slow |= 1
		p.run = 0
	default:
		p.run = 0
		if p.lost|p.slow == 0 {
			return
		}
	}
	if bits.OnesCount32(p.lost) >= badLost || bits.OnesCount32(p.slow) >= badSlow {
		p.badAt, p.everBad = now, true
	}
}

// Bad reports whether the pair lost or delayed too much, now or not long ago.
func (p *Pair) Bad(now int64) bool { return p.everBad && now-p.badAt <= int64(hold) }

// Severity orders pairs by how bad they are; 0 is fine.
func (p *Pair) Severity() int {
	return 2*bits.OnesCount32(p.lost) + bits.OnesCount32(p.slow)
}

// Unreachable reports whether the peer does not answer. interval is that of the probes.
func (p *Pair) Unreachable(now int64, interval time.Duration) bool {
	return p.run >= unreachableRun && p.last-p.began >= int64(unreachableFor) && p.fresh(now, interval)
}

// Doubtful reports whether the peer is likely to be out of reach; whatever is unreachable is
// doubtful, too.
func (p *Pair) Doubtful(now int64, interval time.Duration) bool {
	return p.run >= doubtRun && p.fresh(now, interval)
}

func (p *Pair) fresh(now int64, interval time.Duration) bool {
	return now-p.last <= int64(3*interval+patience)
}
