package frame

import (
	"encoding/hex"
	"slices"
	"testing"
)

// TestFramesAreWhatTheirStandardsSay compares with bytes written down by hand.
func TestFramesAreWhatTheirStandardsSay(t *testing.T) {
	a, b := MAC{2, 0, 0, 0, 0, 1}, MAC{2, 0, 0, 0, 0, 2}
	for _, tc := range []struct {
		name string
		got  []byte
		want string
	}{
		{
			"udp", Ethernet(b, a, TypeIPv4, IPv4(V4{From: "10.0.0.1", To: "10.0.0.2", Protocol: UDP}, UDPHeader(4000, 53, []byte("hi")))),
			"020000000002" + "020000000001" + "0800" + "4500001e00000000401166cd0a0000010a000002" + "0fa00035000a0000" + "6869",
		},
		{
			"tcp with options behind IP options", IPv4(V4{From: "10.0.0.1", To: "10.0.0.2", Protocol: TCP, Options: 4, TTL: 1}, TCPHeader(1, 2, SYN, 4, nil)),
			"46000030000000000106a2c40a0000010a00000201010101" + "00010002" + "0000000000000000" + "6002" + "000000000000" + "01010101",
		},
		{
			"a later fragment of IPv6 below two tags", Ethernet(b, a, TypeQinQ, Tag(5, TypeVLAN, Tag(6, TypeIPv6, IPv6(Fragment, "fd00::1", "fd00::2", Extension(Fragment, UDP, 8, nil))))),
			"020000000002" + "020000000001" + "88a8" + "0005" + "8100" + "0006" + "86dd" + "6000000000082c40" +
				"fd000000000000000000000000000001" + "fd000000000000000000000000000002" + "1100000800000000",
		},
		{"options of IPv6", Extension(DestOptions, NoNext, 9, nil), "3b00010400000000"},
		{"vxlan", VXLAN(110, []byte{0xff}), "0800000000006e00" + "ff"},
		{"geneve", Geneve(5, 1, nil), "010065580000050000000000"},
		{"gre", GREHeader(0x2000, TypeTEB, []uint32{100}, nil), "2000655800000064"},
		{"echo", ICMPEcho(8, []byte{1}), "080000000001000101"},
		{"arp", ARPRequest(a, "10.0.0.1", "10.0.0.2"), "0001080006040001" + "0200000000010a000001" + "0000000000000a000002"},
	} {
		want, err := hex.DecodeString(tc.want)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(tc.got, want) {
			t.Errorf("%s is\n%x, want\n%x", tc.name, tc.got, want)
		}
	}
}
