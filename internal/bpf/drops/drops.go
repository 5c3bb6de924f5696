// Package drops counts the packets that the kernel drops in a network namespace,
// by device, reason and protocol, with a program on the raw tracepoint kfree_skb.
//
// Map and link are pinned: counters outlive a restart of the process.
package drops

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"vigia/internal/bpf/vport"
	"vigia/internal/netns"
)

// Event says which packets were dropped where and why.
type Event struct {
	Device   int    // interface index; the one that the packet was on
	Arrival  int    // the interface that received the packet; 0 if none did
	Reason   string // the kernel's name without its prefix, for example NO_SOCKET
	Protocol string // one of vport.Protocols
}

// Counter counts drops.
type Counter struct {
	maps    dropsMaps
	program *ebpf.Program
	reasons Reasons
	pinDir  string

	mu     sync.Mutex // for what a reading is kept in
	keys   []dropsEvent
	counts []uint64
}

// piece is how many entries are read at a time.
const piece = 2048

// attachMethod is how the program gets onto the tracepoint.
type attachMethod struct {
	program string
	attach  func(*ebpf.Program) (link.Link, error)
}

// attachMethods lists them, the one to be preferred first. Both programs do the same.
func attachMethods() []attachMethod {
	return []attachMethod{
		{"drop_event_typed", func(p *ebpf.Program) (link.Link, error) {
			return link.AttachTracing(link.TracingOptions{Program: p, AttachType: ebpf.AttachTraceRawTp})
		}},
		{"drop_event", func(p *ebpf.Program) (link.Link, error) {
			return link.AttachRawTracepoint(link.RawTracepointOptions{Name: "kfree_skb", Program: p})
		}},
	}
}

const (
	pinFolder = "drops"
	linkPin   = "kfree_skb"
)

// ErrUnsupported means that the kernel does not tell why it drops (Linux 5.17).
var ErrUnsupported = errors.New("the kernel gives no drop reasons (Linux 5.17)")

// Open starts to count drops in the namespace of the node's ports, or takes over
// what another process pinned below pinDir.
func Open(pinDir, nameOrPath string) (*Counter, error) {
	reasons, err := KernelReasons()
	if err != nil {
		return nil, err
	}
	inode, err := namespace(nameOrPath)
	if err != nil {
		return nil, err
	}
	if err := vport.CheckBPFFS(pinDir); err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise RLIMIT_MEMLOCK: %w", err)
	}
	for _, m := range attachMethods() {
		c := &Counter{reasons: reasons, pinDir: filepath.Join(pinDir, pinFolder)}
		if err = c.start(m, inode); err == nil {
			return c, nil
		}
		c.Close()
	}
	return nil, fmt.Errorf("count drops: %w", err)
}

// start loads one of the programs and attaches it.
func (c *Counter) start(m attachMethod, inode uint32) error {
	if err := c.load(m.program); err != nil {
		return err
	}
	set := dropsSettings{Netns: inode, Ignored: c.reasons.Number(socketFilter)}
	if err := c.maps.DropSet.Put(uint32(0), set); err != nil {
		return fmt.Errorf("write drop settings: %w", err)
	}
	if err := c.attach(m); err != nil {
		return fmt.Errorf("attach to kfree_skb: %w", err)
	}
	return nil
}

// namespace returns the inode that tells the namespace apart in the kernel, which
// has 32 bits.
func namespace(nameOrPath string) (uint32, error) {
	ns, err := netns.Open(nameOrPath)
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	inode, err := ns.Inode()
	return uint32(inode), err
}

// socketFilter is what packet sockets that look for something else say of every
// packet: millions beside an Open vSwitch, and no loss.
const socketFilter = "SOCKET_FILTER"

func (c *Counter) load(program string) error {
	if err := os.MkdirAll(c.pinDir, 0o700); err != nil {
		return err
	}
	err := c.loadObjects(program)
	if errors.Is(err, ebpf.ErrMapIncompatible) { // pins of another version
		if err := remove(c.pinDir); err != nil {
			return err
		}
		if err := os.MkdirAll(c.pinDir, 0o700); err != nil {
			return err
		}
		err = c.loadObjects(program)
	}
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("not permitted; the process needs CAP_BPF and CAP_PERFMON: %w", err)
	}
	return err
}

func (c *Counter) loadObjects(program string) error {
	spec, err := loadDrops()
	if err != nil {
		return err
	}
	for _, name := range []string{"drop_count", "drop_lost", "drop_set"} {
		spec.Maps[name].Pinning = ebpf.PinByName
	}
	for name, reason := range map[string]string{"not_specified": "NOT_SPECIFIED", "pkt_too_big": "PKT_TOO_BIG"} {
		if err := spec.Variables[name].Set(c.reasons.Number(reason)); err != nil {
			return fmt.Errorf("set the reason %s: %w", reason, err)
		}
	}
	for name := range spec.Programs {
		if name != program {
			delete(spec.Programs, name)
		}
	}
	all, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: c.pinDir}})
	if err != nil {
		return err
	}
	defer all.Close() // of what is not assigned
	c.program = all.DetachProgram(program)
	return all.Assign(&c.maps)
}

// attach keeps a pinned link of the same program, and replaces one of another
// build: such links cannot be updated in place, so that two count for an instant
// rather than none.
func (c *Counter) attach(m attachMethod) error {
	pin := filepath.Join(c.pinDir, linkPin)
	old, err := link.LoadPinnedLink(pin, nil)
	if err == nil {
		defer old.Close()
		if same, err := sameProgram(old, c.program); err != nil || same {
			return err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := m.attach(c.program)
	if errors.Is(err, unix.EINVAL) {
		return ErrUnsupported // the program reads an argument that is not there
	}
	if err != nil {
		return err
	}
	defer l.Close()
	if old != nil {
		if err := old.Unpin(); err != nil {
			return err
		}
	}
	return l.Pin(pin)
}

// sameProgram tells whether a link's program does the same. To look at it takes CAP_SYS_ADMIN: without, it is another
// one, and is replaced.
func sameProgram(l link.Link, want *ebpf.Program) (bool, error) {
	info, err := l.Info()
	if err != nil {
		return false, err
	}
	have, err := ebpf.NewProgramFromID(info.Program)
	if errors.Is(err, unix.EPERM) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer have.Close()
	a, err := have.Info()
	if err != nil {
		return false, err
	}
	b, err := want.Info()
	if err != nil {
		return false, err
	}
	return a.Tag == b.Tag, nil
}

// Close lets go of the counters, which go on counting.
func (c *Counter) Close() error {
	var err error
	if c.program != nil {
		err = c.program.Close()
	}
	if c.maps.DropSet != nil {
		err = errors.Join(err, c.maps.Close())
	}
	return err
}

// Uninstall ends counting for good and removes every pin below pinDir.
func Uninstall(pinDir string) error { return remove(filepath.Join(pinDir, pinFolder)) }

func remove(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove pins of drops: %w", err)
	}
	return nil
}

// Read calls each for the drops since counting began, with an event that is its own
// only during the call. What neither belongs to a device for which keep is true nor
// came in by one is forgotten when the map fills up.
func (c *Counter) Read(keep func(index int) bool, each func(e *Event, count uint64)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	cpus := ebpf.MustPossibleCPU()
	if c.keys == nil {
		c.keys, c.counts = make([]dropsEvent, piece), make([]uint64, piece*cpus)
	}
	var foreign []dropsEvent
	var cursor ebpf.MapBatchCursor
	for entries, last := 0, false; !last; {
		n, err := c.maps.DropCount.BatchLookup(&cursor, c.keys, c.counts, nil)
		if last = errors.Is(err, ebpf.ErrKeyNotExist); err != nil && !last {
			return fmt.Errorf("read drops: %w", err)
		}
		entries += n
		for i, key := range c.keys[:n] {
			if !keep(int(key.Device)) && !keep(int(key.Arrival)) {
				foreign = append(foreign, key)
			}
			e := Event{Device: int(key.Device), Arrival: int(key.Arrival), Reason: c.reasons.Name(key.Reason), Protocol: protocolName(key.Protocol)}
			each(&e, sum(c.counts[i*cpus:(i+1)*cpus]))
		}
		if last && entries <= int(c.maps.DropCount.MaxEntries())/2 {
			return nil
		}
	}
	for _, k := range foreign {
		if err := c.maps.DropCount.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget drops: %w", err)
		}
	}
	return nil
}

// Lost returns how many drops found no place in the map.
func (c *Counter) Lost() (uint64, error) {
	var perCPU []uint64
	if err := c.maps.DropLost.Lookup(uint32(0), &perCPU); err != nil {
		return 0, fmt.Errorf("read lost drops: %w", err)
	}
	return sum(perCPU), nil
}

func sum(perCPU []uint64) (total uint64) {
	for _, n := range perCPU {
		total += n
	}
	return total
}

func protocolName(n uint32) string {
	names := vport.Protocols()
	if int(n) < len(names) {
		return names[n]
	}
	return names[len(names)-1]
}
