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
// short, so that others on the machine leave some alone; they only ever add, so that the
// quickest turns tell what the program takes: ns/packet is the difference of the two, in
// the median turns median-ns. raw-ns and empty-ns are the medians themselves. It returns
// ns/packet.
func BenchmarkProgram(b *testing.B, p *ebpf.Program, frame []byte) float64 {
	b.Helper()
	empty := EmptyProgram(b)
	var raw, base []time.Duration
	b.ResetTimer()
	for range max(1, b.N/turn) {
		raw, base = append(raw, testRun(b, p, frame)), append(base, testRun(b, empty, frame))
	}
	b.ReportMetric(median(raw), "raw-ns")
	b.ReportMetric(median(base), "empty-ns")
	b.ReportMetric(median(raw)-median(base), "median-ns")
	least := float64((slices.Min(raw) - slices.Min(base)).Nanoseconds()) / turn
	b.ReportMetric(least, "ns/packet")
	return least
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

// CountingProgram returns a program that adds up packets and bytes of everything, in one
// place of each processor: no counter takes less.
func CountingProgram(t testing.TB) *ebpf.Program {
	t.Helper()
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 16, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counts.Close() })
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "counting", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.LoadMapPtr(asm.R1, counts.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.LoadMem(asm.R1, asm.R6, 0, asm.Word), // __sk_buff.len
			asm.LoadMem(asm.R2, asm.R0, 0, asm.DWord),
			asm.Add.Reg(asm.R2, asm.R1),
			asm.StoreMem(asm.R0, 0, asm.R2, asm.DWord),
			asm.LoadMem(asm.R2, asm.R0, 8, asm.DWord),
			asm.Add.Imm(asm.R2, 1),
			asm.StoreMem(asm.R0, 8, asm.R2, asm.DWord),
			asm.Mov.Imm(asm.R0, -1).WithSymbol("out"),
			asm.Return(),
		},
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
