package stamp

import (
	"math"
	"time"
)

// Timestamp is a 64-bit time stamp as it travels: in NTP format (RFC 5905
// section 6) or, when the Z flag of the error estimate says so, in truncated
// PTPv2 format (IEEE 1588, seconds and nanoseconds of 32 bits each).
type Timestamp uint64

const (
	nanosecond = int64(time.Second)
	// ntpUnixOffset is the number of seconds from 1900 to 1970.
	ntpUnixOffset = 2208988800
	eraSeconds    = int64(1) << 32
)

// FromUnixNano converts a time in nanoseconds since 1970 to NTP format. The
// result converts back to the same nanosecond.
func FromUnixNano(ns int64) Timestamp {
	sec, frac := ns/nanosecond, ns%nanosecond
	if frac < 0 {
		sec, frac = sec-1, frac+nanosecond
	}
	fraction := (uint64(frac)<<32 + uint64(nanosecond)/2) / uint64(nanosecond)
	return Timestamp(uint64(sec+ntpUnixOffset)<<32 | fraction)
}

// UnixNano converts t to nanoseconds since 1970. The seconds wrap every 136
// years, for NTP first in 2036; of the possible times it returns the one
// nearest to near, also in nanoseconds since 1970.
func (t Timestamp) UnixNano(format Format, near int64) int64 {
	sec, low := int64(t>>32), uint64(t)&math.MaxUint32
	nanos := int64(low)
	if format == NTP {
		sec -= ntpUnixOffset
		nanos = int64((low*uint64(nanosecond) + 1<<31) >> 32)
	}
	eras := (near/nanosecond - sec + eraSeconds/2)
	if eras < 0 {
		eras -= eraSeconds - 1
	}
	sec += eras / eraSeconds * eraSeconds
	return sec*nanosecond + nanos
}

// Format is the format of a packet's time stamps.
type Format bool

// The two formats of RFC 8186 section 2.3; NTP is the default.
const (
	NTP Format = false
	PTP Format = true
)

// ErrorEstimate says how far a clock may be off (RFC 4656 section 4.1.2, with
// the Z flag of RFC 8186): S, Z, 6 bits of scale, 8 bits of multiplier; the
// error is multiplier * 2^(scale-32) seconds.
type ErrorEstimate uint16

const (
	syncFlag   ErrorEstimate = 1 << 15
	formatFlag ErrorEstimate = 1 << 14
	maxScale                 = 63
)

// NewErrorEstimate encodes the smallest estimate that is not below the error,
// for time stamps in NTP format. synchronized tells whether the clock follows
// an external source.
func NewErrorEstimate(synchronized bool, bound time.Duration) ErrorEstimate {
	multiplier := math.Ceil(max(bound.Seconds(), 0) * (1 << 32))
	scale := 0
	for multiplier > 255 && scale < maxScale {
		multiplier = math.Ceil(multiplier / 2)
		scale++
	}
	e := ErrorEstimate(scale<<8) | ErrorEstimate(max(multiplier, 1))
	if synchronized {
		e |= syncFlag
	}
	return e
}

// Synchronized reports the S flag.
func (e ErrorEstimate) Synchronized() bool { return e&syncFlag != 0 }

// Format returns the format that the Z flag announces.
func (e ErrorEstimate) Format() Format { return Format(e&formatFlag != 0) }

// Seconds returns the error bound in seconds.
func (e ErrorEstimate) Seconds() float64 {
	return math.Ldexp(float64(e&0xff), int(e>>8&maxScale)-32)
}
