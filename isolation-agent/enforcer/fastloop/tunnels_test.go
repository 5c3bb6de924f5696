package fastloop

import (
	"net/netip"
	"testing"

	"vigia/internal/bpf/classify"
	"vigia/isolation-agent/enforcer/fastloop/control"
)

// TestTunnelsAreWrittenAgainAfterAFailure: what was written in part is not what is listed.
func TestTunnelsAreWrittenAgainAfterAFailure(t *testing.T) {
	l, _, _ := newSizedLoop(t, 1)
	ends := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	site := func(vlan uint16) *directory {
		return &directory{own: ends[:1], others: ends[1:], tunnels: map[control.Address]*node{addressOf("10.0.0.1"): {}, addressOf("10.0.0.2"): {}}, vlan: vlan}
	}
	good := site(0)
	for range 2 { // written, and the same again
		l.directory = good
		if err := l.listTunnels(); err != nil || l.listed != good {
			t.Fatalf("%v, %p is listed", err, l.listed)
		}
	}
	l.directory = site(classify.MaxVLAN + 1)
	if err := l.listTunnels(); err == nil || l.listed != nil {
		t.Errorf("what cannot be written is listed: %v, %p", err, l.listed)
	}
	l.directory = site(0)
	if err := l.listTunnels(); err != nil || l.listed != l.directory {
		t.Errorf("the tunnels of before are not written again: %v, %p", err, l.listed)
	}
}
