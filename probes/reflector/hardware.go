package reflector

import (
	"net/netip"
	"slices"

	"vigia/probes/tsinfo"
)

// Survey says of local addresses of a network namespace whether a device that has
// them stamps in hardware; tsinfo.SurveyLocal is the real one.
type Survey func(netns string, mode tsinfo.Mode, locals []netip.Addr) ([]bool, error)

// SetHardware says whether hardware stamps are used. A sender gets them only when it
// asks, and then both of an answer or none.
func (r *Reflector) SetHardware(mode tsinfo.Mode) {
	r.surveyor.SetMode(mode)
}

func (r *Reflector) surveyOnce() {
	listeners, locals := make(map[string][]*listener), make(map[string][]netip.Addr)
	r.do(func() {
		for _, l := range r.listeners {
			if l != nil {
				listeners[l.key.Netns] = append(listeners[l.key.Netns], l)
				locals[l.key.Netns] = append(locals[l.key.Netns], l.Local().Addr())
			}
		}
	})
	for ns, of := range listeners {
		use, err := r.options.Survey(ns, r.surveyor.Mode(), locals[ns])
		if err != nil {
			r.options.Logger.Warn("cannot tell of every device whether it stamps in hardware", "netns", ns, "err", err)
		}
		if len(use) == len(of) {
			r.do(func() { r.useHardware(of, use) })
		}
	}
}

// useHardware asks for the devices' stamps at those listeners that are still there.
func (r *Reflector) useHardware(listeners []*listener, use []bool) {
	for i, l := range listeners {
		if !slices.Contains(r.listeners, l) || l.Hardware() == use[i] {
			continue
		}
		if err := l.SetHardware(use[i]); err != nil {
			r.options.Logger.Error("cannot ask for hardware stamps", "socket", l.key.String(), "err", err)
			continue
		}
		r.options.Logger.Info("hardware time stamps", "socket", l.key.String(), "used", use[i])
	}
}
