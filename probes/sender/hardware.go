package sender

import "vigia/probes/tsinfo"

// Survey says of each flow out of a network namespace whether the device that it
// leaves by stamps in hardware; tsinfo.Survey is the real one.
type Survey func(netns string, mode tsinfo.Mode, flows []tsinfo.Flow) ([]bool, error)

// SetHardware says whether hardware stamps are used.
func (s *Sender) SetHardware(mode tsinfo.Mode) {
	s.surveyor.SetMode(mode)
}

// surveyed are the sessions of one namespace and how their packets leave.
type surveyed struct {
	sessions []*session
	flows    []tsinfo.Flow
}

// surveyOnce finds out for every session whether its device stamps in hardware.
func (s *Sender) surveyOnce() {
	byNetns := make(map[string]*surveyed)
	s.engine.do(func() {
		for _, ser := range s.engine.series {
			for _, c := range ser.current {
				if c.socket == nil || !c.Address.IsValid() || c.exchange != nil {
					continue
				}
				ns := byNetns[c.target.Netns]
				if ns == nil {
					ns = &surveyed{}
					byNetns[c.target.Netns] = ns
				}
				ns.sessions = append(ns.sessions, c)
				ns.flows = append(ns.flows, tsinfo.Flow{
					To: c.Address.Addr(), From: c.socket.Local().Addr(), Mark: c.target.Channel.Mark, Device: c.target.Channel.Device,
				})
			}
		}
	})
	for name, ns := range byNetns {
		use, err := s.options.Survey(name, s.surveyor.Mode(), ns.flows)
		if err != nil {
			s.options.Logger.Warn("cannot tell of every device whether it stamps in hardware", "netns", name, "err", err)
		}
		if len(use) != len(ns.flows) {
			continue // the namespace is gone
		}
		s.engine.do(func() { s.engine.useHardware(ns.sessions, use) })
	}
}

// useHardware lets sessions use hardware stamps or not. Twins never do: a difference
// between a path that has them and one that has not would compare clocks.
func (e *engine) useHardware(sessions []*session, use []bool) {
	wanted := make(map[*socket]bool)
	for i, s := range sessions {
		if s.socket == nil || s.retired {
			continue
		}
		s.Hardware = use[i] && s.target.Twin.Size == 0
		wanted[s.socket] = wanted[s.socket] || s.Hardware
	}
	for k, hardware := range wanted {
		if k.Hardware() == hardware {
			continue
		}
		if err := k.SetHardware(hardware); err != nil {
			e.logger.Error("cannot ask for hardware stamps", "socket", k.key.String(), "err", err)
			continue
		}
		e.logger.Info("hardware time stamps", "socket", k.key.String(), "used", hardware)
	}
}
