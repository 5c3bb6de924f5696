package sender

import (
	"vigia/probes/delay"
	"vigia/probes/icmp"
	"vigia/probes/timestamping"
)

// datagram returns how large an answer can be, in bytes.
func (s *session) datagram() int {
	if s.target.Channel.Protocol == timestamping.ICMP {
		return s.target.Size + icmp.Overhead
	}
	return s.layout.Size
}

// echoed handles an ICMP packet, read at the given monotonic time.
func (e *engine) echoed(k *socket, d *timestamping.Datagram, at int64) {
	v6 := k.key.Local.Addr().Is6()
	packet := d.Payload
	if k.Raw() && !v6 {
		packet = icmp.StripIPv4(packet)
	}
	// A raw socket hears the answers to others, too.
	if id, ok := icmp.ID(packet); ok && id != k.Local().Port() {
		return
	}
	r, ok := icmp.ParseReply(packet, v6)
	s := k.bySSID[r.SSID]
	if !ok || d.Truncated || s == nil || s.address != d.From {
		if len(k.byPeer[d.From]) > 0 && k.expected(r.SSID) {
			e.corrupt(k, nil, d.From)
			return
		}
		e.stray++
		return
	}
	sequence, sent := s.window.Expand(r.Sequence)
	slot := s.window.Lookup(sequence)
	if !sent || slot != nil && (uint64(slot.Value.echo) != r.Nonce || !icmp.Intact(s.packet, packet)) {
		s.series.counts.Corrupt++
		return
	}
	if !e.answer(s, sequence, d.Stamp, at) {
		return
	}
	if d.Stamp != 0 {
		slot.Value.Stamps.T4 = d.Stamp
		slot.Value.Stamps.Kernel |= delay.T4
	}
	slot.Value.Stamps.Device4 = d.Hardware
	e.returned(s, slot, at)
}

// expected reports whether an answer with the identifier can be a damaged one,
// and not one to a session that is gone.
func (k *socket) expected(ssid uint16) bool {
	return k.used[ssid/64]&(1<<(ssid%64)) == 0 || k.bySSID[ssid] != nil
}

// returned takes the measurements of a probe that the other kernel has answered,
// which leaves no stamps of its own.
func (e *engine) returned(s *session, slot *slot, at int64) {
	p := &slot.Value
	p.State, p.Application = Waiting, at-p.Intended
	p.Stamps.OneClock = true
	p.Stamps.Kernel |= delay.T2 | delay.T3
	p.Stamps.ReceivedSteps = e.clock.Steps()
	s.waiting++
	s.series.answered = at
	s.series.recorder.Received(p)
	if p.Stamps.Kernel&delay.T4 == 0 || p.complete(s) {
		e.finish(s, slot)
		return
	}
	e.settle.setEarlier(s, onGrid(p.settleBy(s)+1))
}
