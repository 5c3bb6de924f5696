package testutil

import (
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// BenchmarkProgram runs a program for packets on a frame, in the kernel's test run, in
// turns with one that does nothing: what the test run itself costs is in both. A turn is
// short, so that others on the machine interrupt few of them. It reports the median turn
// of both (raw-ns, empty-ns) and the difference (ns/packet), each for one packet.
func BenchmarkProgram(b *testing.B, p *ebpf.Program, frame []byte) {
	b.Helper()
	empty := EmptyProgram(b)
	var raw, base []time.Duration
	b.ResetTimer()
	for range max(1, b.N/turn) {
		raw, base = append(raw, testRun(b, p, frame)), append(base, testRun(b, empty, frame))
	}
	b.ReportMetric(median(raw), "raw-ns")
	b.ReportMetric(median(base), "empty-ns")
	b.ReportMetric(median(raw)-median(base), "ns/packet")
}

// turn is how many packets a turn has: a fraction of a millisecond.
const turn = 10_000

// median returns the nanoseconds of a packet in the median turn.
func median(turns []time.Duration) float64 {
	slices.Sort(turns)
	return float64(turns[len(turns)/2].Nanoseconds()) / turn
}

// EmptyProgram returns a program that leaves every packet to the next one.
func EmptyProgram(t testing.TB) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "empty", Type: ebpf.SchedCLS, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// testRun returns how long a turn took. The kernel would say it in whole nanoseconds of a
// packet.
func testRun(t testing.TB, p *ebpf.Program, frame []byte) time.Duration {
	t.Helper()
	start := time.Now()
	if _, _, err := p.Benchmark(frame, turn, func() { start = time.Now() }); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}
