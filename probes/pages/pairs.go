package pages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// handlePairs answers GET /debug/pairs: the state of every pair of a mesh.
func (s *Pages) handlePairs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.Pairs.Pairs()) // the client may have gone
}

// handleAsk answers POST /debug/pairs: gives the pairs with the node dst= series of their own for ttl=.
func (s *Pages) handleAsk(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	ttl, err := time.ParseDuration(query.Get("ttl"))
	if err != nil {
		http.Error(w, fmt.Sprintf("ttl %q is no duration; write for example 10m", query.Get("ttl")), http.StatusBadRequest)
		return
	}
	if err := s.Pairs.Ask(query.Get("dst"), ttl); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusOK)
}
