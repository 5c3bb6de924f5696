package app

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// sourcePorts returns the source ports of the next n datagrams.
func sourcePorts(t *testing.T, conn *net.UDPConn, n int) []int {
	t.Helper()
	var ports []int
	buf := make([]byte, 2048)
	for len(ports) < n {
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		_, from, err := conn.ReadFromUDP(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d datagrams came, want %d", len(ports), n)
		}
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, from.Port)
	}
	return ports
}

// A cold flow has a source port that no probe used before, a warm one always the same,
// as seen on the wire.
func TestFlowsOnTheWire(t *testing.T) {
	t.Parallel()
	const probes = 40
	for _, tc := range []struct {
		flow     string
		distinct int
	}{{"cold", probes}, {"warm", 1}} {
		t.Run(tc.flow, func(t *testing.T) {
			t.Parallel()
			far, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			start(t, fmt.Sprintf(`
node: a
moments: {disabled: true} # nobody answers: its search of the path MTU would come from a port of its own
paths: [{name: lo, dataplane: veth, encap: none, mode: none, security: none, layer: underlay, placement: local}]
classes: [{name: c, protocol: stamp, size: 64, interval: 100ms, deadline: 1s, flow: %s}]
targets: [{dst: b, path: lo, tenant: _infra, probe: c, address: %q}]
`, tc.flow, far.LocalAddr()))
			seen := make(map[int]int)
			for _, port := range sourcePorts(t, far, probes) {
				seen[port]++
			}
			if len(seen) != tc.distinct {
				t.Errorf("%d probes came from %d ports, want %d: %v", probes, len(seen), tc.distinct, seen)
			}
		})
	}
}
