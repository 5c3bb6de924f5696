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

	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
	"vigia/internal/rtnl"
)

// sysNet is where the kernel says which devices are physical functions.
const sysNet = "/sys/class/net"

// Source asks physical functions by rtnetlink.
type Source struct {
	conn  *rtnl.Conn
	sys   string
	query func(index int) ([]rtnl.VF, error)

	bytes, packets, drops, config, rate *exposition.Family
}

// New returns the source that asks by conn.
func New(f source.Families, conn *rtnl.Conn) *Source {
	get := func(name string) *exposition.Family { return source.Family(f, name) }
	return &Source{
		conn: conn, sys: sysNet, query: conn.VFs,
		bytes: get("vigia_vf_bytes_total"), packets: get("vigia_vf_packets_total"), drops: get("vigia_vf_drops_total"),
		config: get("vigia_vf_config_info"), rate: get("vigia_vf_rate_limit_bytes_per_second"),
	}
}

// Name is the collector's name.
func (s *Source) Name() string { return "vf" }

// Collect emits the VFs of every physical function.
func (s *Source) Collect(_ *source.View, out *exposition.Page) error {
	functions, err := s.functions()
	if err != nil {
		return err
	}
	var errs []error
	for name, index := range functions {
		vfs, err := s.query(index)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		for i := range vfs {
			s.emit(name, &vfs[i], out)
		}
	}
	return errors.Join(errs...)
}

// functions returns the devices that have VFs now, with their indices.
func (s *Source) functions() (map[string]int, error) {
	paths, err := filepath.Glob(filepath.Join(s.sys, "*", "device", "sriov_numvfs"))
	if err != nil {
		return nil, err
	}
	out := make(map[string]int)
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
		out[filepath.Base(device)] = index
	}
	return out, nil
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
