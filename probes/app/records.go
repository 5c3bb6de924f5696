package app

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"vigia/probes/records"
)

// handleRecords writes the records of the last minute, of the targets that have the
// labels asked for.
func (s *service) handleRecords(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if err := checkSelection(query); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	targets := s.recorders.selected(query)
	if len(targets) == 0 && len(query) > 0 {
		http.Error(w, "no target has these labels; see /debug/targets", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	for _, t := range targets {
		t.dumping.Lock()
		copied := t.records.Clone()
		t.dumping.Unlock()
		if copied.Write(w, t.labels) != nil {
			return // the client has gone
		}
	}
}

func checkSelection(query url.Values) error {
	for name, values := range query {
		if !slices.Contains(records.Selectors(), name) {
			return fmt.Errorf("%q is not a label to select by; known here: %s", name, strings.Join(records.Selectors(), ", "))
		}
		if len(values) != 1 {
			return fmt.Errorf("label %s is given %d times; give it once", name, len(values))
		}
	}
	return nil
}

// selected returns the targets with the labels, in order.
func (r *recorders) selected(query url.Values) (found []*recorder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, rec := range r.targets {
		if matches(query, map[string]string{"dst": l.Dst, "path": l.Path, "tenant": l.Tenant, "probe": l.Probe}) {
			found = append(found, rec)
		}
	}
	slices.SortFunc(found, func(a, b *recorder) int { return a.labels.Compare(&b.labels) })
	return found
}

func matches(query url.Values, labels map[string]string) bool {
	for name := range query {
		if query.Get(name) != labels[name] {
			return false
		}
	}
	return true
}
