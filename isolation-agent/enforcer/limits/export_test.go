package limits

import "time"

// SetClock has the limits go by another clock.
func (l *Limits) SetClock(now func() time.Time) { l.now = now }
