package app

import (
	"errors"

	"vigia/exporters/tenant/kerneldrops"
	"vigia/exporters/tenant/packetsockets"
	"vigia/exporters/tenant/source"
	"vigia/internal/bpf/drops"
	"vigia/internal/sockdiag"
)

// kernelDrops opens the source of drop reasons. A kernel that gives none leaves
// drops unattributed; it is no error, and there is no source.
func (s *service) kernelDrops(f source.Families) (source.Source, error) {
	var err error
	s.drops, err = drops.Open(s.config.BPF.PinDir, s.config.Sources.NetNS)
	if errors.Is(err, drops.ErrUnsupported) {
		s.logger.Warn("drops have no reasons", "err", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return kerneldrops.New(f, s.drops), nil
}

func (s *service) packetSockets(f source.Families) (source.Source, error) {
	var err error
	if s.sockets, err = sockdiag.Dial(s.config.Sources.NetNS); err != nil {
		return nil, err
	}
	return packetsockets.New(s.sockets, s.runDir()), nil
}
