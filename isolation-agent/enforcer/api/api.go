// Package api is the enforcer's HTTP interface for the isolation agent.
package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"vigia/isolation-agent/enforcer/limits"
	"vigia/isolation-agent/enforcer/refusal"
)

// Server answers the isolation agent.
type Server struct {
	node    string
	limits  *limits.Limits
	logger  *slog.Logger
	token   atomic.Pointer[[sha256.Size]byte]
	uids    atomic.Pointer[map[uint32]bool] // users of the socket that need no token
	observe func(operation string, code int, took time.Duration)

	kernel     Pairs
	scheduling Scheduling // nil without links
	loop       Loop       // nil without a fast loop
	ready      func() error
}

// SetReady lets the API refuse what is about ports until they are known and their programs are attached: what is
// not known yet must not look like what is gone.
func (s *Server) SetReady(ready func() error) { s.ready = ready }

// SetScheduling lets the API show the uplinks' schedulers.
func (s *Server) SetScheduling(k Scheduling) { s.scheduling = k }

// SetLoop lets the API show the fast loop, and end its limits.
func (s *Server) SetLoop(l Loop) { s.loop = l }

// New returns a server; observe is called for every request.
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
		{"GET /v1/state", "state", s.whenReady(s.state)},
		{"PUT /v1/ports/{port}/limit", "set", s.whenReady(s.set)},
		{"DELETE /v1/ports/{port}/limit", "remove", s.whenReady(s.remove)},
		{"DELETE /v1/limits", "remove_all", s.removeAll},
		{"GET /v1/pairs", "pairs", s.pairs},
		{"GET /v1/desired", "desired", s.desired},
		{"GET /v1/actual", "actual", s.actual},
		{"POST /v1/reconcile", "reconcile", s.reconcile},
	} {
		mux.HandleFunc(r.pattern, s.endpoint(r.operation, r.handle))
	}
}

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
		// The client is gone if this fails; nobody is left to answer.
		_ = json.NewEncoder(w).Encode(answer)
		s.observe(operation, code, time.Since(start))
	}
}

// whenReady refuses a request until the ports are known.
func (s *Server) whenReady(handle func(*http.Request) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		if s.ready != nil {
			if err := s.ready(); err != nil {
				return nil, refusal.New(refusal.NotReady, "", "%s: %v", refusal.NotReady.Text(), err)
			}
		}
		return handle(r)
	}
}

func (s *Server) authenticated(r *http.Request, handle func(*http.Request) (any, error)) (any, error) {
	if s.vouched(r) {
		return handle(r)
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	sum := sha256.Sum256([]byte(given))
	want := s.token.Load()
	if !ok || want == nil || subtle.ConstantTimeCompare(sum[:], want[:]) != 1 {
		return nil, &refusal.Error{Code: refusal.Unauthorized}
	}
	return handle(r)
}

// status returns the HTTP status of a refusal.
func status(c refusal.Code) int {
	switch c {
	case refusal.BadBody, refusal.BadField:
		return http.StatusBadRequest
	case refusal.Unauthorized:
		return http.StatusUnauthorized
	case refusal.UnknownPort:
		return http.StatusNotFound
	case refusal.TenantMismatch, refusal.NoContract, refusal.BelowFloor, refusal.NotAttached, refusal.OtherLimit, refusal.StaleTerm:
		return http.StatusConflict
	case refusal.TooLarge:
		return http.StatusRequestEntityTooLarge
	case refusal.NotReady:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// failureJSON is the body of a refusal.
type failureJSON struct {
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Field   string `json:"field,omitempty"`
	} `json:"error"`
}

// failure maps an error to a status and a body. What the kernel said stays in
// the log and in the message: the agent's audit needs it.
func (s *Server) failure(operation string, err error) (int, any) {
	var refused *refusal.Error
	if !errors.As(err, &refused) {
		s.logger.Error("cannot answer a request", "operation", operation, "err", err)
		refused = refusal.New(refusal.Kernel, "", "%s", err.Error())
	}
	var body failureJSON
	body.Error.Code, body.Error.Message, body.Error.Field = refused.Code.String(), refused.Error(), refused.Field
	return status(refused.Code), body
}
