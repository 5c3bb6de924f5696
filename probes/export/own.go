package export

import (
	"github.com/prometheus/client_golang/prometheus"

	"vigia/probes/protocol"
)

// The stages of a probe in our own hands, as the label value stage.
const (
	sendStage = iota
	readStage
	numStages
)

// own has the histograms of what vigia-probe itself adds to the time that probes take. No
// delay contains it; it is one for all targets, since it says nothing of any path.
type own struct {
	recorder recorder
}

func newOwn(r *Recorders) *own {
	o := &own{recorder{
		owner: r, pending: make([]observation, 0, maxPending), spare: make([]observation, 0, maxPending),
	}}
	kind := r.kinds[ownHistogram]
	for i, stage := range [numStages]string{sendStage: "send", readStage: "read"} {
		o.recorder.series[i] = series{
			recorder: &o.recorder, desc: kind.Desc(), labels: kind.Labels(stage), values: r.delays.New(),
		}
	}
	return o
}

// observe takes those of a probe.
func (o *own) observe(v *protocol.Own) {
	o.recorder.mu.Lock()
	o.recorder.add(sendStage, v.Send)
	o.recorder.add(readStage, v.Read)
	o.recorder.mu.Unlock()
	o.recorder.flushWhenFull()
}

func (o *own) collect(out chan<- prometheus.Metric) {
	for i := range numStages {
		out <- &o.recorder.series[i]
	}
}
