// Package classify holds the BPF programs that tell an HTB qdisc on a node's
// uplink which tenant's class a frame belongs to: by VXLAN or Geneve VNI, GRE
// key, VLAN or MAC address, inside tunnels too. The receiving side also counts
// arrivals by class and by source, before the queue drops.
package classify

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Network says how a tenant's network is told apart on the wire.
type Network uint32

// The networks, as the program numbers them.
const (
	Plain  Network = 0
	VLAN   Network = 1
	VXLAN  Network = 2
	GRE    Network = 3
	Geneve Network = 4
)

// Match is what a class takes. Without a MAC address it is the whole network.
type Match struct {
	Network Network
	ID      uint32 // VLAN, VNI or key; 0 for Plain
	MAC     [6]byte
}

func (m Match) key() classifyMatch {
	k := classifyMatch{Network: uint32(m.Network), Id: m.ID}
	for _, b := range m.MAC {
		k.Mac = k.Mac<<8 | uint64(b)
	}
	return k
}

// Source is who sends into a class, as the receiver sees it.
type Source struct {
	Link        int
	Class       uint32     // major:minor
	Host        [4]byte    // outer source address (an IPv6 one folded); zero outside a tunnel
	Destination Address    // inner destination address (an IPv6 one folded); zero if no IP
	From, To    MACAddress // inner
}

// Address is an IPv4 address, or an IPv6 address folded to 32 bits by exclusive
// or, in network order. It is what the BPF programs tell destinations apart by.
type Address [4]byte

// AddressOf folds an address.
func AddressOf(ip net.IP) Address {
	if v4 := ip.To4(); v4 != nil {
		return Address(v4)
	}
	var a Address
	for i, b := range ip.To16() {
		a[i%4] ^= b
	}
	return a
}

func (a Address) String() string { return net.IP(a[:]).String() }

// MACAddress is a 48-bit MAC address.
type MACAddress [6]byte

func (m MACAddress) String() string { return net.HardwareAddr(m[:]).String() }

// Arrival is what came: for a class since the programs were loaded, from a source since it
// was last taken.
type Arrival struct{ Bytes, Packets uint64 }

// classBatch is how many classes are read by one system call.
const classBatch = 512

// IFBPrefix begins the name of a device behind an uplink's ingress, whose classes take
// what tenants receive. The uplink's own take what they send.
const IFBPrefix = "vigia-ifb"

// LowerEffort is the class, major:minor, of what belongs to no contract and asks for less than best effort: DSCP 1 in
// its innermost IP header (RFC 8622). It is counted with all that has no contract, as class 0.
const LowerEffort uint32 = 0x1150_0003

// Dir is where the maps are pinned, below the directory that exporter and enforcer share.
func Dir(pinDir string) string { return filepath.Join(pinDir, "classify") }

// Room for classes: at least so many, and so many times those that there are.
const (
	minClasses   = 256
	spareClasses = 2
)

// Programs are the loaded programs and their maps.
type Programs struct {
	objects  classifyObjects
	owners   *ebpf.Map
	keys     []classifySource
	values   []classifyArrival
	classes  []classifyClassKey
	arrivals []classifyArrival // of each class by CPU
	cpus     int
	cursor   uint32 // in the map that is read
}

// Open loads the programs, or takes over the maps that an earlier process pinned
// in dir, which lies on a bpffs. They have room for so many classes and a few times more.
func Open(dir string, classes int) (*Programs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make pin directory: %w", err)
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise RLIMIT_MEMLOCK: %w", err)
	}
	p := &Programs{}
	size := uint32(minClasses)
	for size < spareClasses*uint32(classes) {
		size *= 2
	}
	err := p.load(dir, size)
	if errors.Is(err, ebpf.ErrMapIncompatible) { // of another version; filters are replaced by this one's
		for _, name := range []string{"class_match", "class_source", "class_rest", "class_arrival", "class_tunnels", "class_endpoint", ownersPin} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, fmt.Errorf("remove pin: %w", err)
			}
		}
		err = p.load(dir, size)
	}
	if err != nil {
		return nil, fmt.Errorf("load classifiers (needs CAP_BPF and CAP_NET_ADMIN): %w", err)
	}
	sources := int(p.objects.ClassSource.MaxEntries())
	p.keys, p.values = make([]classifySource, sources), make([]classifyArrival, sources)
	p.cpus = ebpf.MustPossibleCPU()
	p.classes, p.arrivals = make([]classifyClassKey, classBatch), make([]classifyArrival, classBatch*p.cpus)
	return p, nil
}

func (p *Programs) load(dir string, classes uint32) error {
	spec, err := loadClassify()
	if err != nil {
		return err
	}
	spec.Maps[classifyMapClassArrival].MaxEntries = classes
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinByName
	}
	if p.owners, err = openOwners(dir); err != nil {
		return err
	}
	if err = spec.LoadAndAssign(&p.objects, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: dir}}); err != nil {
		return errors.Join(err, p.owners.Close())
	}
	return nil
}

// Close lets go of programs and maps. Filters keep those that they use.
func (p *Programs) Close() error { return errors.Join(p.objects.Close(), p.owners.Close()) }

// Send is the classifier for the uplink's egress.
func (p *Programs) Send() *ebpf.Program { return p.objects.ClassifySend }

// Receive is the classifier for the IFB device.
func (p *Programs) Receive() *ebpf.Program { return p.objects.ClassifyReceive }

// All matches everything; its filter's action redirects to the IFB device.
func (p *Programs) All() *ebpf.Program { return p.objects.ClassifyAll }

// SetMatches makes want, from match to class, the whole content of the match
// map and returns how many entries were not as wanted.
func (p *Programs) SetMatches(want map[Match]uint32) (changed int, err error) {
	keep := make(map[classifyMatch]uint32, len(want))
	for m, class := range want {
		keep[m.key()] = class
	}
	var stale []classifyMatch
	var key classifyMatch
	var class uint32
	it := p.objects.ClassMatch.Iterate()
	for it.Next(&key, &class) {
		if to, ok := keep[key]; ok && to == class {
			delete(keep, key)
		} else if !ok {
			stale = append(stale, key)
		}
	}
	if err := it.Err(); err != nil {
		return 0, fmt.Errorf("list matches: %w", err)
	}
	for key, class := range keep {
		if err := p.objects.ClassMatch.Put(key, class); err != nil {
			return changed, fmt.Errorf("write match: %w", err)
		}
		changed++
	}
	for _, key := range stale {
		if err := p.objects.ClassMatch.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return changed, fmt.Errorf("remove match: %w", err)
		}
		changed++
	}
	return changed, nil
}

// Class is a class behind an interface.
type Class struct {
	Link int
	ID   uint32
}

// ClassArrival is what came for a class.
type ClassArrival struct {
	Class
	Arrival
}

// Arrivals appends what came for every class to list, in one or a few system calls
// however many classes there are. While no class comes or goes their order stays. It must
// not be called by two goroutines at once.
func (p *Programs) Arrivals(list []ClassArrival) ([]ClassArrival, error) {
	var from *uint32
	for {
		n, last, err := readBatch(unix.BPF_MAP_LOOKUP_BATCH, p.objects.ClassArrival, from, &p.cursor, p.classes, p.arrivals)
		if err != nil {
			return list, fmt.Errorf("list arrivals: %w", err)
		}
		for i := range n {
			var sum Arrival
			for _, a := range p.arrivals[i*p.cpus : (i+1)*p.cpus] {
				sum.Bytes += a.Bytes
				sum.Packets += a.Packets
			}
			list = append(list, ClassArrival{Class{int(p.classes[i].Ifindex), p.classes[i].Class}, sum})
		}
		if last {
			return list, nil
		}
		from = &p.cursor
	}
}

// Capacity returns how many classes there is room for.
func (p *Programs) Capacity() int { return int(p.objects.ClassArrival.MaxEntries()) }

// Prune forgets the arrivals of classes that are not kept: behind devices that are gone.
func (p *Programs) Prune(keep func(Class) bool) error {
	var key classifyClassKey
	var values []classifyArrival
	var gone []classifyClassKey
	it := p.objects.ClassArrival.Iterate()
	for it.Next(&key, &values) {
		if !keep(Class{int(key.Ifindex), key.Class}) {
			gone = append(gone, key)
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("list arrivals: %w", err)
	}
	for _, key := range gone {
		if err := p.objects.ClassArrival.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget arrivals: %w", err)
		}
	}
	return nil
}

// Arrived returns what came for a class behind an interface, as its queue reckons it.
func (p *Programs) Arrived(link int, class uint32) (Arrival, error) {
	var perCPU []classifyArrival
	err := p.objects.ClassArrival.Lookup(classifyClassKey{Ifindex: uint32(link), Class: class}, &perCPU)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return Arrival{}, nil
	}
	if err != nil {
		return Arrival{}, fmt.Errorf("read arrivals: %w", err)
	}
	var sum Arrival
	for _, a := range perCPU {
		sum.Bytes += a.Bytes
		sum.Packets += a.Packets
	}
	return sum, nil
}

// TakeSources calls fn with every source and what came from it since the last call, and
// forgets them. It takes a few system calls and at most as many turns as there is room
// for sources, however many there are: those beyond come as one for each host, without
// addresses. It must not be called by two goroutines at once.
func (p *Programs) TakeSources(fn func(*Source, Arrival)) error {
	taken, err := p.take(p.objects.ClassSource, fn)
	if err == nil && taken >= int(p.objects.ClassSource.MaxEntries())/2 { // else there was room for all
		_, err = p.take(p.objects.ClassRest, fn)
	}
	if err != nil {
		return fmt.Errorf("take sources: %w", err)
	}
	return nil
}

func (p *Programs) take(m *ebpf.Map, fn func(*Source, Arrival)) (taken int, err error) {
	var from *uint32
	var s Source
	for {
		n, last, err := readBatch(unix.BPF_MAP_LOOKUP_AND_DELETE_BATCH, m, from, &p.cursor, p.keys, p.values)
		if err != nil {
			return taken, err
		}
		for i := range n {
			k, v := &p.keys[i], &p.values[i]
			s = Source{Link: int(k.Ifindex), Class: k.Class, From: k.From, To: k.To}
			putNative(&s.Host, k.Host)
			putNative((*[4]byte)(&s.Destination), k.Destination)
			fn(&s, Arrival{v.Bytes, v.Packets})
		}
		if taken += n; last {
			return taken, nil
		}
		from = &p.cursor
	}
}

func putNative(to *[4]byte, v uint32) {
	for i := range to {
		to[i] = byte(v >> (8 * i)) // the programs are built for little endian
	}
}
