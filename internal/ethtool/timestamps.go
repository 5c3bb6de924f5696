package ethtool

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
)

// Values of uapi/linux/ethtool_netlink.h.
const (
	msgTSInfoGet   = 25
	tsinfoStamping = 2
	tsinfoTxTypes  = 3
	tsinfoFilters  = 4
	tsinfoClock    = 5
	compactBitsets = 1

	bitsetBits  = 3
	bitsetValue = 4
	bitsBit     = 1
	bitIndex    = 1
)

// TimeStamps is what a device offers (ETHTOOL_MSG_TSINFO_GET).
type TimeStamps struct {
	Stamping  uint32 // SOF_TIMESTAMPING_*
	TxTypes   uint32 // bit n: HWTSTAMP_TX_*
	RxFilters uint32 // bit n: HWTSTAMP_FILTER_*
	Clock     int    // index of its PTP hardware clock; -1 without one
}

// hardware is what it takes to have hardware stamps of arbitrary packets.
const hardware = unix.SOF_TIMESTAMPING_TX_HARDWARE | unix.SOF_TIMESTAMPING_RX_HARDWARE | unix.SOF_TIMESTAMPING_RAW_HARDWARE

// Hardware reports whether the device can stamp in hardware what is sent and what is
// received.
func (t *TimeStamps) Hardware() bool { return t.Stamping&hardware == hardware }

// TimeStamps returns what a device offers.
func (c *Conn) TimeStamps(device string) (t TimeStamps, err error) {
	if c.family == nil {
		return c.legacyTimeStamps(device)
	}
	err = c.ask(msgTSInfoGet, device, compactBitsets, func(data []byte) (err error) {
		t, err = parseTimeStamps(data)
		return err
	})
	if err != nil {
		return TimeStamps{}, fmt.Errorf("ask what time stamps %s offers: %w", device, err)
	}
	return t, nil
}

// legacyTimeStamps asks by ETHTOOL_GET_TS_INFO.
func (c *Conn) legacyTimeStamps(device string) (TimeStamps, error) {
	i, err := unix.IoctlGetEthtoolTsInfo(c.fd, device)
	if err != nil {
		return TimeStamps{}, fmt.Errorf("ask what time stamps %s offers (ETHTOOL_GET_TS_INFO): %w", device, err)
	}
	return TimeStamps{Stamping: i.So_timestamping, TxTypes: i.Tx_types, RxFilters: i.Rx_filters, Clock: int(i.Phc_index)}, nil
}

// StampConfig returns how a device's hardware stamps are configured (SIOCGHWTSTAMP);
// nil for a device that tells nothing.
func (c *Conn) StampConfig(device string) (*unix.HwTstampConfig, error) {
	config, err := unix.IoctlGetHwTstamp(c.fd, device)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration of time stamps of %s (SIOCGHWTSTAMP): %w", device, err)
	}
	return config, nil
}

// StampAll switches hardware stamps of all packets on (SIOCSHWTSTAMP) and returns what
// the driver granted, which may be less.
func (c *Conn) StampAll(device string) (*unix.HwTstampConfig, error) {
	config := unix.HwTstampConfig{Tx_type: unix.HWTSTAMP_TX_ON, Rx_filter: unix.HWTSTAMP_FILTER_ALL}
	if err := unix.IoctlSetHwTstamp(c.fd, device, &config); err != nil {
		return nil, fmt.Errorf("switch on hardware stamps of %s (SIOCSHWTSTAMP, needs CAP_NET_ADMIN): %w", device, err)
	}
	return &config, nil
}

// parseTimeStamps reads the attributes of an ETHTOOL_MSG_TSINFO_GET_REPLY.
func parseTimeStamps(data []byte) (t TimeStamps, err error) {
	t.Clock = -1
	for kind, value := range netlink.Attributes(data, 0, &err) {
		switch kind {
		case tsinfoStamping:
			t.Stamping = bitset(value, &err)
		case tsinfoTxTypes:
			t.TxTypes = bitset(value, &err)
		case tsinfoFilters:
			t.RxFilters = bitset(value, &err)
		case tsinfoClock:
			t.Clock = int(int32(netlink.Uint32(value, 0)))
		}
	}
	return t, err
}

// bitset reads the first 32 bits of a bitset, compact or bit by bit
// (Documentation/networking/ethtool-netlink.rst).
func bitset(b []byte, err *error) (set uint32) {
	for kind, value := range netlink.Attributes(b, 0, err) {
		switch kind {
		case bitsetValue:
			set = netlink.Uint32(value, 0)
		case bitsetBits:
			for kind, bit := range netlink.Attributes(value, 0, err) {
				if kind == bitsBit {
					set |= listedBit(bit, err)
				}
			}
		}
	}
	return set
}

// listedBit reads one bit of a list; without a mask, being listed means being set.
func listedBit(b []byte, err *error) (bit uint32) {
	for kind, value := range netlink.Attributes(b, 0, err) {
		if at := netlink.Uint32(value, 0); kind == bitIndex && at < 32 {
			bit |= 1 << at
		}
	}
	return bit
}
