package pathmtu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Bounds of the sizes of packets, in bytes with the IP header.
const (
	// LeastSize is the smallest packet that has room for all that a probe
	// carries, over both versions of IP and in both modes of STAMP.
	LeastSize = 256
	// GreatestSize is the largest IPv4 packet.
	GreatestSize = 65535
	// DefaultMin is what every IPv4 host takes (RFC 791), DefaultMax what
	// devices with jumbo frames commonly do.
	DefaultMin = 576
	DefaultMax = 9216
)

// Limits are the smallest and the largest packet to try, in bytes with the IP header, and how
// many packets a search has at most: MaxPackets where that is 0.
type Limits struct{ Min, Max, Packets int }

// Outcome is how a search ended.
type Outcome string

// The outcomes.
const (
	Found       Outcome = "found"
	Unreachable Outcome = "unreachable" // not even the smallest size is answered
	Unsettled   Outcome = "unsettled"   // too much loss, or it took too many probes or too long
	Failed      Outcome = "failed"      // this host could not search
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome { return []Outcome{Found, Unreachable, Unsettled, Failed} }

// Result is what a search found.
type Result struct {
	Outcome Outcome
	MTU     int  // in bytes with the IP header; 0 unless found
	AtMax   bool // MTU is the largest size that was to be tried, so the path may carry more
	// Reported is the smallest MTU that the kernel or an ICMP message reported;
	// 0 when none did.
	Reported int
	Probes   int // packets sent
	Duration time.Duration
	Err      error // why nothing was found
}

// attempt is what became of one probe of a size.
type attempt struct {
	controlArrived bool  // a small probe came through after it
	reported       int   // MTU that the kernel or an ICMP message reported meanwhile; 0 for none
	largest        int   // size of the largest probe known to have arrived, ever
	err            error // what was said of it, other than its size
}

// link carries probes.
type link interface {
	// try sends a probe of size bytes and waits for it; and when nothing shows
	// that it arrived, sends small ones.
	try(ctx context.Context, size int) attempt
	// loss returns how many probes that fit were sent, and how many of them were
	// not answered.
	loss() (sent, lost int)
	// packets returns how many packets were sent.
	packets() int
}

const (
	// Tries of a size before it counts as too large: as many as make it less
	// likely than misjudge that loss alone took all of them, within these bounds
	// (MAX_PROBES of RFC 8899 section 5.1.2 is 3).
	minTries = 3
	maxTries = 12
	misjudge = 1e-5
	// firstProbes is how many probes of the smallest size come first, to learn the
	// round-trip time and the loss.
	firstProbes = 10
	// maxSilence is how many tries without a control probe that arrives end the search.
	maxSilence = 8
	// maxLoss is the share of small probes whose loss makes sizes impossible to
	// judge, once enoughProbes were sent.
	maxLoss      = 0.6
	enoughProbes = 20
	// maxReports is how many reported sizes are tried: anyone can send ICMP.
	maxReports = 4
	// MaxPackets is how many packets a search takes at most.
	MaxPackets = 1000
	// spacing is the time between two tries, as losses come in bursts.
	spacing = 10 * time.Millisecond
)

var (
	errSilent = errors.New("no probe of the smallest size was answered")
	errBroken = errors.New("the path broke during the search: small probes were not answered any more")
	errLossy  = errors.New("too many small probes were lost to judge the others")
	errBudget = errors.New("not settled after")
)

// search is one search.
type search struct {
	link   link
	limits Limits
	fits   int // the largest size that arrived; 0 for none
	excess int // the smallest size that counts as too large

	hint     int          // reported MTU to try next; 0 for none
	reports  map[int]bool // those tried
	reported int          // the smallest
	verify   bool         // the size after fits is next: fits was reported
	began    bool         // the largest size was tried
}

// run searches until the sizes that fit and those that do not meet.
func run(ctx context.Context, l link, limits Limits) Result {
	s := &search{link: l, limits: limits, excess: limits.Max + 1, reports: make(map[int]bool)}
	err := s.checkReachable(ctx)
	for err == nil && s.fits+1 < s.excess {
		err = s.judge(ctx, s.next())
	}
	r := Result{Outcome: Found, MTU: s.fits, AtMax: s.fits == limits.Max, Reported: s.reported, Probes: l.packets(), Err: err}
	if err != nil {
		r.Outcome, r.MTU, r.AtMax = Unsettled, 0, false
		if errors.Is(err, errSilent) || errors.Is(err, context.DeadlineExceeded) && s.fits == 0 {
			r.Outcome = Unreachable
		}
	}
	return r
}

// checkReachable learns whether the smallest size arrives.
func (s *search) checkReachable(ctx context.Context) error {
	var last error
	for i := 0; i < 2*firstProbes && (s.fits > 0 || i < maxSilence); i++ {
		a := s.link.try(ctx, s.limits.Min)
		if err := ctx.Err(); err != nil {
			return err
		}
		s.learn(&a)
		last = a.err
		if sent, lost := s.link.loss(); sent-lost >= firstProbes && s.fits > 0 {
			return nil
		}
		pause(ctx)
	}
	switch {
	case s.fits > 0:
		return nil
	case last != nil:
		return fmt.Errorf("%w: %w", errSilent, last)
	}
	return errSilent
}

// next chooses the size to try: what was reported, the largest, or the middle.
func (s *search) next() int {
	inside := func(size int) bool { return size > s.fits && size < s.excess }
	switch hint := s.hint; {
	case inside(hint):
		s.hint, s.verify = 0, true
		return hint
	case s.verify && inside(s.fits+1):
		s.verify = false
		return s.fits + 1
	case !s.began:
		s.began = true
		return s.limits.Max
	}
	return s.fits + (s.excess-s.fits+1)/2
}

// judge tries a size until it arrives, counts as too large, or another size was
// reported that is worth a try first.
func (s *search) judge(ctx context.Context, size int) error {
	failures, silence := 0, 0
	for {
		a := s.link.try(ctx, size)
		if err := ctx.Err(); err != nil {
			return err
		}
		s.learn(&a)
		sent, lost := s.link.loss()
		switch {
		case s.fits >= size:
			return nil
		case s.link.packets() >= cmp.Or(s.limits.Packets, MaxPackets):
			return fmt.Errorf("%w %d packets", errBudget, s.link.packets())
		case sent >= enoughProbes && float64(lost) > maxLoss*float64(sent):
			return errLossy
		case a.controlArrived:
			failures, silence = failures+1, 0
		default:
			if silence++; silence == maxSilence {
				return errors.Join(errBroken, a.err)
			}
		}
		if failures >= tries(sent, lost) {
			s.excess = min(s.excess, size)
			return nil
		}
		if s.hint > s.fits && s.hint < size {
			return nil
		}
		pause(ctx)
	}
}

// learn takes what an attempt showed.
func (s *search) learn(a *attempt) {
	s.fits = max(s.fits, a.largest)
	if s.fits >= s.excess { // the path has changed, or the verdict was wrong
		s.excess = s.limits.Max + 1
	}
	if a.reported == 0 {
		return
	}
	if s.reported == 0 || a.reported < s.reported {
		s.reported = a.reported
	}
	if !s.reports[a.reported] && len(s.reports) < maxReports {
		s.reports[a.reported] = true
		s.hint = a.reported
	}
}

// tries returns how many failures make a size too large, given how many of the
// probes that fit were lost (estimated by Laplace's rule of succession).
func tries(sent, lost int) int {
	p := float64(lost+1) / float64(sent+2)
	return min(max(int(math.Ceil(math.Log(misjudge)/math.Log(p))), minTries), maxTries)
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(spacing):
	}
}
