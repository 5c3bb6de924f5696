package app

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"vigia/exporters/tenant/kerneldrops"
	"vigia/exporters/tenant/openflow"
	"vigia/exporters/tenant/packetsockets"
	"vigia/exporters/tenant/podresources"
	"vigia/exporters/tenant/source"
	"vigia/exporters/tenant/vf"
	"vigia/internal/bpf/drops"
	"vigia/internal/sockdiag"
)

// runDir returns the folder of Open vSwitch's sockets; empty without Open vSwitch.
func (s *service) runDir() string {
	switch {
	case s.config.Node.Sources.OVSDB == "":
		return ""
	case s.config.OVSRunDir != "":
		return s.config.OVSRunDir
	}
	return filepath.Dir(strings.TrimPrefix(s.config.Node.Sources.OVSDB, "unix:"))
}

// kernelDrops opens the source of drop reasons. A kernel that gives none leaves
// drops unattributed; it is no error, and there is no source.
func (s *service) kernelDrops(f source.Families) (source.Source, error) {
	counter, err := drops.Open(s.config.Node.BPF.PinDir, s.config.Node.Sources.NetNS)
	if errors.Is(err, drops.ErrUnsupported) {
		s.logger.Warn("cannot tell why the kernel drops packets", "err", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.opened.Add(counter)
	return kerneldrops.New(f, counter), nil
}

func (s *service) packetSockets(source.Families) (source.Source, error) {
	sockets := sockdiag.New(s.config.Node.Sources.NetNS)
	s.opened.Add(sockets)
	return packetsockets.New(sockets, s.runDir()), nil
}

// podResources makes the source of VFs' owners; none without the kubelet's socket.
func (s *service) podResources(source.Families) (source.Source, error) {
	if s.config.KubeletSocket == "" {
		return nil, nil
	}
	kubelet, err := podresources.New(s.config.KubeletSocket)
	if err != nil {
		return nil, err
	}
	s.kubelet = kubelet
	return kubelet, nil
}

// vfOwners tells who holds the VF with a PCI address.
func (s *service) vfOwners() map[string]vf.Owner {
	if s.kubelet == nil {
		return nil
	}
	held := s.kubelet.Owners()
	out := make(map[string]vf.Owner, len(held))
	for id, o := range held {
		out[id] = vf.Owner{Tenant: o.Namespace, Workload: o.Pod, Source: "kubelet"}
	}
	return out
}

func (s *service) openFlow(f source.Families) (source.Source, error) {
	o := openflow.Options{Bridges: s.Inventory.Bridges, RunDir: s.runDir(), Every: time.Duration(s.config.OpenFlow.Every)}
	for _, k := range s.config.OpenFlow.Cookies {
		number, err := k.number()
		if err != nil {
			return nil, err
		}
		o.Cookies = append(o.Cookies, openflow.Cookie{Bridge: k.Bridge, Cookie: number, Tenant: k.Tenant})
	}
	return openflow.New(f, o), nil
}
