package pages

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"vigia/probes/accounting"
	"vigia/probes/sender"
)

// TargetView is a target as /debug/targets shows it.
type TargetView struct {
	Src         string            `json:"src"`
	Dst         string            `json:"dst"`
	Path        string            `json:"path"`
	Tenant      string            `json:"tenant"`
	Probe       string            `json:"probe"`
	State       string            `json:"state"` // up, down, unresolved, closed, paused
	Netns       string            `json:"netns,omitempty"`
	Source      string            `json:"source,omitempty"`
	Host        string            `json:"host"`
	Address     string            `json:"address,omitempty"`
	LastError   string            `json:"last_error,omitempty"`
	LastErrorAt *time.Time        `json:"last_error_at,omitempty"`
	Sent        uint64            `json:"sent"`
	Received    uint64            `json:"received"`
	Lost        map[string]uint64 `json:"lost"`
	Late        uint64            `json:"late"`
	Duplicate   uint64            `json:"duplicate"`
	Reordered   uint64            `json:"reordered"`
	Corrupt     uint64            `json:"corrupt"`
	Skipped     uint64            `json:"skipped"`
	InFlight    uint64            `json:"in_flight"`
	Waiting     uint64            `json:"awaiting_stamps"`
	Mismatch    int64             `json:"accounting_mismatch"`
	Jitter      float64           `json:"jitter_seconds"`
	PathMTU     int               `json:"path_mtu_bytes,omitempty"`
	StampedBy   string            `json:"stamped_by"` // kernel or hardware: the source of the delays
}

// handleTargets answers GET /debug/targets: the state, the last error and the counters of each target.
func (s *Pages) handleTargets(w http.ResponseWriter, _ *http.Request) {
	status, _, err := s.Targets.Snapshot(nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	views := make([]TargetView, 0, len(status))
	for i := range status {
		v := view(&status[i])
		if mtu, ok := s.PathMTUs.Known(status[i].Target.Labels); ok {
			v.PathMTU = mtu.Bytes
		}
		views = append(views, v)
	}
	slices.SortFunc(views, func(a, b TargetView) int {
		return cmp.Or(cmp.Compare(a.Dst, b.Dst), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Probe, b.Probe))
	})
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	// An error here means that the client has gone.
	_ = enc.Encode(map[string]any{"targets": views})
}

func view(st *sender.Status) TargetView {
	t, n := st.Target, st.Counts
	v := TargetView{
		Src: t.Labels.Src, Dst: t.Labels.Dst, Path: t.Labels.Path, Tenant: t.Labels.Tenant, Probe: t.Labels.Probe,
		State: state(st), Netns: t.Netns, Host: t.Host,
		Sent: n.Sent, Received: n.Received, Lost: make(map[string]uint64), Late: n.Late, Duplicate: n.Duplicate,
		Reordered: n.Reordered, Corrupt: n.Corrupt, Skipped: n.Skipped, InFlight: st.InFlight, Waiting: st.Waiting,
		Mismatch: n.Mismatch(st.InFlight), Jitter: st.Jitter,
		StampedBy: st.Source.String(),
	}
	if t.Source.IsValid() {
		v.Source = t.Source.String()
	}
	if st.Address.IsValid() {
		v.Address = st.Address.String()
	}
	if st.LastError != nil {
		v.LastError, v.LastErrorAt = st.LastError.Error(), &st.LastErrorAt
	}
	for cause, lost := range n.Lost {
		v.Lost[accounting.Cause(cause).String()] = lost
	}
	return v
}

func state(st *sender.Status) string {
	switch {
	case st.Target.Paused:
		return "paused"
	case !st.Open:
		return "closed"
	case !st.Address.IsValid():
		return "unresolved"
	case st.Up:
		return "up"
	}
	return "down"
}
