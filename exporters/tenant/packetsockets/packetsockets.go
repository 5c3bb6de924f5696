// Package packetsockets is the source of what Open vSwitch's userspace datapath
// loses before it sees it: packets that find the receive buffer of a port's packet
// socket full. No drop event of the kernel covers them.
package packetsockets

import (
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
	"vigia/internal/ports"
	"vigia/internal/sockdiag"
	"vigia/internal/unixctl"
)

// Sockets lists packet sockets. *sockdiag.Conn is one.
type Sockets interface {
	// PacketSockets appends them to into.
	PacketSockets(into []sockdiag.PacketSocket) ([]sockdiag.PacketSocket, error)
}

// Source attributes the drops of packet sockets to ports.
type Source struct {
	sockets    Sockets
	runDir     string // of ovs-vswitchd's pid file
	list       []sockdiag.PacketSocket
	known      []socket       // those of list, in its order
	identified bool           // whether it is known which are the switch's own
	totals     map[int]uint64 // by interface, of those that have dropped any
}

// socket is what is known of a socket at a port of the switch.
type socket struct {
	inode uint32
	owned bool   // by ovs-vswitchd
	last  uint32 // drops
}

// New returns the source. runDir is where ovs-vswitchd keeps its pid file, which
// tells its sockets from those of a tcpdump beside it.
func New(sockets Sockets, runDir string) *Source {
	return &Source{sockets: sockets, runDir: runDir, totals: make(map[int]uint64)}
}

// AttributesDrops marks a source that adds to View.Drops.
func (s *Source) AttributesDrops() {}

// Collect adds the drops. What a new socket has dropped counts from zero, so that a
// restart of ovs-vswitchd takes nothing back.
func (s *Source) Collect(v *source.View, _ *exposition.Page) (err error) {
	if s.list, err = s.sockets.PacketSockets(s.list[:0]); err != nil {
		return err
	}
	s.list = slices.DeleteFunc(s.list, func(socket sockdiag.PacketSocket) bool {
		p := v.ByIndex(socket.Index)
		return p == nil || p.DataPlane != ports.OVSUserspace || socket.Protocol != unix.ETH_P_ALL
	})
	s.identify()
	for i := range s.list {
		now, k := &s.list[i], &s.known[i]
		if s.identified && !k.owned {
			continue
		}
		if more := now.Drops - k.last; more > 0 { // modulo 2^32
			s.totals[now.Index] += uint64(more)
			k.last = now.Drops
		}
	}
	for index, count := range s.totals {
		p := v.ByIndex(index)
		if p == nil {
			delete(s.totals, index)
			continue
		}
		v.Drops.Add(p.ID, p.Tenant, source.FromTenant, source.QueueFull, count, source.Beside)
	}
	return nil
}

// identify finds out which sockets are ovs-vswitchd's when there are new ones. Where
// that is not known, all packet sockets at its ports are taken for its own.
func (s *Source) identify() {
	same := slices.EqualFunc(s.list, s.known, func(now sockdiag.PacketSocket, k socket) bool { return now.Inode == k.inode })
	if same && s.identified {
		return
	}
	before := make(map[uint32]socket, len(s.known))
	for _, k := range s.known {
		before[k.inode] = k
	}
	s.known = s.known[:0]
	for i := range s.list {
		k, ok := before[s.list[i].Inode]
		s.identified = s.identified && ok
		k.inode = s.list[i].Inode
		s.known = append(s.known, k)
	}
	if s.identified {
		return
	}
	inodes, err := ownSockets(s.runDir)
	s.identified = err == nil
	for i := range s.known {
		s.known[i].owned = inodes[s.known[i].inode]
	}
}

// ownSockets returns the inodes of the sockets that ovs-vswitchd holds.
func ownSockets(runDir string) (map[uint32]bool, error) {
	pid, err := unixctl.PID(runDir, "ovs-vswitchd")
	if err != nil {
		return nil, err
	}
	process, err := procfs.NewProc(pid)
	if err != nil {
		return nil, err
	}
	targets, err := process.FileDescriptorTargets()
	if err != nil {
		return nil, err
	}
	out := make(map[uint32]bool)
	for _, target := range targets {
		number, isSocket := strings.CutPrefix(strings.TrimSuffix(target, "]"), "socket:[")
		if inode, err := strconv.ParseUint(number, 10, 32); isSocket && err == nil {
			out[uint32(inode)] = true
		}
	}
	return out, nil
}
