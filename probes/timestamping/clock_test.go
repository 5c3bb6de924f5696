package timestamping

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hands is a pair of clocks that the test moves. Each reading takes a while.
type hands struct {
	monotonic, realtime int64
	readings            []int64 // duration of the next readings; then the last for ever
}

func (h *hands) read() (int64, int64) {
	d := h.readings[0]
	if len(h.readings) > 1 {
		h.readings = h.readings[1:]
	}
	h.advance(d)
	return h.monotonic, h.realtime
}

func (h *hands) now() int64 {
	monotonic, _ := h.read()
	return monotonic
}

func (h *hands) advance(d int64) { h.monotonic += d; h.realtime += d }

func TestClockNoticesSteps(t *testing.T) {
	for _, tc := range []struct {
		name string
		step int64
		want uint32
	}{
		{"none", 0, 0},
		{"below what can be told", 900, 0},
		{"forward", 2_000, 1},
		{"backward", -2_000, 1},
		{"an hour", int64(time.Hour), 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &hands{monotonic: 1_000_000, realtime: 1_700_000_000_000_000_000, readings: []int64{40}}
			c := NewClockFrom(h.now, h.read)
			for range 100 {
				h.advance(1_000_000)
				c.Update()
			}
			h.realtime += tc.step
			c.Update()
			if c.Steps() != tc.want {
				t.Fatalf("%d steps seen, want %d", c.Steps(), tc.want)
			}
			h.advance(5_000_000)
			c.Update()
			if c.Steps() != tc.want {
				t.Errorf("the step was counted again")
			}
			if tc.want == 0 {
				return
			}
			if got := c.Realtime(h.monotonic); got != h.realtime {
				t.Errorf("after the step real time is off by %d ns", got-h.realtime)
			}
			if got := c.Monotonic(h.realtime); got != h.monotonic {
				t.Errorf("after the step monotonic time is off by %d ns", got-h.monotonic)
			}
		})
	}
}

func TestClockIsNotFooledByPreemption(t *testing.T) {
	h := &hands{monotonic: 1, realtime: 1_000_000_000, readings: []int64{40}}
	c := NewClockFrom(h.now, h.read)
	for range 50 {
		// Between the two readings of a measurement the thread is away for
		// up to 3 ms, three times in a row.
		h.readings = []int64{40, 3_000_000, 40, 2_000_000, 40, 1_000_000, 40}
		c.Update()
	}
	if c.Steps() != 0 {
		t.Errorf("%d steps seen where there was none", c.Steps())
	}
	if got := c.Realtime(h.monotonic); got != h.realtime {
		t.Errorf("real time is off by %d ns", got-h.realtime)
	}
}

func TestClockReadsTheKernelsClocks(t *testing.T) {
	c, err := NewClock()
	if err != nil {
		t.Fatal(err)
	}
	kernel := func(id int32) int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(id, &ts); err != nil {
			t.Fatal(err)
		}
		return ts.Nano()
	}
	// The clock's time lies between two of the kernel's; the calibration may
	// be off by half the time of one system call, or more when preempted.
	const slack = int64(time.Millisecond)
	before := kernel(unix.CLOCK_MONOTONIC)
	now := c.Update()
	after := kernel(unix.CLOCK_MONOTONIC)
	if now < before-slack || now > after+slack {
		t.Errorf("monotonic %d is not between %d and %d", now, before, after)
	}
	before = kernel(unix.CLOCK_REALTIME)
	now = c.Realtime(c.Now())
	after = kernel(unix.CLOCK_REALTIME)
	if now < before-slack || now > after+slack {
		t.Errorf("real time %d is not between %d and %d", now, before, after)
	}
}

func TestErrorBound(t *testing.T) {
	bound, synchronized := ErrorBound()
	if bound <= 0 || bound > 17*time.Second {
		t.Errorf("bound %v", bound)
	}
	var tx unix.Timex
	state, err := unix.Adjtimex(&tx)
	if err != nil {
		t.Fatal(err)
	}
	if synchronized == (state == unix.TIME_ERROR) {
		t.Errorf("synchronized %v, but the kernel's state is %d", synchronized, state)
	}
}
