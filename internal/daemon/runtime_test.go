package daemon

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func gathered(t *testing.T, everything bool) (names []string) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(runtimeCollectors(everything)...)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if len(f.Metric) != 1 && strings.HasPrefix(f.GetName(), "process_") {
			t.Errorf("%s has %d series", f.GetName(), len(f.Metric))
		}
		names = append(names, f.GetName())
	}
	return names
}

func TestAProgramSaysLittleOfItself(t *testing.T) {
	usual := gathered(t, false)
	if want := selfMetrics(); !slices.Equal(usual, want) {
		t.Errorf("%v, want %v", usual, want)
	}
	all := gathered(t, true)
	if len(all) < 3*len(usual) {
		t.Errorf("with all metrics of the runtime there are %d families, without %d", len(all), len(usual))
	}
	for _, name := range usual {
		if !slices.Contains(all, name) {
			t.Errorf("%s is not among all", name)
		}
	}
}
