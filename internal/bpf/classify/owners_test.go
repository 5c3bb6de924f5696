package classify

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"vigia/internal/testutil"
)

func TestOwnersBecomeExactlyWhatIsWanted(t *testing.T) {
	dir := testutil.NewBPFFS(t)
	if got, err := Owners(dir); err != nil || len(got) != 0 {
		t.Errorf("before there is an enforcer: %v, %v", got, err)
	}
	p, err := Open(dir, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	long := strings.Repeat("p", labelSize)
	many := make(map[uint32]Owner)
	for i := range uint32(1000) {
		many[0x11504100+i] = Owner{Tenant: "red", Port: fmt.Sprint(i)}
	}
	for _, want := range []map[uint32]Owner{
		{classA: {Tenant: "red"}, classB: {Tenant: "blue", Port: long}},
		{classA: {Tenant: "red", Port: "p1"}, 0x11500303: {Tenant: "green"}},
		many,
		nil,
	} {
		for range 2 { // again without a difference
			if err := p.SetOwners(want); err != nil {
				t.Fatal(err)
			}
			if got, err := Owners(dir); err != nil || !maps.Equal(got, want) {
				t.Errorf("%d owners, %v; want %d", len(got), err, len(want))
			}
		}
	}
}

func TestOwnersOutliveTheProcess(t *testing.T) {
	dir := testutil.NewBPFFS(t)
	p, err := Open(dir, 4)
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint32]Owner{classA: {Tenant: "red", Port: "p1"}}
	if err := p.SetOwners(want); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if got, err := Owners(dir); err != nil || !maps.Equal(got, want) {
		t.Errorf("owners %v, %v; want %v", got, err, want)
	}
	if p, err = Open(dir, 4); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got, err := readOwners(p.owners); err != nil || !maps.Equal(got, want) {
		t.Errorf("the next process finds %v, %v", got, err)
	}
}

func TestOwnersOfAnotherVersionAreRefused(t *testing.T) {
	dir := testutil.NewBPFFS(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: ownersPin, Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Pin(filepath.Join(dir, ownersPin)); err != nil {
		t.Fatal(err)
	}
	if _, err := Owners(dir); err == nil || !strings.Contains(err.Error(), "bring exporter and enforcer to the same") {
		t.Errorf("got %v", err)
	}
	p, err := Open(dir, 4) // who writes it starts over
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got, err := Owners(dir); err != nil || len(got) != 0 {
		t.Errorf("owners %v, %v", got, err)
	}
}
