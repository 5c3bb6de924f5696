package api

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/common/promslog"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/leaderterm"
	"vigia/isolation-agent/enforcer/limits"
)

const (
	token   = "0123456789abcdef-token"
	actionA = "11111111-1111-4111-8111-111111111111"
	actionB = "22222222-2222-4222-8222-222222222222"
)

// store is a mechanism of limits that keeps them in memory.
type store struct {
	limits   map[string]limits.State
	applyErr error
}

func (s *store) Apply(t limits.Target, l limits.Limit, ttl time.Duration) error {
	if s.applyErr != nil {
		return s.applyErr
	}
	s.limits[t.Port.ID] = limits.State{Limit: l, ExpiresIn: ttl, PolicedBytes: 10, PolicedPackets: 2}
	return nil
}

func (s *store) Read(port *ports.Port) (limits.State, error) {
	if port.ID == "p-bare" {
		return limits.State{}, limits.ErrNotAttached
	}
	if state, there := s.limits[port.ID]; there {
		return state, nil
	}
	return limits.State{}, limits.ErrNone
}

func (s *store) Remove(port *ports.Port) error {
	delete(s.limits, port.ID)
	return nil
}

func (s *store) Expires() bool { return true }

// node is what the kernel and the inventory say.
type node struct {
	pairs   []vport.PairState
	signals vport.Signals
	err     error
	highest uint64
	sources []ports.SourceState
}

func (n *node) SyncBounds(map[int]vport.Bounds) error { return n.err }
func (n *node) Signals(int) (vport.Signals, error)    { return n.signals, n.err }
func (n *node) Read(int) (vport.Counters, error)      { return vport.Counters{}, n.err }
func (n *node) Pairs() ([]vport.PairState, error)     { return n.pairs, n.err }
func (n *node) Highest() uint64                       { return n.highest }

func (n *node) Admit(term uint64) error {
	if term < n.highest {
		return leaderterm.ErrStale
	}
	n.highest = term
	return nil
}

func (n *node) list() []ports.Port {
	return []ports.Port{
		{ID: "p-bare", Tenant: "red", Device: "tap-bare", Index: 3},
		{ID: "p-blue", Tenant: "blue", Device: "tap-blue", Index: 2},
		{ID: "p-red", Tenant: "red", Device: "tap-red", Workload: "web-0", Index: 1},
	}
}

func (n *node) Ports() ([]ports.Port, []ports.SourceState) { return n.list(), n.sources }

func (n *node) Lookup(id string) (ports.Port, bool) {
	for _, p := range n.list() {
		if p.ID == id {
			return p, true
		}
	}
	return ports.Port{}, false
}

// rig is an API over a node with ports of red, which has a contract, and blue, which
// has none.
type rig struct {
	t        *testing.T
	server   *Server
	mux      *http.ServeMux
	store    *store
	node     *node
	log      *testutil.Output
	observed []observation
}

// observation is what the API says of a request it has answered.
type observation struct {
	operation string
	code      int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, mux: http.NewServeMux(), store: &store{limits: map[string]limits.State{}}, node: &node{}, log: &testutil.Output{}}
	both := contract.Bandwidth{GuaranteeBytesPerSecond: 1_000_000, CeilingBytesPerSecond: 12_500_000}
	contracts, err := contract.NewSet([]contract.Contract{
		{Owner: contract.Owner{Tenant: "red"}, Send: both, Receive: both, SendPacketsPerSecond: 5000, NewFlowsPerSecond: 400},
	})
	if err != nil {
		t.Fatal(err)
	}
	logger := promslog.New(&promslog.Config{Writer: r.log})
	l := limits.New(limits.Config{
		Kernel: r.node, Inventory: r.node, Terms: r.node, Mechanisms: []limits.Row{{Name: "store", Mechanism: r.store}},
		Contracts: contracts, Logger: logger, Count: func(limits.Change) {},
	})
	r.server = New("n1", l, r.node, logger, func(operation string, code int, _ time.Duration) {
		r.observed = append(r.observed, observation{operation, code})
	})
	r.server.SetToken(token)
	r.server.Register(r.mux)
	return r
}

// do sends a request with the token and returns the answer.
func (r *rig) do(method, path, body string) *http.Response {
	r.t.Helper()
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+token)
	return r.send(req)
}

func (r *rig) send(req *http.Request) *http.Response {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.mux.ServeHTTP(w, req)
	return w.Result()
}

// read returns the body of an answer.
func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// get fetches a document that must be there.
func (r *rig) get(path string, into any) {
	r.t.Helper()
	resp := r.do("GET", path, "")
	raw := read(r.t, resp)
	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %d %s", path, resp.StatusCode, raw)
	}
	if err := json.Unmarshal([]byte(raw), into); err != nil {
		r.t.Fatalf("%s: %v in %s", path, err, raw)
	}
}

// body is a request for a limit on p-red, with changes as "key":value.
func body(changes ...string) string {
	fields := map[string]string{
		"id": `"` + actionA + `"`, "tenant": `"red"`, "protocol": `"udp"`, "rate_bytes_per_second": "1000000", "burst_bytes": "0",
		"packets_per_second": "0", "new_flows_per_second": "0", "ttl_seconds": "60",
	}
	for _, change := range changes {
		key, value, _ := strings.Cut(change, "=")
		fields[key] = value
	}
	var b strings.Builder
	for key, value := range fields {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + key + `":` + value)
	}
	return "{" + b.String() + "}"
}

func id(s string) uuid.UUID { return uuid.MustParse(s) }
