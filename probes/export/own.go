package export

import (
	"github.com/prometheus/client_golang/prometheus"

	"vigia/probes/protocol"
)

// ownStage is a stage of a probe in our own hands.
type ownStage int

const (
	sendStage ownStage = iota
	readStage
	numStages = iota
)

// String returns the stage as the label value stage.
func (s ownStage) String() string { return [numStages]string{"send", "read"}[s] }

// lagSeries is the schedule's lag, behind the stages.
const lagSeries = numStages

// own has the histograms of what vigia-probe itself adds to the time that probes take, and of
// the lag with which it sends them. No delay contains it; it is one for all targets, since it
// says nothing of any path.
type own struct {
	recorder recorder
}

func newOwn(r *Recorders) *own {
	o := &own{recorder{
		owner: r, pending: make([]observation, 0, maxPending), spare: make([]observation, 0, maxPending),
	}}
	kind := r.kinds[ownHistogram]
	for i := range ownStage(numStages) {
		o.recorder.series[i] = series{
			recorder: &o.recorder, desc: kind.Desc(), labels: kind.Labels(i.String()), values: r.delays.New(),
		}
	}
	kind = r.kinds[lagHistogram]
	o.recorder.series[lagSeries] = series{recorder: &o.recorder, desc: kind.Desc(), labels: kind.Labels(), values: r.delays.New()}
	return o
}

// launched takes how late a probe left.
func (o *own) launched(lag int64) {
	o.recorder.mu.Lock()
	o.recorder.add(lagSeries, lag)
	full := len(o.recorder.pending) >= maxPending
	o.recorder.mu.Unlock()
	if full {
		o.recorder.flushWhenFull()
	}
}

// observe takes those of a probe.
func (o *own) observe(v *protocol.Own) {
	o.recorder.mu.Lock()
	o.recorder.add(int(sendStage), v.Send)
	o.recorder.add(int(readStage), v.Read)
	o.recorder.mu.Unlock()
	o.recorder.flushWhenFull()
}

// collect exports them.
func (o *own) collect(out chan<- prometheus.Metric) {
	for i := range numStages + 1 {
		out <- &o.recorder.series[i]
	}
}
