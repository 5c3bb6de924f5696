package pages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"vigia/probes/moment"
	"vigia/probes/sender"
)

// Moments are the records of what happened when paths turned bad: moment.Watch.
type Moments interface {
	Records(wanted func(sender.Labels) bool, limit int) (bad, good []*moment.Moment)
}

// Bounds of the parameter limit.
const (
	defaultMoments = 20
	maxMoments     = 100
)

// handleMoments answers GET /v1/moments: the last records of the targets that have the labels asked for, the newest
// first, and the last good record of each: at most limit of both.
func (s *Pages) handleMoments(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit, err := takeLimit(query)
	if err == nil {
		err = checkSelection(query)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	bad, good := s.Moments.Records(func(l sender.Labels) bool { return matches(query, l) }, limit)
	node, _ := s.Node()
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	// An error here means that the client has gone.
	_ = enc.Encode(map[string]any{"node": node, "moments": bad, "good": good})
}

// takeLimit takes the parameter limit out of a query.
func takeLimit(query url.Values) (int, error) {
	values, given := query["limit"]
	if !given {
		return defaultMoments, nil
	}
	delete(query, "limit")
	limit, err := strconv.Atoi(values[0])
	if err != nil || len(values) > 1 || limit < 1 || limit > maxMoments {
		return 0, fmt.Errorf("limit %q is none; write one number from 1 to %d", values, maxMoments)
	}
	return limit, nil
}
