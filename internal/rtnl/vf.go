package rtnl

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
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

// Attributes of uapi/linux/if_link.h.
const (
	iflaExtMask     = 29
	rtextFilterVF   = 1
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
	body := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(body[4:], uint32(index))
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(iflaExtMask, rtextFilterVF)
	mask, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	msgs, err := c.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request},
		Data:   append(body, mask...),
	})
	c.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("ask interface %d for its VFs: %w", index, err)
	}
	var out []VF
	for _, m := range msgs {
		vfs, err := parseVFs(m.Data)
		if err != nil {
			return nil, fmt.Errorf("parse VFs of interface %d: %w", index, err)
		}
		out = append(out, vfs...)
	}
	return out, nil
}

func parseVFs(data []byte) (out []VF, err error) {
	if len(data) < unix.SizeofIfInfomsg {
		return nil, errShort
	}
	ad, err := netlink.NewAttributeDecoder(data[unix.SizeofIfInfomsg:])
	if err != nil {
		return nil, err
	}
	for ad.Next() {
		if ad.Type() != iflaVFInfoList {
			continue
		}
		ad.Nested(func(list *netlink.AttributeDecoder) error {
			for list.Next() {
				vf := VF{Index: -1, SpoofCheck: Unknown, Trust: Unknown}
				list.Nested(vf.parse)
				if vf.Index >= 0 {
					out = append(out, vf)
				}
			}
			return nil
		})
	}
	return out, ad.Err()
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

func (vf *VF) parse(ad *netlink.AttributeDecoder) error {
	for ad.Next() {
		b := ad.Bytes()
		switch ad.Type() {
		case iflaVFMAC: // struct ifla_vf_mac: vf, mac[32]
			if w, ok := words(b, 1); ok && len(b) >= 10 {
				vf.Index, vf.MAC = int(w[0]), net.HardwareAddr(b[4:10:10])
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
			ad.Nested(vf.stats)
		}
	}
	return nil
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

func (vf *VF) stats(ad *netlink.AttributeDecoder) error {
	into := []*uint64{
		&vf.RxPackets, &vf.TxPackets, &vf.RxBytes, &vf.TxBytes,
		nil, nil, nil, // broadcast, multicast, padding
		&vf.RxDropped, &vf.TxDropped,
	}
	for ad.Next() {
		b := ad.Bytes()
		if i := int(ad.Type()); i < len(into) && into[i] != nil && len(b) >= 8 {
			*into[i] = binary.NativeEndian.Uint64(b)
			vf.HasStats = true
		}
	}
	return nil
}
