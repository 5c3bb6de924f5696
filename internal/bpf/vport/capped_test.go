package vport

import (
	"bytes"
	"fmt"
	"net"
	"testing"

	"vigia/internal/testutil/frame"
)

// chain is UDP behind so many extension headers of IPv6.
func chain(n int) []byte {
	payload, next := udp(1, 2, 100), byte(frame.UDP)
	for range n {
		payload, next = frame.Extension(frame.DestOptions, next, 0, payload), frame.DestOptions
	}
	return ethernet(ethIPv6, ipv6("fd00::1", "fd00::2", next, payload))
}

// TestALimitTakesWhateverIsNotTCP: no header that a tenant may write takes its traffic out of
// a limit that leaves TCP alone.
func TestALimitTakesWhateverIsNotTCP(t *testing.T) {
	b := newBench(t)
	pad := make([]byte, 200)
	over4 := func(protocol byte, fragment uint16) []byte {
		return ethernet(ethIPv4, ipv4("10.0.0.1", "10.0.0.2", protocol, fragment, 0, pad))
	}
	over6 := func(next byte, payload []byte) []byte {
		return ethernet(ethIPv6, ipv6("fd00::1", "fd00::2", next, payload))
	}
	datagram := ipv4("10.0.0.1", "10.0.0.2", frame.UDP, 0, 0, udp(1, 2, 100))
	for name, data := range map[string][]byte{
		"UDP":                                  udpFrame("10.0.0.2", 9, 100),
		"UDP-Lite":                             over4(frame.UDPLite, 0),
		"SCTP":                                 over4(frame.SCTP, 0),
		"IP in IP":                             over4(frame.IPIP, 0),
		"IPv6 in IP":                           over4(frame.IPv6InIP, 0),
		"GRE":                                  over4(frame.GRE, 0),
		"ESP":                                  over4(frame.ESP, 0),
		"AH":                                   over4(frame.AH, 0),
		"a protocol that nobody has":           over4(253, 0),
		"ICMP":                                 over4(frame.ICMP, 0),
		"a later fragment of UDP":              over4(frame.UDP, 0x0010),
		"a later fragment that says TCP":       over4(frame.TCP, 0x0010),
		"AH over IPv6":                         over6(frame.AH, pad),
		"SCTP over IPv6":                       over6(frame.SCTP, pad),
		"no next header":                       over6(frame.NoNext, pad),
		"ICMPv6":                               over6(frame.ICMPv6, append([]byte{128, 0}, pad...)),
		"a later fragment of IPv6":             over6(frame.Fragment, extension(frame.UDP, 8, pad)),
		"a fragment behind destination option": over6(frame.DestOptions, frame.Extension(frame.DestOptions, frame.Fragment, 0, extension(frame.DestOptions, 8, pad))),
		"the same of options in the fragment":  over6(frame.Fragment, extension(frame.DestOptions, 0xfff8, pad)),
		"seven extensions":                     chain(7),
		"twenty extensions":                    chain(20),
		"a cut extension":                      over6(frame.HopByHop, []byte{17, 0}),
		"three tags":                           ethernet(ethQinQ, vlan(ethVLAN, vlan(ethVLAN, vlan(ethIPv4, datagram)))),
		"an ethertype that nobody has":         ethernet(frame.TypeUnused, pad),
		"MPLS":                                 ethernet(0x8847, pad),
		"a length in place of a type":          ethernet(200, pad),
		"an IPv4 header longer than all of it": ethernet(ethIPv4, append([]byte{0x4f}, datagram[1:20]...)),
	} {
		t.Run(name, func(t *testing.T) {
			if err := b.RemoveLimit(loopback); err != nil {
				t.Fatal(err)
			}
			b.setLimit(LimitRequest{Rate: 1, Burst: 3 * uint64(len(data))})
			if got := b.passes(data, 30); got != 3 {
				t.Errorf("%d of 30 passed, want the burst of 3", got)
			}
			if got := b.passes(tcpFrame("10.0.0.2"), 30); got != 30 {
				t.Errorf("%d of 30 TCP frames passed", got)
			}
			if got := b.passes(ethernet(ethARP, make([]byte, 28)), 30); got != 30 {
				t.Errorf("%d of 30 ARP requests passed", got)
			}
		})
	}
}

// TestIPv6HostsThatFoldToOneAreToldApart: an address has 128 bits, and a tenant chooses them.
func TestIPv6HostsThatFoldToOneAreToldApart(t *testing.T) {
	victim, twin := "fd00::2", "fd00:0:0:1::3" // 32 bits at a time by exclusive or, both are the same
	to := func(address string, port uint16) []byte {
		return ethernet(ethIPv6, ipv6("fd00::1", address, frame.UDP, udp(4000, port, 20)))
	}
	if fold32(victim) != fold32(twin) {
		t.Fatal("the test's addresses do not fold to the same")
	}
	b := newBench(t)
	atWindowStart(t)
	for i := range 3000 { // answers of the twin are none of the victim's
		b.run(b.objects.VportTcxFrom, to(victim, uint16(i*7)))
		b.run(b.objects.VportTcxTo, ethernet(ethIPv6, ipv6(twin, "fd00::1", frame.UDP, udp(9, 4000, 20))))
	}
	nextWindow(t)
	if s := b.signals(); s.FloodSinceNs == 0 || s.ReplyRatio != 0 {
		t.Errorf("the answers of another host hide a flood: %+v", s)
	}
}

func fold32(address string) (out [4]byte) {
	for i, v := range net.ParseIP(address).To16() {
		out[i%4] ^= v
	}
	return out
}

// TestTheSeedIsDrawnOnceAndNotZero, and places differ from one node to another.
func TestTheSeedIsDrawnOnceAndNotZero(t *testing.T) {
	seeds := map[vportSeed]bool{}
	for range 4 {
		b := newBench(t)
		var seed vportSeed
		if err := b.objects.VportSeed.Lookup(uint32(0), &seed); err != nil {
			t.Fatal(err)
		}
		if seed.Times%2 == 0 || seed.Add == 0 || seeds[seed] {
			t.Errorf("seed %+v", seed)
		}
		seeds[seed] = true
		again := open(t, Options{PinDir: b.pinDir, MaxPorts: 4})
		var same vportSeed
		if err := again.objects.VportSeed.Lookup(uint32(0), &same); err != nil || same != seed {
			t.Errorf("another process has %+v, %v; want %+v", same, err, seed)
		}
	}
}

// TestFlowsThatMeetOnOneNodeDoNotOnAnother: which flows share a bit is nothing that a tenant
// could work out.
func TestFlowsThatMeetOnOneNodeDoNotOnAnother(t *testing.T) {
	met := make([]string, 3)
	for i := range met {
		b := newBench(t)
		var pattern bytes.Buffer
		for f := range 400 {
			before := b.newFlowsEver()
			b.run(b.objects.VportTcxFrom, flow(f, frame.UDP))
			fmt.Fprint(&pattern, b.newFlowsEver() > before)
		}
		met[i] = pattern.String()
	}
	if met[0] == met[1] && met[1] == met[2] {
		t.Error("the same flows of 400 meet on three nodes")
	}
}
