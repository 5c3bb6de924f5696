package daemon

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// selfMetrics are what panels, annotations and the soak read of a program itself. A node has
// three programs, and all that the libraries offer is fifty series of each.
func selfMetrics() []string {
	return []string{
		"go_goroutines", "process_cpu_seconds_total", "process_max_fds", "process_open_fds",
		"process_resident_memory_bytes", "process_start_time_seconds",
	}
}

// runtimeCollectors return the collectors of the Go runtime and the process: of everything, or
// of selfMetrics alone.
func runtimeCollectors(everything bool) []prometheus.Collector {
	all := []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}
	if everything {
		return all
	}
	for i := range all {
		all[i] = newOnly(all[i], selfMetrics())
	}
	return all
}

// only is a collector of which some metrics alone are exported.
type only struct {
	prometheus.Collector
	kept map[*prometheus.Desc]bool
}

func newOnly(c prometheus.Collector, names []string) *only {
	o := &only{Collector: c, kept: make(map[*prometheus.Desc]bool)}
	all := make(chan *prometheus.Desc)
	go func() {
		defer close(all)
		c.Describe(all)
	}()
	for d := range all {
		for _, name := range names {
			if strings.HasPrefix(d.String(), `Desc{fqName: "`+name+`"`) { // it tells its name no other way
				o.kept[d] = true
			}
		}
	}
	return o
}

// Describe announces what is kept.
func (o *only) Describe(out chan<- *prometheus.Desc) {
	for d := range o.kept {
		out <- d
	}
}

// Collect passes on what is kept.
func (o *only) Collect(out chan<- prometheus.Metric) {
	all := make(chan prometheus.Metric)
	go func() {
		defer close(all)
		o.Collector.Collect(all)
	}()
	for m := range all {
		if o.kept[m.Desc()] {
			out <- m
		}
	}
}
