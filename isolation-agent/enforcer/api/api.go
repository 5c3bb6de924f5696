// Package api is the enforcer's HTTP interface for the isolation agent.
package api

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"vigia/internal/bpf/vport"
	"vigia/isolation-agent/enforcer/limits"
)

const maxBody = 64 << 10

// Server answers the isolation agent.
type Server struct {
	node    string
	limits  *limits.Limits
	logger  *slog.Logger
	token   atomic.Pointer[[sha256.Size]byte]
	observe func(operation string, code int, took time.Duration)

	kernel     Pairs
	scheduling Scheduling // nil without links
	loop       Loop       // nil without a fast loop
}

// SetScheduling lets the API show the uplinks' schedulers.
func (s *Server) SetScheduling(k Scheduling) { s.scheduling = k }

// SetLoop lets the API show the fast loop, and end its limits.
func (s *Server) SetLoop(l Loop) { s.loop = l }

// New returns a server; observe is told of every request.
func New(node string, l *limits.Limits, kernel Pairs, logger *slog.Logger, observe func(operation string, code int, took time.Duration)) *Server {
	return &Server{node: node, limits: l, kernel: kernel, logger: logger, observe: observe}
}

// SetToken swaps the bearer token.
func (s *Server) SetToken(token string) {
	sum := sha256.Sum256([]byte(token))
	s.token.Store(&sum)
}

// Register adds the routes.
func (s *Server) Register(mux *http.ServeMux) {
	for _, r := range []struct {
		pattern, operation string
		handle             func(*http.Request) (any, error)
	}{
		{"GET /v1/state", "state", s.state},
		{"PUT /v1/ports/{port}/limit", "set", s.set},
		{"DELETE /v1/ports/{port}/limit", "remove", s.remove},
		{"DELETE /v1/limits", "remove_all", s.removeAll},
		{"GET /v1/pairs", "pairs", s.pairs},
		{"GET /v1/desired", "desired", s.desired},
		{"GET /v1/actual", "actual", s.actual},
		{"POST /v1/reconcile", "reconcile", s.reconcile},
	} {
		mux.HandleFunc(r.pattern, s.endpoint(r.operation, r.handle))
	}
}

// apiError is an error with its HTTP status.
type apiError struct {
	status  int
	code    string
	field   string
	message string
}

func (e *apiError) Error() string { return e.message }

func (s *Server) endpoint(operation string, handle func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		code := http.StatusOK
		answer, err := s.authenticated(r, handle)
		if err != nil {
			code, answer = s.failure(operation, err)
		}
		if code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="vigia-enforcer"`)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		// The client is gone if this fails; there is nobody left to tell.
		_ = json.NewEncoder(w).Encode(answer)
		s.observe(operation, code, time.Since(start))
	}
}

func (s *Server) authenticated(r *http.Request, handle func(*http.Request) (any, error)) (any, error) {
	if vouched(r) {
		return handle(r)
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	sum := sha256.Sum256([]byte(given))
	want := s.token.Load()
	if !ok || want == nil || subtle.ConstantTimeCompare(sum[:], want[:]) != 1 {
		return nil, &apiError{http.StatusUnauthorized, "unauthorized", "", "send Authorization: Bearer with the token of token_file"}
	}
	return handle(r)
}

// failure maps an error to a status and a body. What the kernel said stays in
// the log and in the message: the agent's audit needs it.
func (s *Server) failure(operation string, err error) (int, any) {
	body := func(code, message, field string) any {
		e := map[string]any{"code": code, "message": message}
		if field != "" {
			e["field"] = field
		}
		return map[string]any{"error": e}
	}
	var ae *apiError
	if errors.As(err, &ae) {
		return ae.status, body(ae.code, ae.message, ae.field)
	}
	var refusal *limits.Refusal
	if errors.As(err, &refusal) {
		status := http.StatusConflict
		switch refusal.Code {
		case "bad_field":
			status = http.StatusBadRequest
		case "unknown_port":
			status = http.StatusNotFound
		}
		return status, body(refusal.Code, refusal.Message, refusal.Field)
	}
	s.logger.Error("request failed", "operation", operation, "err", err)
	return http.StatusInternalServerError, body("kernel", err.Error(), "")
}

type setBody struct {
	ID         string  `json:"id"`
	Tenant     string  `json:"tenant"`
	Protocol   string  `json:"protocol"`
	Rate       uint64  `json:"rate_bytes_per_second"`
	Burst      uint64  `json:"burst_bytes"`
	Packets    uint64  `json:"packets_per_second"`
	NewFlows   uint64  `json:"new_flows_per_second"`
	TTLSeconds float64 `json:"ttl_seconds"`
	ApprovedBy string  `json:"approved_by"`
	Term       *uint64 `json:"term"`
}

func decode(r *http.Request, into any) error {
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return &apiError{http.StatusBadRequest, "bad_body", "", "the body cannot be read"}
	}
	if len(raw) > maxBody {
		return &apiError{http.StatusRequestEntityTooLarge, "too_large", "", fmt.Sprintf("the body is larger than %d bytes", maxBody)}
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return &apiError{http.StatusBadRequest, "bad_body", "", "the body is not the JSON that is wanted: " + err.Error()}
	}
	if dec.More() {
		return &apiError{http.StatusBadRequest, "bad_body", "", "the body has more than one JSON value"}
	}
	return nil
}

func parseID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil || id == uuid.Nil {
		return uuid.Nil, &apiError{http.StatusBadRequest, "bad_field", "id", "id " + strconv.Quote(clip(s)) + " is not a UUID"}
	}
	return id, nil
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64]
	}
	return s
}

func (s *Server) set(r *http.Request) (any, error) {
	var b setBody
	if err := decode(r, &b); err != nil {
		return nil, err
	}
	id, err := parseID(b.ID)
	if err != nil {
		return nil, err
	}
	if !(b.TTLSeconds >= 1 && b.TTLSeconds <= limits.MaxTTL.Seconds()) { // also refuses NaN
		return nil, &apiError{http.StatusBadRequest, "bad_field", "ttl_seconds", fmt.Sprintf("ttl_seconds %v is out of range; use 1 to %v", b.TTLSeconds, limits.MaxTTL.Seconds())}
	}
	port := r.PathValue("port")
	got, err := s.limits.Apply(port, limits.Request{
		ID: id, Tenant: b.Tenant, Protocol: b.Protocol, Rate: b.Rate, Burst: b.Burst, Packets: b.Packets, NewFlows: b.NewFlows,
		ApprovedBy: b.ApprovedBy, TTL: time.Duration(b.TTLSeconds * float64(time.Second)), Term: b.Term,
	})
	if err != nil {
		return nil, err
	}
	return map[string]any{"port": port, "limit": limitView(&got), "verified": true}, nil
}

func (s *Server) remove(r *http.Request) (any, error) {
	id := uuid.Nil
	if given := r.URL.Query().Get("id"); given != "" {
		var err error
		if id, err = parseID(given); err != nil {
			return nil, err
		}
	}
	term, err := termOf(r)
	if err != nil {
		return nil, err
	}
	port := r.PathValue("port")
	removed, err := s.limits.Remove(port, id, term)
	if err != nil {
		return nil, err
	}
	return map[string]any{"port": port, "removed": removed, "verified": true}, nil
}

// termOf returns the term of the leader that asks, nil without one.
func termOf(r *http.Request) (*uint64, error) {
	given := r.URL.Query().Get("term")
	if given == "" {
		return nil, nil
	}
	term, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		return nil, &apiError{http.StatusBadRequest, "bad_field", "term", "term " + strconv.Quote(clip(given)) + " is not a number"}
	}
	return &term, nil
}

func (s *Server) removeAll(r *http.Request) (any, error) {
	term, err := termOf(r)
	if err != nil {
		return nil, err
	}
	removed, err := s.limits.RemoveAll(term)
	if err != nil {
		return nil, err
	}
	released := 0
	if s.loop != nil {
		released = s.loop.ReleaseAll()
	}
	return map[string]any{"removed": removed, "released": released}, nil
}

// limitJSON is a limit as the API shows it.
type limitJSON struct {
	ID             string  `json:"id"`
	Protocol       string  `json:"protocol"`
	Rate           uint64  `json:"rate_bytes_per_second"`
	Burst          uint64  `json:"burst_bytes"`
	Packets        uint64  `json:"packets_per_second"`   // 0 = any number
	NewFlows       uint64  `json:"new_flows_per_second"` // 0 = any number
	Shaped         bool    `json:"shaped"`               // or policed
	ExpiresIn      float64 `json:"expires_in_seconds"`
	PolicedBytes   uint64  `json:"policed_bytes"`
	PolicedPackets uint64  `json:"policed_packets"`
}

func limitView(l *vport.Limit) *limitJSON {
	if l == nil {
		return nil
	}
	return &limitJSON{
		ID: uuid.UUID(l.ID).String(), Protocol: limits.Protocol(l), Rate: l.Rate, Burst: l.Burst, Packets: l.Packets, NewFlows: l.NewFlows,
		Shaped: l.Class != 0, ExpiresIn: l.Expires.Seconds(),
		PolicedBytes: l.PolicedBytes, PolicedPackets: l.PolicedPackets,
	}
}
