package testutil

import "testing"

// Budget prints a figure of a benchmark beside the most that it may be, which is meant
// for an idle machine, and fails the benchmark if it is more.
func Budget(b *testing.B, what string, got, most float64, unit string) {
	b.Helper()
	verdict := "met"
	if got > most {
		verdict = "MISSED"
		b.Fail()
	}
	b.Logf("budget: %-42s %7.2f %-2s of %5.0f: %s", what, got, unit, most, verdict)
}
