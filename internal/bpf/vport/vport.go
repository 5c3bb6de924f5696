// Package vport attaches one BPF program to each tenant-facing port and reads
// what it counts: bytes and packets by protocol, flood signals in 100 ms windows,
// and what a limit dropped.
//
// The maps and links are pinned below a directory of a bpffs. Exporter and
// enforcer share them: whichever runs keeps ports attached, and counters and
// limits outlive a restart of either.
package vport

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"vigia/internal/netns"
)

// Hook says where the program that sees the tenant's packets sits.
type Hook uint32

// The hooks. Packet sockets, through which Open vSwitch's userspace datapath
// reads its ports, are served before tc but after XDP: only XDP can drop there. A
// device that is the tenant's own end, as an OVS internal port's or a macvlan, sees
// everything the other way round: what it transmits, the tenant sends.
const (
	TCX       Hook = 1
	XDP       Hook = 2
	TCXTenant Hook = 3
)

func (h Hook) String() string {
	switch h {
	case TCX:
		return "tcx"
	case XDP:
		return "xdp"
	case TCXTenant:
		return "tcx-tenant"
	}
	return fmt.Sprintf("hook(%d)", uint32(h))
}

// Direction is seen from the tenant.
type Direction int

// The directions, in the order of the kernel's counters.
const (
	FromTenant Direction = iota
	ToTenant
)

// Directions names the directions as label values, indexed by Direction.
func Directions() [2]string { return [2]string{"from_tenant", "to_tenant"} }

// Protocols names the protocols as label values, in the order of the kernel's counters.
func Protocols() [6]string {
	return [6]string{"tcp", "udp", "icmp", "arp_nd", "fragment", "other"}
}

// SizeBounds are the upper bounds, in bytes, of the ranges in which frames are
// counted by size: powers of two, then the longest Ethernet frame with a tag and
// without its checksum, then jumbo frames. What is longer has no bound.
func SizeBounds() [7]float64 { return [7]float64{64, 128, 256, 512, 1024, 1518, 9018} }

// Indices into the protocol dimension that the policer cares about.
const (
	protocolTCP      = 0
	protocolUDP      = 1
	protocolFragment = 4
)

// Settings say when a 100 ms window of a vport's UDP counts as a flood.
type Settings struct {
	MinPackets      uint32        // UDP packets to one destination
	MinPorts        uint32        // set bits of the 1024-bit port spread
	MaxReplyPercent uint32        // UDP packets back from it, per 100 sent
	Quiet           time.Duration // a flood after so long a pause is a new episode
}

// DefaultSettings are 2 000 packets a second to at least about 100 ports (95 bits)
// of one destination that answers almost nothing.
func DefaultSettings() Settings {
	return Settings{MinPackets: 200, MinPorts: 95, MaxReplyPercent: 5, Quiet: 2 * time.Second}
}

// Options say where the programs work.
type Options struct {
	PinDir   string // directory on a bpffs, made if it is missing
	NetNS    string // network namespace of the ports; empty for the process's own
	MaxPorts int    // ports at most; 0 for 1024

	Attachment Attachment // empty for Auto
}

const defaultMaxPorts = 1024

// Manager attaches programs to ports and reads and writes their maps.
type Manager struct {
	objects      vportObjects
	netns        *netns.NS
	pinDir       string
	maxPorts     int
	tenantTotals *TenantTotals
	classDrops   *ClassDrops

	pairs sync.Mutex // held across writing limits to destinations, and sweeping; the fast loop's alone
	swept bool       // no limit to a destination is left that this process knows of
	// Of the one who holds it: what is read a hundred times a second must not make a garbage collector run.
	pairsNow, pairsBefore vportPairs
	pairsSpent            vportPairsSpent

	contractMu sync.Mutex // held across reading and writing an entry of vport_contract
	nsName     string
	attachment Attachment

	scratch      Snapshot // of the one who holds the lock of the pin directory
	rcuExpedited string   // the switch's file, see ExpediteRCU
}

// Open loads the programs, or takes over the maps that another process pinned.
func Open(o Options) (*Manager, error) {
	if o.MaxPorts == 0 {
		o.MaxPorts = defaultMaxPorts
	}
	if err := CheckBPFFS(o.PinDir); err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise RLIMIT_MEMLOCK (needs CAP_SYS_RESOURCE before Linux 5.11): %w", err)
	}
	ns, err := netns.Open(o.NetNS)
	if err != nil {
		return nil, err
	}
	m := &Manager{netns: ns, pinDir: o.PinDir, maxPorts: o.MaxPorts, nsName: o.NetNS, attachment: o.Attachment, rcuExpedited: rcuExpedited}
	if err := m.locked(m.load); err != nil {
		ns.Close()
		return nil, fmt.Errorf("load BPF programs for %s: %w", o.PinDir, err)
	}
	return m, nil
}

// Close lets go of the maps. What is attached stays attached.
func (m *Manager) Close() error {
	return errors.Join(m.objects.Close(), m.tenantTotals.Close(), m.classDrops.Close(), m.netns.Close())
}

// CheckBPFFS makes the pin directory if it lies on a bpffs, and nothing otherwise.
func CheckBPFFS(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("bpf.pin_dir %q: write an absolute path on a bpffs, for example /sys/fs/bpf/vigia", dir)
	}
	existing := filepath.Clean(dir)
	var st unix.Statfs_t
	for {
		err := unix.Statfs(existing, &st)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || existing == "/" {
			return fmt.Errorf("look at bpf.pin_dir %s: %w", dir, err)
		}
		existing = filepath.Dir(existing)
	}
	if st.Type != unix.BPF_FS_MAGIC {
		return fmt.Errorf("bpf.pin_dir %s is not on a bpffs; run: mount -t bpf bpf %s", dir, existing)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make bpf.pin_dir: %w", err)
	}
	return nil
}

// locked runs fn while no other process changes the pins of this directory.
func (m *Manager) locked(fn func() error) error {
	dir, err := os.Open(m.pinDir)
	if err != nil {
		return fmt.Errorf("open pin directory: %w", err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock pin directory %s: %w", m.pinDir, err)
	}
	return fn()
}

func (m *Manager) mapDir() string  { return filepath.Join(m.pinDir, "maps") }
func (m *Manager) linkDir() string { return filepath.Join(m.pinDir, "links") }

func (m *Manager) load() error {
	for _, dir := range []string{m.mapDir(), m.linkDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	err := m.loadObjects()
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		// Pins of another version or size: start over. Limits expire by
		// themselves, so losing them loses no guarantee.
		if err := m.removePins(); err != nil {
			return err
		}
		err = m.loadObjects()
	}
	if err != nil {
		return explainLoad(err, kernelRelease())
	}
	return errors.Join(m.drawSeed(), m.shortenLimits(), m.endLeftExpedited(), m.updateLinks(), m.removeOutdated())
}

// removeOutdated removes the pins of maps that programs of versions before this one had.
func (m *Manager) removeOutdated() error {
	const pairs = "vport_pair" // limits to destinations
	if err := os.Remove(filepath.Join(m.mapDir(), pairs)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the pin of an earlier version: %w", err)
	}
	return nil
}

func (m *Manager) loadObjects() error {
	spec, err := loadVport()
	if err != nil {
		return err
	}
	if err := spec.Variables[vportVarPlaceMask].Set(m.placeMask()); err != nil {
		return fmt.Errorf("set place_mask: %w", err)
	}
	for name, ms := range spec.Maps {
		if strings.HasPrefix(name, ".") { // constants are the program's own, and a pin has no dot
			continue
		}
		if name != vportMapVportSlots && name != vportMapVportSet && name != vportMapVportSeed && name != vportMapVportShape {
			ms.MaxEntries = uint32(m.maxPorts)
		}
		ms.Pinning = ebpf.PinByName
	}
	if m.tenantTotals, err = openTenantTotals(m.mapDir(), uint32(m.maxPorts)); err != nil {
		return err
	}
	if m.classDrops, err = openClassDrops(m.mapDir(), uint32(m.maxPorts)); err != nil {
		return errors.Join(err, m.tenantTotals.Close())
	}
	err = spec.LoadAndAssign(&m.objects, &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: m.mapDir()}})
	if err != nil {
		return errors.Join(err, m.tenantTotals.Close(), m.classDrops.Close())
	}
	return nil
}

// drawSeed draws what hashes begin with, unless another process has.
func (m *Manager) drawSeed() error {
	var seed vportSeed
	if err := m.objects.VportSeed.Lookup(uint32(0), &seed); err != nil {
		return fmt.Errorf("read seed of hashes: %w", err)
	}
	if seed.Times != 0 {
		return nil
	}
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return fmt.Errorf("draw seed of hashes: %w", err)
	}
	seed.Add, seed.Times = binary.NativeEndian.Uint64(random[:]), binary.NativeEndian.Uint64(random[8:])|1
	if err := m.objects.VportSeed.Put(uint32(0), seed); err != nil {
		return fmt.Errorf("write seed of hashes: %w", err)
	}
	return nil
}

// explainLoad says what to do about programs that the kernel of a release, such as 6.1.0-18-amd64, does not take.
func explainLoad(err error, release string) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("not permitted; the process needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON: %w", err)
	}
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n == 2 && (major < oldestMajor || major == oldestMajor && minor < oldestMinor) {
		return fmt.Errorf("the node's kernel, %s, is too old; run Linux %d.%d or later: %w", release, oldestMajor, oldestMinor, err)
	}
	return err
}

// The oldest kernel that has what the programs use, as the documentation says.
const oldestMajor, oldestMinor = 5, 18

func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "" // nobody has to know it
	}
	return unix.ByteSliceToString(name.Release[:])
}

// SetSettings changes when a window counts as a flood.
func (m *Manager) SetSettings(s Settings) error {
	v := vportSettings{MinPackets: s.MinPackets, MinPorts: s.MinPorts, MaxReplyPercent: s.MaxReplyPercent, QuietNs: uint64(s.Quiet)}
	if err := m.objects.VportSet.Put(uint32(0), v); err != nil {
		return fmt.Errorf("write flood settings: %w", err)
	}
	return nil
}

// EnsureSettings writes s unless another process has set something already.
func (m *Manager) EnsureSettings(s Settings) error {
	return m.locked(func() error {
		var v vportSettings
		if err := m.objects.VportSet.Lookup(uint32(0), &v); err != nil {
			return fmt.Errorf("read flood settings: %w", err)
		}
		if v.MinPackets != 0 {
			return nil
		}
		return m.SetSettings(s)
	})
}

// Uninstall detaches every program and removes every pin of the directory.
func (m *Manager) Uninstall() error {
	return m.locked(m.removePins)
}

func (m *Manager) removePins() error {
	links, err := os.ReadDir(m.linkDir())
	if err != nil {
		return fmt.Errorf("list pins: %w", err)
	}
	end := m.ExpediteRCU(len(links))
	return errors.Join(m.removeAllPins(), end())
}

func (m *Manager) removeAllPins() error {
	for dir, remove := range map[string]func(string) error{m.linkDir(): m.unlink, m.mapDir(): os.Remove} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("list pins: %w", err)
		}
		for _, e := range entries {
			if err := remove(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("remove pin %s: %w", e.Name(), err)
			}
		}
	}
	return nil
}

// Monotonic returns CLOCK_MONOTONIC, the clock of the BPF programs, in nanoseconds.
func Monotonic() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // cannot fail with a valid clock and pointer
	}
	return uint64(ts.Nano())
}

// WallTime converts a CLOCK_MONOTONIC instant of the recent past to wall time. Who gets no processor between the
// readings of the two clocks reads them again, a few times.
func WallTime(monotonic uint64) time.Time {
	const tries, near = 8, 20 * time.Microsecond
	var found time.Time
	best := time.Duration(math.MaxInt64)
	for range tries {
		wall := time.Now()
		now := Monotonic()
		if apart := time.Since(wall); apart < best {
			best, found = apart, wall.Add(-time.Duration(now-monotonic))
		}
		if best <= near {
			break
		}
	}
	return found
}
