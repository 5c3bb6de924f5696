package tsinfo

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Flow is what routing looks at.
type Flow struct {
	To, From netip.Addr // From may be unspecified or not valid
	Mark     uint32
	Device   string // bound to; empty for any
}

// Egress returns the device by which packets of a flow leave.
func (d *Devices) Egress(f Flow) (string, error) {
	if f.Device != "" {
		return f.Device, nil
	}
	msgs, err := d.route.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETROUTE, Flags: netlink.Request}, Data: encodeRoute(f),
	})
	if err != nil {
		return "", fmt.Errorf("look up the route to %s: %w", f.To, err)
	}
	if len(msgs) == 0 {
		return "", fmt.Errorf("look up the route to %s: no answer", f.To)
	}
	index, err := parseRoute(msgs[0].Data)
	if err != nil {
		return "", fmt.Errorf("read the route to %s: %w", f.To, err)
	}
	return d.name(index)
}

// name returns the name of a device of the namespace.
func (d *Devices) name(index int32) (string, error) {
	request := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(request[4:], uint32(index))
	msgs, err := d.route.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request}, Data: request,
	})
	if err != nil || len(msgs) == 0 || len(msgs[0].Data) < unix.SizeofIfInfomsg {
		return "", fmt.Errorf("look up device %d: %w", index, err)
	}
	ad, err := netlink.NewAttributeDecoder(msgs[0].Data[unix.SizeofIfInfomsg:])
	if err != nil {
		return "", err
	}
	for ad.Next() {
		if ad.Type() == unix.IFLA_IFNAME {
			return ad.String(), ad.Err()
		}
	}
	return "", fmt.Errorf("device %d has no name", index)
}

// encodeRoute makes the body of an RTM_GETROUTE.
func encodeRoute(f Flow) []byte {
	family, bits := uint8(unix.AF_INET), uint8(32)
	if f.To.Is6() {
		family, bits = unix.AF_INET6, 128
	}
	body := make([]byte, unix.SizeofRtMsg)
	body[0], body[1] = family, bits
	ae := netlink.NewAttributeEncoder()
	ae.Bytes(unix.RTA_DST, f.To.AsSlice())
	if f.From.IsValid() && !f.From.IsUnspecified() {
		body[2] = bits
		ae.Bytes(unix.RTA_SRC, f.From.AsSlice())
	}
	if f.Mark != 0 {
		ae.Uint32(unix.RTA_MARK, f.Mark)
	}
	attributes, _ := ae.Encode() // fails only for nested ones
	return append(body, attributes...)
}

// parseRoute returns the index of the device of an RTM_NEWROUTE.
func parseRoute(data []byte) (int32, error) {
	if len(data) < unix.SizeofRtMsg {
		return 0, errShort
	}
	ad, err := netlink.NewAttributeDecoder(data[unix.SizeofRtMsg:])
	if err != nil {
		return 0, err
	}
	for ad.Next() {
		if ad.Type() == unix.RTA_OIF {
			return int32(ad.Uint32()), ad.Err()
		}
	}
	if err := ad.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("it has no device")
}

// Holder returns the device that has a local address, and all devices when the
// address is unspecified.
func (d *Devices) Holder(local netip.Addr) ([]string, error) {
	msgs, err := d.route.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETADDR, Flags: netlink.Request | netlink.Dump}, Data: make([]byte, unix.SizeofIfAddrmsg),
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	seen := make(map[int32]bool)
	var names []string
	for _, m := range msgs {
		index, address, err := parseAddress(m.Data)
		if err != nil {
			return nil, fmt.Errorf("read an address: %w", err)
		}
		if seen[index] || !local.IsUnspecified() && address != local {
			continue
		}
		seen[index] = true
		name, err := d.name(index)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// parseAddress reads an RTM_NEWADDR.
func parseAddress(data []byte) (index int32, address netip.Addr, err error) {
	if len(data) < unix.SizeofIfAddrmsg {
		return 0, address, errShort
	}
	index = int32(binary.NativeEndian.Uint32(data[4:]))
	ad, err := netlink.NewAttributeDecoder(data[unix.SizeofIfAddrmsg:])
	if err != nil {
		return 0, address, err
	}
	for ad.Next() {
		// IFA_LOCAL is our own of a point-to-point link, and IFA_ADDRESS the
		// peer's; where there is no peer they are the same, or the first is not
		// there.
		switch kind := ad.Type(); {
		case kind == unix.IFA_LOCAL, kind == unix.IFA_ADDRESS && !address.IsValid():
			address, _ = netip.AddrFromSlice(net.IP(ad.Bytes()))
		}
	}
	return index, address, ad.Err()
}
