package tsinfo

import (
	"errors"
	"net/netip"

	"vigia/internal/netns"
)

// Survey says of each flow out of a network namespace whether the device that it
// leaves by stamps in hardware, as the mode wants it. An error tells of devices that
// could not be asked; their flows go without.
func Survey(ns string, mode Mode, flows []Flow) ([]bool, error) {
	return survey(ns, mode, len(flows), func(d *Devices, i int) ([]string, error) {
		device, err := d.Egress(flows[i])
		if err != nil {
			return nil, nil // without a route nothing leaves
		}
		return []string{device}, nil
	})
}

// SurveyLocal says of each local address, or of all together when it is unspecified,
// whether a device that has it stamps in hardware.
func SurveyLocal(ns string, mode Mode, locals []netip.Addr) ([]bool, error) {
	return survey(ns, mode, len(locals), func(d *Devices, i int) ([]string, error) { return d.Holder(locals[i]) })
}

func survey(ns string, mode Mode, n int, devices func(*Devices, int) ([]string, error)) ([]bool, error) {
	use := make([]bool, n)
	if mode == Off {
		return use, nil
	}
	err := netns.Do(ns, func() error {
		d, err := Open()
		if err != nil {
			return err
		}
		defer d.Close()
		if offered, err := d.anyOffer(); !offered {
			return err
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
		return errors.Join(errs...)
	})
	return use, err
}

// anyOffer reports whether any device of the namespace offers hardware stamps: mostly
// none does, and then there is no need to look at routes.
func (d *Devices) anyOffer() (bool, error) {
	names, err := d.Holder(netip.IPv4Unspecified())
	if err != nil {
		return false, err
	}
	var errs []error
	for _, name := range names {
		info, err := d.Info(name)
		if err == nil && info.Hardware() {
			return true, nil
		}
		errs = append(errs, err)
	}
	return false, errors.Join(errs...)
}
