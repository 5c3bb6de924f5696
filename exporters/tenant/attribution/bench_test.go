package attribution

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"vigia/internal/testutil"
)

// BenchmarkSoftirqs reads /proc/stat of a server with 128 processors and 6 000 interrupts
// beside github.com/prometheus/procfs. A scrape reads it once.
func BenchmarkSoftirqs(b *testing.B) {
	files := files{b, b.TempDir()}
	var stat strings.Builder
	stat.WriteString("cpu  1000000 2000 3000000 400000000 5 6 70000 8 9 10\n")
	for i := range 128 {
		fmt.Fprintf(&stat, "cpu%d 1000000 2000 3000000 400000000 5 6 70000 8 9 10\n", i)
	}
	stat.WriteString("intr 123456789" + strings.Repeat(" 12345 0 0", 2000) + "\nctxt 123\nbtime 1700000000\nprocesses 1234\n" +
		"procs_running 3\nprocs_blocked 0\nsoftirq 100 1 2 3 4 5 6 7 8 9 10\n")
	files.write("stat", stat.String())
	files.write("thread-self/comm", "bench\n")
	p, err := newProc(files.root)
	if err != nil {
		b.Fatal(err)
	}
	var own, other float64
	testutil.Beside(b, "library", func() {
		if own, err = p.softirqSeconds(); err != nil {
			b.Fatal(err)
		}
	}, func() {
		stat, err := p.all.Stat()
		if err != nil {
			b.Fatal(err)
		}
		other = stat.CPUTotal.SoftIRQ
	})
	if own != 700 || math.Abs(own-other) > 1e-9 {
		b.Fatalf("%v s here, %v s by the library", own, other)
	}
}
