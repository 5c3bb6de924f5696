package ethtool

import (
	"errors"
	"fmt"

	"vigia/internal/netlink"
)

// Values of uapi/linux/ethtool_netlink.h for ETHTOOL_MSG_FEATURES_SET, Linux 5.7.
const (
	commandFeaturesSet = 12
	featuresWanted     = 3
	bitName            = 2
	// genericChecksums is the device's feature of checksums for whatever protocol, as net/ethtool/common.c names it.
	genericChecksums = "tx-checksum-ip-generic"
)

// FillChecksums has the kernel fill in checksums before it hands frames to a device, in place of leaving that to the
// device. What takes a veth pair's frames in user space, such as Open vSwitch there, sees wrong ones otherwise.
func (c *Conn) FillChecksums(device string) error {
	err := error(errNoFamily)
	if c.family != nil {
		err = c.unset(device, genericChecksums)
	}
	if err != nil {
		return fmt.Errorf("switch off %s of %s (ETHTOOL_MSG_FEATURES_SET, needs CAP_NET_ADMIN): %w", genericChecksums, device, err)
	}
	return nil
}

var errNoFamily = errors.New("the kernel has no ethtool by netlink, which takes Linux 5.7")

// unset switches a feature of a device off.
func (c *Conn) unset(device, feature string) error {
	request, err := encodeRequest(device, 0)
	if err != nil {
		return err
	}
	e := netlink.NewEncoder(request)
	e.Nested(featuresWanted, func() {
		e.Nested(bitsetBits, func() {
			e.Nested(bitsBit, func() { e.String(bitName, feature) }) // without a value: off
		})
	})
	if request, err = e.Encode(); err != nil {
		return err
	}
	return c.family.Ask(commandFeaturesSet, request, func([]byte) error { return nil })
}
