package api

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"

	"vigia/internal/bpf/vport"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/fastloop"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/scheduling"
)

// fakeLoop is a fast loop that says what a test wants.
type fakeLoop struct {
	limits   []control.Limit
	peers    []fastloop.PeerView
	released int
	calls    int
}

func (l *fakeLoop) Limits() []control.Limit    { return l.limits }
func (l *fakeLoop) Peers() []fastloop.PeerView { return l.peers }

func (l *fakeLoop) ReleaseAll() int {
	l.calls++
	return l.released
}

// fakeScheduling is a scheduler whose kernel says what a test wants.
type fakeScheduling struct {
	*scheduling.Reconciler
	devices []scheduling.Device
	drift   []scheduling.Drift
	err     error
}

func (s *fakeScheduling) Actual() ([]scheduling.Device, error)   { return s.devices, s.err }
func (s *fakeScheduling) Drift() []scheduling.Drift              { return s.drift }
func (s *fakeScheduling) Reconcile() ([]scheduling.Drift, error) { return s.drift, s.err }

func newScheduling(t *testing.T) *fakeScheduling {
	t.Helper()
	r, err := scheduling.NewReconciler("", nil, promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	send := contract.Bandwidth{GuaranteeBytesPerSecond: 1_000_000, CeilingBytesPerSecond: 2_000_000}
	receive := contract.Bandwidth{GuaranteeBytesPerSecond: 3_000_000, CeilingBytesPerSecond: 4_000_000}
	contracts, err := contract.NewSet([]contract.Contract{
		{Owner: contract.Owner{Tenant: "red"}, Send: send, Receive: receive},
		{Owner: contract.Owner{Tenant: "red", Port: "db"}, Send: send, Receive: send},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Set([]scheduling.Link{{Device: "up0", RateBytesPerSecond: 12_500_000, Headroom: 0.05}}, contracts)
	return &fakeScheduling{Reconciler: r}
}

func TestWithoutSchedulingThereIsNothingToShow(t *testing.T) {
	r := newRig(t)
	for path, want := range map[string]string{
		"/v1/desired": `{"links":[],"contracts":[]}`,
		"/v1/actual":  `{"devices":[],"drift":[]}`,
		"/v1/pairs":   `{"pairs":[],"peers":[]}`,
	} {
		if raw := strings.TrimSpace(read(t, r.do("GET", path, ""))); raw != want {
			t.Errorf("%s: %s, want %s", path, raw, want)
		}
	}
	if raw := strings.TrimSpace(read(t, r.do("POST", "/v1/reconcile", ""))); raw != `{"devices":[],"drift":[]}` {
		t.Errorf("reconcile: %s", raw)
	}
}

func TestDesiredShowsLinksAndContracts(t *testing.T) {
	r := newRig(t)
	r.server.SetScheduling(newScheduling(t))
	want := `{"links":[{"device":"up0","rate_bytes_per_second":12500000,"limit_bytes_per_second":11875000}],"contracts":[` +
		`{"contract":"red","tenant":"red","from_tenant":{"guarantee_bytes_per_second":1000000,"ceiling_bytes_per_second":2000000},` +
		`"to_tenant":{"guarantee_bytes_per_second":3000000,"ceiling_bytes_per_second":4000000}},` +
		`{"contract":"red/db","tenant":"red","port":"db","from_tenant":{"guarantee_bytes_per_second":1000000,"ceiling_bytes_per_second":2000000},` +
		`"to_tenant":{"guarantee_bytes_per_second":1000000,"ceiling_bytes_per_second":2000000}}]}`
	if raw := strings.TrimSpace(read(t, r.do("GET", "/v1/desired", ""))); raw != want {
		t.Errorf("got\n%s\nwant\n%s", raw, want)
	}
}

func TestActualShowsTheKernelAndTheLastDrift(t *testing.T) {
	r := newRig(t)
	s := newScheduling(t)
	s.devices = []scheduling.Device{{Device: "up0", Direction: "from_tenant", Classes: []scheduling.ActualClass{{Class: "1150:1", Parent: "root", Guarantee: 5}}}}
	s.drift = []scheduling.Drift{{Device: "up0", Object: "class 1150:1", State: "changed", Action: "repaired", Seen: time.Unix(1, 0).UTC()}}
	r.server.SetScheduling(s)
	var got actualJSON
	r.get("/v1/actual", &got)
	if len(got.Devices) != 1 || got.Devices[0].Classes[0].Guarantee != 5 || len(got.Drift) != 1 || got.Drift[0] != s.drift[0] {
		t.Errorf("%+v", got)
	}
	if raw := read(t, r.do("POST", "/v1/reconcile", "")); !strings.Contains(raw, `"repaired"`) {
		t.Errorf("reconcile: %s", raw)
	}
	s.err = errors.New("no such device")
	for method, path := range map[string]string{"GET": "/v1/actual", "POST": "/v1/reconcile"} {
		resp := r.do(method, path, "")
		if raw := read(t, resp); resp.StatusCode != 500 || !strings.Contains(raw, "no such device") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, raw)
		}
	}
}

func TestPairsShowTheKernelsLimitsWithWhatTheLoopKnows(t *testing.T) {
	r := newRig(t)
	to := vport.Destination{192, 168, 0, 2}
	r.node.pairs = []vport.PairState{
		{Pair: vport.Pair{Rate: 3_000_000, Class: 0x11508000, TTL: 1500 * time.Millisecond}, Index: 1, Destination: to, Age: 3 * time.Second, OfferedBytes: 7, DroppedBytes: 5, DroppedPackets: 3},
		{Pair: vport.Pair{Rate: 1_000_000, TTL: time.Second}, Index: 2, Destination: vport.Everything},
		{Pair: vport.Pair{Rate: 1, TTL: time.Second}, Index: 99, Destination: to}, // of an interface that is no port
	}
	heard := time.Unix(1_700_000_000, 0)
	r.server.SetLoop(&fakeLoop{
		limits: []control.Limit{
			{LimitKey: control.LimitKey{Port: "p-red", Destination: control.Address(to)}, Rate: 3e6, Floor: 2e6, Severity: 4},
			{LimitKey: control.LimitKey{Port: "p-blue", Destination: control.Address(to)}, Floor: 9e9}, // of another destination
		},
		peers: []fastloop.PeerView{
			{Node: "n2", Address: netip.MustParseAddrPort("192.0.2.2:9876"), Known: true, HeardAt: heard},
			{Node: "n3", Address: netip.MustParseAddrPort("192.0.2.3:9876"), Unresponsive: true},
		},
	})
	var got struct {
		Pairs []pairJSON
		Peers []peerJSON
	}
	r.get("/v1/pairs", &got)
	want := []pairJSON{
		{Port: "p-red", Tenant: "red", Destination: "192.168.0.2", Rate: 3_000_000, Floor: 2e6, Severity: 4, Shaped: true, Age: 3, ExpiresIn: 1.5, OfferedBytes: 7, PolicedBytes: 5, PolicedPackets: 3},
		{Port: "p-blue", Tenant: "blue", Rate: 1_000_000, ExpiresIn: 1},
		{Destination: "192.168.0.2", Rate: 1, ExpiresIn: 1},
	}
	if len(got.Pairs) != 3 || got.Pairs[0] != want[0] || got.Pairs[1] != want[1] || got.Pairs[2] != want[2] {
		t.Errorf("pairs %+v, want %+v", got.Pairs, want)
	}
	if len(got.Peers) != 2 || !got.Peers[0].Known || got.Peers[0].HeardAt == nil || !got.Peers[0].HeardAt.Equal(heard) || got.Peers[0].Address != "192.0.2.2:9876" {
		t.Errorf("peers %+v", got.Peers)
	}
	if p := got.Peers[1]; p.Known || p.HeardAt != nil || !p.Unresponsive {
		t.Errorf("a peer that was never heard: %+v", p)
	}
}
