package classify

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
)

// Owner is whose frames a class takes: those of one port of a tenant, or of all its ports
// on the node that have no class of their own.
type Owner struct{ Tenant, Port string }

const (
	ownersPin  = "class_owner"
	mostOwners = 8192
	labelSize  = 128 // bytes of an id, see ports.ValidID
	noPrealloc = 1   // BPF_F_NO_PREALLOC
)

// ownerValue is an owner as the map has it: major:minor of the class -> owner.
type ownerValue struct{ Tenant, Port [labelSize]byte }

func (o Owner) value() (v ownerValue) {
	copy(v.Tenant[:], o.Tenant)
	copy(v.Port[:], o.Port)
	return v
}

func (v *ownerValue) owner() Owner {
	text := func(b []byte) string { return strings.TrimRight(string(b), "\x00") }
	return Owner{Tenant: text(v.Tenant[:]), Port: text(v.Port[:])}
}

func openOwners(dir string) (*ebpf.Map, error) {
	m, err := ebpf.NewMapWithOptions(&ebpf.MapSpec{
		Name: ownersPin, Type: ebpf.Hash, KeySize: 4, ValueSize: 2 * labelSize, MaxEntries: mostOwners, Flags: noPrealloc, Pinning: ebpf.PinByName,
	}, ebpf.MapOptions{PinPath: dir})
	if err != nil {
		return nil, fmt.Errorf("open map %s: %w", ownersPin, err)
	}
	return m, nil
}

// SetOwners makes want, from major:minor to owner, the whole content of the map of owners,
// for those who read what classes drop.
func (p *Programs) SetOwners(want map[uint32]Owner) error {
	have, err := readOwners(p.owners)
	if err != nil {
		return err
	}
	for class, owner := range want {
		if have[class] == owner {
			continue
		}
		if err := p.owners.Put(class, owner.value()); err != nil {
			return fmt.Errorf("write owner of class %x: %w", class, err)
		}
	}
	for class := range have {
		if _, wanted := want[class]; wanted {
			continue
		}
		if err := p.owners.Delete(class); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove owner of class %x: %w", class, err)
		}
	}
	return nil
}

// Owners returns whose the classes are, by major:minor, as another process pinned it in
// dir; nobody's while none has.
func Owners(dir string) (map[uint32]Owner, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, ownersPin), &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open map %s: %w", ownersPin, err)
	}
	defer m.Close()
	if m.KeySize() != 4 || m.ValueSize() != 2*labelSize {
		return nil, fmt.Errorf("map %s is of another version; bring exporter and enforcer to the same", ownersPin)
	}
	return readOwners(m)
}

func readOwners(m *ebpf.Map) (map[uint32]Owner, error) {
	out := make(map[uint32]Owner)
	var class uint32
	var v ownerValue
	it := m.Iterate()
	for it.Next(&class, &v) {
		out[class] = v.owner()
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("list owners of classes: %w", err)
	}
	return out, nil
}
