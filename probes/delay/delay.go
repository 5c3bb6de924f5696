// Package delay turns the four time stamps of a probe into delays.
//
// The stamps are named as in RFC 5905: T1 when the probe left, T2 when it reached
// the reflector, T3 when the answer left it, T4 when the answer arrived. T1 and
// T4 are of one clock, T2 and T3 of another; nothing here needs the two to agree.
package delay

// Stamps are the time stamps of one probe, in nanoseconds since 1970.
type Stamps struct {
	T1, T2, T3, T4 int64
	// Kernel tells which of the stamps the kernel took, or the device.
	Kernel Points
	// Source is what took the stamps of the sample, at both ends, once Choose has
	// decided; Far is what took T2 and T3.
	Source, Far Source
	// Device1 and Device4 are the sender's device's stamps of T1 and T4, of its
	// own clock; 0 when there is none.
	Device1, Device4 int64
	// kernelTime is T4-T1 by the kernel's stamps when the device's are used.
	kernelTime int64
	// OneClock tells that T2 and T3 are not known, and taken to be the same
	// moment: the answer is made by the other kernel, as to an ICMP echo.
	OneClock bool
	// SentSteps and ReceivedSteps count the steps of our clock before the
	// probe was sent and after its answer was received.
	SentSteps, ReceivedSteps uint32
}

// Points is a set of the four points.
type Points uint8

// The four points.
const (
	T1 Points = 1 << iota
	T2
	T3
	T4
	allPoints = T1 | T2 | T3 | T4
)

// Verdict says whether a sample may enter the statistics.
type Verdict uint8

// The verdicts; all but Good keep a sample out.
const (
	Good          Verdict = iota
	NoKernelStamp         // at one point or more there is none
	ClockStep             // our clock was stepped between sending and receiving
	Implausible           // the stamps contradict each other
	MixedSource           // they are of sources that must not be compared
	NumVerdicts   = iota
)

// String returns the verdict as the label value reason.
func (v Verdict) String() string {
	return [NumVerdicts]string{"good", "no_kernel_stamp", "clock_step", "implausible", "mixed_source"}[v]
}

// Verdict judges the stamps.
func (s *Stamps) Verdict() Verdict {
	switch {
	case s.Kernel != allPoints:
		return NoKernelStamp
	case s.SentSteps != s.ReceivedSteps || s.deviceStepped():
		return ClockStep
	case s.Source != s.Far && !s.OneClock:
		return MixedSource
	case s.T4 < s.T1 || s.Residence() < 0 || s.RTT() < 0:
		return Implausible
	}
	return Good
}

// RTT returns the round-trip time without the time spent in the reflector.
func (s *Stamps) RTT() int64 { return s.T4 - s.T1 - s.Residence() }

// Residence returns the time spent in the reflector.
func (s *Stamps) Residence() int64 { return s.T3 - s.T2 }

// Direction is one of the ways a delay can vary.
type Direction uint8

// The directions.
const (
	Forward Direction = iota
	Reverse
	RoundTrip
	NumDirections = iota
)

// String returns the direction as the label value direction.
func (d Direction) String() string {
	return [NumDirections]string{"forward", "reverse", "roundtrip"}[d]
}

// Variation returns how much longer the probe took than the one sent before it,
// in each direction, in nanoseconds: IPDV of consecutive packets (RFC 3393
// section 4.2). The offset between the two clocks cancels out. ok is false when
// our clock was stepped between the two, or their stamps are of different sources.
// Both samples must be good. Of stamps of one clock the two ways are 0.
func Variation(before, s *Stamps) (v [NumDirections]int64, ok bool) {
	if before.SentSteps != s.SentSteps || before.Source != s.Source {
		return v, false
	}
	v[RoundTrip] = s.RTT() - before.RTT()
	if s.OneClock {
		return v, true
	}
	v[Forward] = (s.T2 - s.T1) - (before.T2 - before.T1)
	v[Reverse] = (s.T4 - s.T3) - (before.T4 - before.T3)
	return v, true
}

// jitterGain is the gain of RFC 3550 section 6.4.1.
const jitterGain = 1.0 / 16

// Jitter is the smoothed jitter of RFC 3550 section 6.4.1, of round-trip times in
// the order in which they become known.
type Jitter struct {
	value float64 // nanoseconds
	last  int64
	any   bool
}

// Add takes the next round-trip time in nanoseconds.
func (j *Jitter) Add(rtt int64) {
	if j.any {
		d := rtt - j.last
		j.value += (float64(max(d, -d)) - j.value) * jitterGain
	}
	j.last, j.any = rtt, true
}

// Seconds returns the jitter in seconds; 0 before the second sample.
func (j *Jitter) Seconds() float64 { return j.value / 1e9 }
