// Package tsinfo finds out which devices stamp packets in hardware, and by which of
// them packets to an address leave.
package tsinfo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"vigia/internal/genl"
)

// Info is what a device offers (ETHTOOL_MSG_TSINFO_GET).
type Info struct {
	Stamping  uint32 // SOF_TIMESTAMPING_*
	TxTypes   uint32 // bit n: HWTSTAMP_TX_*
	RxFilters uint32 // bit n: HWTSTAMP_FILTER_*
	Clock     int    // index of its PTP hardware clock; -1 without one
}

// allHardware is what it takes to have hardware stamps of arbitrary packets.
const allHardware = unix.SOF_TIMESTAMPING_TX_HARDWARE | unix.SOF_TIMESTAMPING_RX_HARDWARE | unix.SOF_TIMESTAMPING_RAW_HARDWARE

// Hardware reports whether the device can stamp in hardware what is sent and what is
// received.
func (i *Info) Hardware() bool { return i.Stamping&allHardware == allHardware }

// Values of uapi/linux/ethtool_netlink.h.
const (
	ethtoolFamily  = "ethtool"
	ethtoolVersion = 1

	msgTSInfoGet   = 25
	tsinfoHeader   = 1
	tsinfoStamping = 2
	tsinfoTxTypes  = 3
	tsinfoFilters  = 4
	tsinfoClock    = 5
	headerDevName  = 2
	headerFlags    = 3
	compactBitsets = 1

	bitsetBits  = 3
	bitsetValue = 4
	bitsBit     = 1
	bitIndex    = 1
)

// Devices asks about the devices of one network namespace. It is used from one
// goroutine at a time.
type Devices struct {
	ethtool *netlink.Conn // nil where the kernel has no such family (before Linux 5.6)
	family  uint16
	route   *netlink.Conn
	fd      int // for ioctl(2)
}

// Open opens the devices of the network namespace of the calling thread.
func Open() (d *Devices, err error) {
	d = &Devices{fd: -1}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if d.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	if d.route, err = netlink.Dial(unix.NETLINK_ROUTE, nil); err != nil {
		return nil, fmt.Errorf("open an rtnetlink socket: %w", err)
	}
	if d.ethtool, err = netlink.Dial(unix.NETLINK_GENERIC, nil); err != nil {
		return nil, fmt.Errorf("open a generic netlink socket: %w", err)
	}
	if d.family, err = genl.Family(d.ethtool, ethtoolFamily); errors.Is(err, fs.ErrNotExist) {
		d.ethtool.Close()
		d.ethtool, err = nil, nil
	}
	return d, err
}

// Close frees the sockets.
func (d *Devices) Close() {
	for _, c := range []*netlink.Conn{d.route, d.ethtool} {
		if c != nil {
			c.Close()
		}
	}
	if d.fd >= 0 {
		unix.Close(d.fd)
	}
}

var errShort = errors.New("message is too short")

// Info returns what a device offers.
func (d *Devices) Info(device string) (Info, error) {
	if d.ethtool == nil {
		return d.legacyInfo(device)
	}
	request, err := encodeRequest(device)
	if err != nil {
		return Info{}, err
	}
	msgs, err := d.ethtool.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(d.family), Flags: netlink.Request}, Data: request,
	})
	if err != nil {
		return Info{}, fmt.Errorf("ask what time stamps %s offers: %w", device, err)
	}
	if len(msgs) == 0 {
		return Info{}, fmt.Errorf("ask what time stamps %s offers: no answer", device)
	}
	info, err := parse(msgs[0].Data)
	if err != nil {
		return Info{}, fmt.Errorf("read what time stamps %s offers: %w", device, err)
	}
	return info, nil
}

// legacyInfo asks by ETHTOOL_GET_TS_INFO.
func (d *Devices) legacyInfo(device string) (Info, error) {
	i, err := unix.IoctlGetEthtoolTsInfo(d.fd, device)
	if err != nil {
		return Info{}, fmt.Errorf("ask what time stamps %s offers (ETHTOOL_GET_TS_INFO): %w", device, err)
	}
	return Info{Stamping: i.So_timestamping, TxTypes: i.Tx_types, RxFilters: i.Rx_filters, Clock: int(i.Phc_index)}, nil
}

func encodeRequest(device string) ([]byte, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Nested(tsinfoHeader, func(n *netlink.AttributeEncoder) error {
		n.String(headerDevName, device)
		n.Uint32(headerFlags, compactBitsets)
		return nil
	})
	attributes, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	return genl.Body(msgTSInfoGet, ethtoolVersion, attributes), nil
}

// parse reads an ETHTOOL_MSG_TSINFO_GET_REPLY.
func parse(data []byte) (Info, error) {
	info := Info{Clock: -1}
	ad, err := genl.Attributes(data, 0)
	if err != nil {
		return info, err
	}
	for ad.Next() {
		switch ad.Type() {
		case tsinfoStamping:
			ad.Nested(readBitset(&info.Stamping))
		case tsinfoTxTypes:
			ad.Nested(readBitset(&info.TxTypes))
		case tsinfoFilters:
			ad.Nested(readBitset(&info.RxFilters))
		case tsinfoClock:
			info.Clock = int(int32(ad.Uint32()))
		}
	}
	return info, ad.Err()
}

// readBitset reads the first 32 bits of a bitset, compact or bit by bit
// (Documentation/networking/ethtool-netlink.rst).
func readBitset(into *uint32) func(*netlink.AttributeDecoder) error {
	return func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			switch ad.Type() {
			case bitsetValue:
				if b := ad.Bytes(); len(b) >= 4 {
					*into = binary.NativeEndian.Uint32(b)
				}
			case bitsetBits:
				ad.Nested(func(bits *netlink.AttributeDecoder) error {
					for bits.Next() {
						if bits.Type() == bitsBit {
							bits.Nested(readBit(into))
						}
					}
					return nil
				})
			}
		}
		return nil
	}
}

// readBit reads one bit of a list; without a mask, being listed means being set.
func readBit(into *uint32) func(*netlink.AttributeDecoder) error {
	return func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			if ad.Type() == bitIndex {
				if at := ad.Uint32(); at < 32 {
					*into |= 1 << at
				}
			}
		}
		return nil
	}
}
