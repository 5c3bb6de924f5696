package sender

import (
	"fmt"
	"testing"
	"time"

	"vigia/probes/accounting"
	"vigia/probes/protocol"
)

// TestLastLossesOfACountAreLocated loses the last probes of a counted target, and some
// before them or none, on paths with any delay: only what is sent after them can tell.
func TestLastLossesOfACountAreLocated(t *testing.T) {
	t.Parallel()
	const n = 40
	for _, last := range []uint32{3, n} {
		for _, delay := range []time.Duration{0, 12 * time.Millisecond, 45 * time.Millisecond} {
			t.Run(fmt.Sprintf("%d, %s", last, delay), func(t *testing.T) {
				t.Parallel()
				lose := func(s uint32) fate {
					if s < n && (s >= n-last || s == 5) {
						return fate{}
					}
					return fate{copies: 1, delay: delay}
				}
				_, at := newRelay(t, reflectOnLoopback(t), lose, always)
				f := newSender(t, Options{})
				tg := target("b", at)
				tg.Count = n
				f.apply(tg)
				st, settled := f.finish(tg.Labels)
				lost := uint64(last)
				if last < n {
					lost++
				}
				if st.Counts.Lost[accounting.Forward] != lost || st.Counts.LostTotal() != lost {
					t.Errorf("%+v, want %d lost on the way there", st.Counts, lost)
				}
				for _, p := range settled {
					if p.State == protocol.Lost && p.Cause != accounting.Forward {
						t.Errorf("probe %d: %s", p.Sequence, p.Cause)
					}
				}
			})
		}
	}
}
