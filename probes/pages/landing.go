package pages

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"vigia/probes/accounting"
	"vigia/probes/records"
	"vigia/probes/sender"
)

//go:embed landing.html
var landingPage string

const (
	// maxRows bounds the page; what fails comes first.
	maxRows = 500
	// maxRounds is how many probes of each target it shows.
	maxRounds = 30
)

// landing is what the page shows.
type landing struct {
	Node, Summary, NotReady string
	Rows                    []landingRow
	More                    int
	PathMTU                 bool // of any target
}

type landingRow struct {
	Dst, Path, Tenant, Probe, State, RTT, PathMTU, Why string
	Sent, Lost                                         uint64
	Rounds                                             []landingRound
}

type landingRound struct{ Outcome, Mark, Title string }

// ServeLanding shows every target, its last rounds, and why it fails.
func (s *Pages) ServeLanding(w http.ResponseWriter, _ *http.Request) {
	status, _, err := s.Targets.Snapshot(nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	slices.SortFunc(status, func(a, b sender.Status) int {
		return cmp.Or(order(&a)-order(&b), strings.Compare(a.Target.Labels.Dst, b.Target.Labels.Dst),
			strings.Compare(a.Target.Labels.Path, b.Target.Labels.Path), strings.Compare(a.Target.Labels.Tenant, b.Target.Labels.Tenant),
			strings.Compare(a.Target.Labels.Probe, b.Target.Labels.Probe))
	})
	page := landing{More: max(len(status)-maxRows, 0)}
	page.Node, page.Summary = s.Node()
	if err := s.Ready(); err != nil {
		page.NotReady = err.Error()
	}
	for i := range status[:min(len(status), maxRows)] {
		r := row(&status[i], s.Records.Recent(status[i].Target.Labels, maxRounds))
		if mtu, searched := s.PathMTUs.Known(status[i].Target.Labels); searched {
			r.PathMTU, page.PathMTU = mtu.String(), true
		}
		page.Rows = append(page.Rows, r)
	}
	t, err := template.New("landing").Parse(landingPage)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var b bytes.Buffer
	if err := t.Execute(&b, page); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

// order puts what fails first and what is paused last.
func order(st *sender.Status) int {
	switch {
	case st.Target.Paused:
		return 2
	case st.Up:
		return 1
	}
	return 0
}

func row(st *sender.Status, recent []*records.Line) landingRow {
	l := st.Target.Labels
	r := landingRow{
		Dst: l.Dst, Path: l.Path, Tenant: l.Tenant, Probe: l.Probe, State: state(st), RTT: "-",
		Sent: st.Counts.Sent, Lost: st.Counts.LostTotal(), Why: why(st, recent),
	}
	for _, line := range recent {
		round := landingRound{Outcome: line.Outcome, Mark: "·", Title: line.Time}
		switch {
		case line.Outcome == "lost":
			round.Mark, round.Title = "×", line.Time+": lost, cause "+line.Cause
		case line.RTT != nil:
			r.RTT = time.Duration(*line.RTT).String()
			round.Title += ": " + r.RTT
		default:
			r.RTT = time.Duration(line.Application).String() + " in the application"
			round.Title += ": " + r.RTT
		}
		r.Rounds = append(r.Rounds, round)
	}
	return r
}

// why says in a sentence why a target fails; empty when it does not.
func why(st *sender.Status, recent []*records.Line) string {
	lastError := ""
	if st.LastError != nil {
		lastError = st.LastError.Error()
	}
	switch state(st) {
	case "paused":
		return "it has vanished from its discovery source"
	case "closed":
		return "its socket is not open: " + cmp.Or(lastError, "it is about to be opened")
	case "unresolved":
		return "its name has no address: " + cmp.Or(lastError, "it is being looked up")
	case "up":
		return ""
	}
	if st.Counts.Sent == 0 {
		return "not probed yet"
	}
	causes := make(map[string]int)
	for _, line := range recent {
		if line.Outcome == "lost" {
			causes[line.Cause]++
		}
	}
	text := "no answer from " + st.Address.Addr().String()
	for c := range accounting.Cause(accounting.NumCauses) {
		if n := causes[c.String()]; n > 0 {
			text += fmt.Sprintf("; %d of the last %d lost by %s", n, len(recent), c)
		}
	}
	if lastError != "" {
		text += fmt.Sprintf("; last error, %s ago: %s", time.Since(st.LastErrorAt).Round(time.Second), lastError)
	}
	return text
}
