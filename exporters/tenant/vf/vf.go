// Package vf is the source of SR-IOV virtual functions, which only their physical
// functions can count: a VF that a guest holds has no device on the node.
package vf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
	"vigia/internal/ports"
	"vigia/internal/rtnl"
)

// sysNet is where the kernel says which devices are physical functions.
const sysNet = "/sys/class/net"

// rescan is how old the list of physical functions may be: looking for them costs
// a system call for every device of the node.
const rescan = 30 * time.Second

// function is a physical function that has VFs.
type function struct {
	name      string
	index     int
	addresses map[int]string // PCI addresses of its VFs, by number
}

// Owner is who holds a VF.
type Owner struct{ Tenant, Workload, Source string }

// Source asks physical functions by rtnetlink.
type Source struct {
	conn   *rtnl.Conn
	sys    string
	query  func(index int) ([]rtnl.VF, error)
	owners func() map[string]Owner // by PCI address

	found   []function
	foundAt time.Time

	bytes, packets, drops, config, rate, info *exposition.Family
}

// New returns the source that asks by conn. owners tells who holds the VF with a
// PCI address.
func New(f source.Families, conn *rtnl.Conn, owners func() map[string]Owner) *Source {
	get := func(name string) *exposition.Family { return source.Family(f, name) }
	return &Source{
		conn: conn, sys: sysNet, query: conn.VFs, owners: owners,
		bytes: get("vigia_vf_bytes_total"), packets: get("vigia_vf_packets_total"), drops: get("vigia_vf_drops_total"),
		config: get("vigia_vf_config_info"), info: get("vigia_vf_info"), rate: get("vigia_vf_rate_limit_bytes_per_second"),
	}
}

// Collect emits the VFs of every physical function.
func (s *Source) Collect(v *source.View, out *exposition.Page) error {
	if s.foundAt.IsZero() || v.Now.Sub(s.foundAt) >= rescan {
		found, err := s.functions()
		if err != nil {
			return err
		}
		s.found, s.foundAt = found, v.Now
	}
	if len(s.found) == 0 {
		return nil
	}
	owners := s.owners()
	var errs []error
	for i := range s.found {
		pf := &s.found[i]
		vfs, err := s.query(pf.index)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", pf.name, err))
			s.foundAt = time.Time{} // it may be gone
			continue
		}
		for i := range vfs {
			s.whose(pf, vfs[i].Index, owners, out)
			s.emit(pf.name, &vfs[i], out)
		}
	}
	return errors.Join(errs...)
}

// whose emits who holds a VF.
func (s *Source) whose(pf *function, vf int, owners map[string]Owner, out *exposition.Page) {
	address := pf.addresses[vf]
	owner, known := owners[address]
	if !known {
		owner.Tenant = ports.Unresolved
	}
	out.Emit(s.info, 1, pf.name, strconv.Itoa(vf), address, owner.Tenant, owner.Workload, owner.Source)
}

// functions returns the devices that have VFs now.
func (s *Source) functions() ([]function, error) {
	paths, err := filepath.Glob(filepath.Join(s.sys, "*", "device", "sriov_numvfs"))
	if err != nil {
		return nil, err
	}
	var out []function
	for _, path := range paths {
		device := filepath.Dir(filepath.Dir(path))
		count, err := number(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // it went meanwhile
		}
		if err != nil {
			return nil, err
		}
		if count == 0 {
			continue
		}
		index, err := number(filepath.Join(device, "ifindex"))
		if err != nil {
			return nil, err
		}
		out = append(out, function{filepath.Base(device), index, addresses(filepath.Join(device, "device"), count)})
	}
	return out, nil
}

// addresses reads the PCI addresses of a physical function's VFs: links virtfn0,
// virtfn1, ... to their devices.
func addresses(device string, count int) map[int]string {
	out := make(map[int]string, count)
	for i := range count {
		if target, err := os.Readlink(filepath.Join(device, "virtfn"+strconv.Itoa(i))); err == nil {
			out[i] = filepath.Base(target)
		}
	}
	return out
}

func number(path string) (int, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}

// emit emits one VF. A driver that knows no counters has no counters here.
func (s *Source) emit(pf string, vf *rtnl.VF, out *exposition.Page) {
	id := strconv.Itoa(vf.Index)
	out.Emit(s.config, 1, pf, id, vf.MAC.String(), strconv.Itoa(vf.VLAN), string(vf.SpoofCheck), string(vf.Trust), string(vf.LinkState))
	if vf.MinRate > 0 {
		out.Emit(s.rate, float64(vf.MinRate), pf, id, "guarantee")
	}
	if vf.MaxRate > 0 {
		out.Emit(s.rate, float64(vf.MaxRate), pf, id, "ceiling")
	}
	if !vf.HasStats {
		return
	}
	received, transmitted := source.TenantSide.Directions()
	out.Emit(s.bytes, float64(vf.RxBytes), pf, id, received)
	out.Emit(s.bytes, float64(vf.TxBytes), pf, id, transmitted)
	out.Emit(s.packets, float64(vf.RxPackets), pf, id, received)
	out.Emit(s.packets, float64(vf.TxPackets), pf, id, transmitted)
	out.Emit(s.drops, float64(vf.RxDropped), pf, id, received)
	out.Emit(s.drops, float64(vf.TxDropped), pf, id, transmitted)
}
