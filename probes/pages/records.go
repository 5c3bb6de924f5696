package pages

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"vigia/probes/records"
	"vigia/probes/sender"
)

// handleRecords answers GET /debug/records: the records of the last minute as JSON Lines, of the targets that have the
// labels asked for.
func (s *Pages) handleRecords(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if err := checkSelection(query); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	// An error here means that the client has gone.
	_ = s.Records.Write(w, func(l sender.Labels) bool { return matches(query, l) }, func() {
		if len(query) > 0 {
			http.Error(w, "no target has these labels; see /debug/targets", http.StatusNotFound)
		}
	})
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

func matches(query url.Values, l sender.Labels) bool {
	labels := map[string]string{"dst": l.Dst, "path": l.Path, "tenant": l.Tenant, "probe": l.Probe}
	for name := range query {
		if query.Get(name) != labels[name] {
			return false
		}
	}
	return true
}
