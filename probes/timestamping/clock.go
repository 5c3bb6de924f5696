package timestamping

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stepThreshold is how far the real-time clock must have moved against
	// the monotonic one, beyond what reading them may be off, to be called a
	// step. Slewing (adjtimex(2)) moves both alike.
	stepThreshold = time.Microsecond
	// goodReading is the time between two readings of the clock that is short
	// enough to be content with; a preempted reading takes longer.
	goodReading = 500 * time.Nanosecond
	maxReadings = 3
)

// Clock relates CLOCK_MONOTONIC, which schedules and deadlines use, to
// CLOCK_REALTIME, which software time stamps use, and notices when the latter
// is stepped. All times are nanoseconds. It is not safe for concurrent use.
type Clock struct {
	now         func() (monotonic int64)
	read        func() (monotonic, realtime int64)
	offset      int64 // realtime - monotonic
	uncertainty int64 // of offset, at most
	steps       uint32
}

// NewClock returns a clock that has been read once.
func NewClock() (*Clock, error) {
	base := time.Now()
	monotonicBase, err := monotonicAt(base)
	if err != nil {
		return nil, err
	}
	return NewClockFrom(func() int64 {
		return monotonicBase + int64(time.Since(base)) // reads one clock, at half the price of both
	}, func() (int64, int64) {
		now := time.Now()
		return monotonicBase + int64(now.Sub(base)), now.UnixNano()
	}), nil
}

// NewClockFrom returns a clock that reads the monotonic clock through now and both
// through read, in nanoseconds, the monotonic one first.
func NewClockFrom(now func() (monotonic int64), read func() (monotonic, realtime int64)) *Clock {
	c := &Clock{now: now, read: read}
	_, c.offset, c.uncertainty = c.measure()
	return c
}

// monotonicAt returns CLOCK_MONOTONIC at the instant base. The runtime reads the
// same clock but counts from another origin.
func monotonicAt(base time.Time) (int64, error) {
	var best, width int64
	for i := range maxReadings {
		var ts unix.Timespec
		before := time.Since(base)
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			return 0, err
		}
		after := time.Since(base)
		if w := int64(after - before); i == 0 || w < width {
			best, width = ts.Nano()-int64(before+after)/2, w
		}
	}
	return best, nil
}

// measure reads the offset between two readings of the monotonic clock, again
// when the reading was interrupted.
func (c *Clock) measure() (monotonic, offset, uncertainty int64) {
	for i := range maxReadings {
		before := c.now()
		after, realtime := c.read()
		if width := after - before; i == 0 || width < uncertainty {
			offset, uncertainty = realtime-after, width
		}
		monotonic = after
		if uncertainty <= int64(goodReading) {
			break
		}
	}
	return monotonic, offset, uncertainty
}

// Now returns CLOCK_MONOTONIC.
func (c *Clock) Now() int64 { return c.now() }

// Update returns CLOCK_MONOTONIC after comparing the two clocks, so that Steps
// and Offset are current.
func (c *Clock) Update() int64 {
	monotonic, offset, uncertainty := c.measure()
	moved := offset - c.offset
	if max(moved, -moved) > uncertainty+c.uncertainty+int64(stepThreshold) {
		c.steps++
		c.offset, c.uncertainty = offset, uncertainty
	} else if uncertainty < c.uncertainty {
		c.offset, c.uncertainty = offset, uncertainty
	}
	return monotonic
}

// Steps counts the steps of CLOCK_REALTIME seen so far. Two time stamps can be
// compared when the count was the same before the first and after the second.
func (c *Clock) Steps() uint32 { return c.steps }

// Realtime converts a monotonic time.
func (c *Clock) Realtime(monotonic int64) int64 { return monotonic + c.offset }

// Monotonic converts a real time.
func (c *Clock) Monotonic(realtime int64) int64 { return realtime - c.offset }

// ErrorBound returns how far CLOCK_REALTIME may be from UTC as the kernel knows
// it (adjtimex(2)), and whether it follows an external source.
func ErrorBound() (bound time.Duration, synchronized bool) {
	var tx unix.Timex
	state, err := unix.Adjtimex(&tx)
	if err != nil {
		return unknownErrorBound, false
	}
	bound = time.Duration(tx.Maxerror) * time.Microsecond
	return bound, state != unix.TIME_ERROR && tx.Status&unix.STA_UNSYNC == 0
}

// unknownErrorBound is NTP_PHASE_LIMIT, the error from which the kernel itself
// calls a clock unsynchronised.
const unknownErrorBound = 16 * time.Second
