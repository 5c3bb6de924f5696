package settings

import (
	"os"
	"strings"
	"testing"
)

// FuzzParse reads any bytes as the probe's configuration: it is taken with intervals that a probe can keep, or
// refused with the file's name.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "node: lb1\n", "node: lb1\nclasses:\n  - {name: a, interval: 100us, size: 64}\ntargets:\n  - {peer: lb2, address: \"10.0.0.2:862\", path: direct, classes: [a]}\n",
		"node: lb1\nclasses: &a [*a]\n", "node: lb1\nobjectives: [{ratio: .nan}]\n", "node: lb1\nreflector: {listeners: [{address: \"[::1]:862\"}]}\n",
	} {
		f.Add([]byte(seed))
	}
	shipped, err := os.ReadFile("../../vigia/tests/testdata/golden/lb1-userspace/probe.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(shipped)
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := Parse("f.yaml", raw)
		if err != nil {
			if s != nil || !strings.HasPrefix(err.Error(), "f.yaml") {
				t.Fatalf("%q: %v and %v", raw, s, err)
			}
			return
		}
		rate := 0.0
		for _, target := range s.Targets {
			if target.Interval <= 0 {
				t.Fatalf("an interval of %s was taken: %q", target.Interval, raw)
			}
			rate += 1 / target.Interval.Seconds()
		}
		if rate > 1e9 {
			t.Fatalf("%g probes a second were taken: %q", rate, raw)
		}
	})
}
