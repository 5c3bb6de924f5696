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

func (s *service) packetSockets(source.Families) (source.Source, error) {
	s.sockets = sockdiag.New(s.config.Sources.NetNS)
	return packetsockets.New(s.sockets, s.runDir()), nil
}
