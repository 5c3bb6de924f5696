package tsinfo

import (
	"errors"
	"net/netip"
)

// Survey says of each flow out of a network namespace whether the device that it
// leaves by stamps in hardware, as the mode wants it. An error tells of devices that
// could not be asked; their flows go without.
func Survey(ns string, mode Mode, flows []Flow) ([]bool, error) {
	return survey(ns, mode, len(flows), func(d *Devices, i int) ([]string, error) {
		device, err := d.routes.Egress(flows[i])
		if err != nil {
			return nil, nil // without a route nothing leaves
		}
		return []string{device}, nil
	})
}

// SurveyLocal says of each local address, or of all together when it is unspecified,
// whether a device that has it stamps in hardware.
func SurveyLocal(ns string, mode Mode, locals []netip.Addr) ([]bool, error) {
	return survey(ns, mode, len(locals), func(d *Devices, i int) ([]string, error) { return d.routes.Holders(locals[i]) })
}

func survey(ns string, mode Mode, n int, devices func(*Devices, int) ([]string, error)) ([]bool, error) {
	use := make([]bool, n)
	if mode == Off {
		return use, nil
	}
	d, err := Open(ns)
	if err != nil {
		return use, err
	}
	defer d.Close()
	if offered, err := d.anyOffer(); !offered {
		return use, err
	}
	var errs []error
	known := make(map[string]bool)
	for i := range use {
		names, err := devices(d, i)
		errs = append(errs, err)
		for _, name := range names {
			if _, asked := known[name]; !asked {
				v, err := d.Hardware(name, mode)
				errs = append(errs, err)
				known[name] = v.Use
			}
			use[i] = use[i] || known[name]
		}
	}
	return use, errors.Join(errs...)
}

// anyOffer reports whether any device of the namespace offers hardware stamps: mostly
// none does, and then there is no need to look at routes.
func (d *Devices) anyOffer() (bool, error) {
	names, err := d.routes.Holders(netip.IPv4Unspecified())
	if err != nil {
		return false, err
	}
	var errs []error
	for _, name := range names {
		stamps, err := d.ethtool.TimeStamps(name)
		if err == nil && stamps.Hardware() {
			return true, nil
		}
		errs = append(errs, err)
	}
	return false, errors.Join(errs...)
}
