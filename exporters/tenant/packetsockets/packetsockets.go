// Package packetsockets is the source of what Open vSwitch's userspace datapath
// loses before it sees it: packets that find the receive buffer of a port's packet
// socket full. No drop event of the kernel covers them.
package packetsockets

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
	"vigia/internal/ports"
	"vigia/internal/sockdiag"
)

// Sockets lists packet sockets. *sockdiag.Conn is one.
type Sockets interface {
	PacketSockets() ([]sockdiag.PacketSocket, error)
}

// Source attributes the drops of packet sockets to ports.
type Source struct {
	sockets Sockets
	pidFile string // of ovs-vswitchd
	owned   map[uint32]bool
	last    map[uint32]uint32 // drops by inode of the socket
	totals  map[int]uint64    // by interface
}

// New returns the source. rundir is where ovs-vswitchd keeps its pid file, which
// tells its sockets from those of a tcpdump beside it.
func New(sockets Sockets, rundir string) *Source {
	return &Source{
		sockets: sockets, pidFile: filepath.Join(rundir, "ovs-vswitchd.pid"),
		last: make(map[uint32]uint32), totals: make(map[int]uint64),
	}
}

// Name is the collector's name.
func (s *Source) Name() string { return "packet_socket" }

// AttributesDrops marks a source that adds to View.Drops.
func (s *Source) AttributesDrops() {}

// Collect adds the drops. What a new socket has dropped counts from zero, so that a
// restart of ovs-vswitchd takes nothing back.
func (s *Source) Collect(v *source.View, _ *exposition.Page) error {
	all, err := s.sockets.PacketSockets()
	if err != nil {
		return err
	}
	var ours []sockdiag.PacketSocket
	for _, socket := range all {
		if p := v.ByIndex(socket.Index); p != nil && p.DataPlane == ports.OVSUserspace && socket.Protocol == unix.ETH_P_ALL {
			ours = append(ours, socket)
		}
	}
	s.learn(ours)
	last := make(map[uint32]uint32, len(ours))
	for _, socket := range ours {
		if s.owned != nil && !s.owned[socket.Inode] {
			continue
		}
		last[socket.Inode] = socket.Drops
		s.totals[socket.Index] += uint64(socket.Drops - s.last[socket.Inode]) // modulo 2^32
	}
	s.last = last
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

// learn finds out which sockets are ovs-vswitchd's when there are new ones. Where
// it cannot be told, all packet sockets at its ports are taken for its own.
func (s *Source) learn(sockets []sockdiag.PacketSocket) {
	known := s.owned != nil
	for _, socket := range sockets {
		_, ok := s.owned[socket.Inode]
		known = known && ok
	}
	if known {
		return
	}
	inodes, err := socketsOf(s.pidFile)
	if err != nil {
		s.owned = nil
		return
	}
	s.owned = make(map[uint32]bool, len(sockets))
	for _, socket := range sockets {
		s.owned[socket.Inode] = inodes[socket.Inode]
	}
}

const maxDescriptors = 1 << 16

// socketsOf returns the inodes of the sockets that the process of a pid file holds.
func socketsOf(pidFile string) (map[uint32]bool, error) {
	content, err := os.ReadFile(pidFile)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return nil, fmt.Errorf("pid file %s: %w", pidFile, err)
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxDescriptors)
	if err != nil {
		return nil, err
	}
	out := make(map[uint32]bool)
	for _, name := range names {
		target, err := os.Readlink(filepath.Join(dir, name))
		if err != nil {
			continue // closed meanwhile
		}
		number, isSocket := strings.CutPrefix(strings.TrimSuffix(target, "]"), "socket:[")
		if inode, err := strconv.ParseUint(number, 10, 32); isSocket && err == nil {
			out[uint32(inode)] = true
		}
	}
	return out, nil
}
