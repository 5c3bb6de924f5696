package mesh_test

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"vigia/probes/mesh"
)

// Report is what came of many runs.
type Report struct {
	Nodes, Pairs, Runs int
	After              [numKinds][]time.Duration // by kind of what was named, in order
	Missed             [numKinds]int
	False              []string
	Bad, LeftOut       int // of one node, at most
}

// Simulate plays runs of a site; the same seed gives the same report.
func Simulate(s Site, runs int, seed uint64) *Report {
	w := newNetwork(s)
	outcomes := make([]Outcome, runs)
	var wg sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for first := range workers {
		wg.Go(func() {
			r := newRun(w)
			for i := first; i < runs; i += workers {
				outcomes[i] = r.play(seed, uint64(i))
			}
		})
	}
	wg.Wait()
	report := &Report{Nodes: s.Nodes, Pairs: len(w.peer), Runs: runs}
	for i := range outcomes {
		report.add(i, &outcomes[i])
	}
	for k := range report.After {
		slices.Sort(report.After[k])
	}
	return report
}

func (r *Report) add(number int, o *Outcome) {
	for _, n := range o.Named {
		if n.After < 0 {
			r.Missed[n.kind]++
			continue
		}
		r.After[n.kind] = append(r.After[n.kind], time.Duration(n.After))
	}
	said := make(map[mesh.Accused]bool)
	for _, a := range o.False {
		if !said[a] {
			said[a] = true
			r.False = append(r.False, fmt.Sprintf("run %d: %v %s, uplink: %v", number, a.Scope, a.Name, a.Uplink))
		}
	}
	r.Bad, r.LeftOut = max(r.Bad, o.Bad), max(r.LeftOut, o.LeftOut)
}

// Limit is how long it may take until a fault is named.
const Limit = 10 * time.Second

// Failures are what the report says against the mesh: faults that were not named in time, and
// accusations without a reason.
func (r *Report) Failures() (out []string) {
	for k := range kind(numKinds) {
		if n := r.Missed[k]; n > 0 {
			out = append(out, fmt.Sprintf("%d of %d times a %v was not named", n, n+len(r.After[k]), k))
		}
		if all := r.After[k]; len(all) > 0 && all[len(all)-1] > Limit {
			out = append(out, fmt.Sprintf("a %v was named after %v", k, all[len(all)-1]))
		}
	}
	for _, f := range r.False {
		out = append(out, "falsely accused in "+f)
	}
	return out
}

// Print prints reports as a table in Markdown.
func Print(w io.Writer, reports []*Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| nodes\t| pairs\t| runs\t| fault\t| named\t| median\t| p99\t| longest\t|")
	fmt.Fprintln(t, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, r := range reports {
		for k := range kind(numKinds) {
			after := r.After[k]
			all := len(after) + r.Missed[k]
			if !k.mustBeNamed() || all == 0 {
				continue
			}
			fmt.Fprintf(t, "| %d\t| %d\t| %d\t| %v\t| %d of %d\t| %s\t| %s\t| %s\t|\n", r.Nodes, r.Pairs, r.Runs, k, len(after), all,
				quantile(after, 0.5), quantile(after, 0.99), quantile(after, 1))
		}
		fmt.Fprintf(t, "| %d\t| %d\t| %d\t| falsely accused\t| %d\t| \t| \t| \t|\n", r.Nodes, r.Pairs, r.Runs, len(r.False))
	}
	return t.Flush()
}

func quantile(sorted []time.Duration, q float64) string {
	if len(sorted) == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f s", sorted[int(q*float64(len(sorted)-1))].Seconds())
}
