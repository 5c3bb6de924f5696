package rtnl

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
)

// VF is an SR-IOV virtual function as its physical function tells it. What it
// received is what went to the tenant.
type VF struct {
	Index                                  int
	MAC                                    net.HardwareAddr
	VLAN                                   int // 0 without one
	SpoofCheck, Trust                      Setting
	LinkState                              LinkState
	MinRate, MaxRate                       uint64 // bytes per second; 0 for none
	HasStats                               bool   // whether the driver reports counters
	RxPackets, TxPackets, RxBytes, TxBytes uint64
	RxDropped, TxDropped                   uint64
}

// Setting is a switch of a VF that a driver may not know.
type Setting string

// LinkState is how a VF's link follows that of the physical function.
type LinkState string

// The values of switches and of the link's state.
const (
	On      Setting   = "on"
	Off     Setting   = "off"
	Unknown Setting   = "unknown"
	Auto    LinkState = "auto"
	Enable  LinkState = "enable"
	Disable LinkState = "disable"
)

// Attributes of uapi/linux/if_link.h, and bits of IFLA_EXT_MASK of rtnetlink.h.
const (
	iflaExtMask          = 29
	rtextFilterVF        = 1 << 0
	rtextFilterSkipStats = 1 << 3

	iflaVFInfoList  = 22
	iflaVFMAC       = 1
	iflaVFVLAN      = 2
	iflaVFSpoofChk  = 4
	iflaVFLinkState = 5
	iflaVFRate      = 6
	iflaVFStats     = 8
	iflaVFTrust     = 9
)

// VFs asks one physical function for its VFs. Asking all interfaces at once would
// make the answer explode.
func (c *Conn) VFs(index int) ([]VF, error) {
	head := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(head[4:], uint32(index))
	e := netlink.NewEncoder(head)
	e.Uint32(iflaExtMask, rtextFilterVF)
	request, err := e.Encode()
	if err != nil {
		return nil, err
	}
	var out []VF
	err = c.socket.Ask(unix.RTM_GETLINK, 0, request, func(_ uint16, data []byte) (err error) {
		out, err = parseVFs(data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask interface %d for its VFs: %w", index, err)
	}
	return out, nil
}

func parseVFs(data []byte) (out []VF, err error) {
	for kind, list := range netlink.Attributes(data, unix.SizeofIfInfomsg, &err) {
		if kind != iflaVFInfoList {
			continue
		}
		for _, info := range netlink.Attributes(list, 0, &err) {
			vf := VF{Index: -1, SpoofCheck: Unknown, Trust: Unknown}
			vf.parse(info, &err)
			if vf.Index >= 0 {
				out = append(out, vf)
			}
		}
	}
	return out, err
}

// words reads the numbers of a structure that starts with the VF's own.
func words(b []byte, n int) ([]uint32, bool) {
	if len(b) < 4*n {
		return nil, false
	}
	out := make([]uint32, n)
	for i := range out {
		out[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return out, true
}

func (vf *VF) parse(info []byte, err *error) {
	for kind, b := range netlink.Attributes(info, 0, err) {
		switch kind {
		case iflaVFMAC: // struct ifla_vf_mac: vf, mac[32]
			if w, ok := words(b, 1); ok && len(b) >= 10 {
				vf.Index, vf.MAC = int(w[0]), slices.Clone(net.HardwareAddr(b[4:10]))
			}
		case iflaVFVLAN: // vf, vlan, qos
			if w, ok := words(b, 2); ok {
				vf.VLAN = int(w[1])
			}
		case iflaVFSpoofChk:
			vf.SpoofCheck = setting(b)
		case iflaVFTrust:
			vf.Trust = setting(b)
		case iflaVFLinkState:
			if w, ok := words(b, 2); ok && w[1] < 3 {
				vf.LinkState = []LinkState{Auto, Enable, Disable}[w[1]]
			}
		case iflaVFRate: // vf, min, max, in Mbit/s
			if w, ok := words(b, 3); ok {
				vf.MinRate, vf.MaxRate = uint64(w[1])*1e6/8, uint64(w[2])*1e6/8
			}
		case iflaVFStats:
			vf.stats(b, err)
		}
	}
}

func setting(b []byte) Setting {
	w, ok := words(b, 2)
	switch {
	case ok && w[1] == 0:
		return Off
	case ok && w[1] == 1:
		return On
	}
	return Unknown // all ones: the driver does not know it
}

func (vf *VF) stats(counters []byte, err *error) {
	into := []*uint64{
		&vf.RxPackets, &vf.TxPackets, &vf.RxBytes, &vf.TxBytes,
		nil, nil, nil, // broadcast, multicast, padding
		&vf.RxDropped, &vf.TxDropped,
	}
	for kind, b := range netlink.Attributes(counters, 0, err) {
		if i := int(kind); i < len(into) && into[i] != nil && len(b) >= 8 {
			*into[i] = binary.NativeEndian.Uint64(b)
			vf.HasStats = true
		}
	}
}
