package scheduling

import (
	"maps"
	"testing"

	"github.com/prometheus/common/promslog"

	"vigia/internal/bpf/classify"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/contract"
)

// TestOthersAreToldWhoseTheClassesAre reads what the exporter reads.
func TestOthersAreToldWhoseTheClassesAre(t *testing.T) {
	n := newNode(t)
	dir := testutil.NewBPFFS(t)
	programs, err := classify.Open(dir, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer programs.Close()
	r, err := NewReconciler(n.ns, programs, promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	list := pair()
	list[1].Owner = contract.Owner{Tenant: "b", Port: "p1"}
	list[1].Matches[0].MAC = [6]byte{2, 0, 0, 0, 0, 1} // as a port's contract needs
	for _, contracts := range [][]contract.Contract{list, list[1:]} {
		r.Set([]Link{link()}, set(t, contracts...))
		if _, err := r.Reconcile(); err != nil {
			t.Fatal(err)
		}
		want := make(map[uint32]classify.Owner)
		for i := range contracts {
			want[r.Desired().ReceiveClass(contracts[i].Owner)] = classify.Owner{Tenant: contracts[i].Tenant, Port: contracts[i].Port}
		}
		if got, err := classify.Owners(dir); err != nil || !maps.Equal(got, want) || len(got) != len(contracts) {
			t.Errorf("owners %v, %v; want %v", got, err, want)
		}
	}
}
