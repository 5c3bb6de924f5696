package tsinfo

import (
	"golang.org/x/sys/unix"

	"vigia/internal/ethtool"
)

// Mode says what an operator wants of hardware stamps.
type Mode uint8

// The modes.
const (
	Auto   Mode = iota // use them where the device has them switched on
	Off                // never
	Enable             // switch them on where the device offers them, too
)

// Verdict is what came of looking at a device.
type Verdict struct {
	Use    bool   // its hardware stamps
	Enable bool   // after switching them on
	Why    string // not, for people
}

// Decide says whether a device's hardware stamps are used. configured is its present
// configuration (SIOCGHWTSTAMP), nil when it tells none.
func Decide(mode Mode, info ethtool.TimeStamps, configured *unix.HwTstampConfig) Verdict {
	const on, all = unix.HWTSTAMP_TX_ON, unix.HWTSTAMP_FILTER_ALL
	active := configured != nil && configured.Tx_type == on && configured.Rx_filter == all
	switch {
	case mode == Off:
		return Verdict{Why: "timestamps.hardware is off"}
	case !info.Hardware():
		return Verdict{Why: "the device does not offer hardware stamps of what it sends and receives"}
	case active:
		return Verdict{Use: true}
	case mode != Enable:
		return Verdict{Why: "hardware stamps of all packets are not switched on at the device (hwstamp_ctl -t 1 -r 1, or timestamps.hardware: enable)"}
	case info.TxTypes&(1<<on) == 0 || info.RxFilters&(1<<all) == 0:
		return Verdict{Why: "the device stamps PTP packets alone"}
	}
	return Verdict{Use: true, Enable: true}
}

// Hardware finds out whether a device's hardware stamps can be used, and switches
// them on when the mode asks for that.
func (d *Devices) Hardware(device string, mode Mode) (Verdict, error) {
	if mode == Off {
		return Decide(mode, ethtool.TimeStamps{}, nil), nil
	}
	offered, err := d.ethtool.TimeStamps(device)
	if err != nil {
		return Verdict{Why: err.Error()}, err
	}
	if !offered.Hardware() {
		return Decide(mode, offered, nil), nil
	}
	configured, err := d.ethtool.StampConfig(device)
	if err != nil {
		return Verdict{Why: err.Error()}, err
	}
	v := Decide(mode, offered, configured)
	if !v.Enable {
		return v, nil
	}
	granted, err := d.ethtool.StampAll(device)
	if err != nil {
		return Verdict{Why: err.Error()}, err
	}
	if granted.Rx_filter != unix.HWTSTAMP_FILTER_ALL {
		return Verdict{Why: "the device stamps PTP packets alone"}, nil
	}
	return v, nil
}
