package rtnl

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
	"vigia/internal/testutil"
)

func numbers(ns ...uint32) (b []byte) {
	for _, n := range ns {
		b = binary.NativeEndian.AppendUint32(b, n)
	}
	return b
}

// vfMessage is RTM_NEWLINK of a physical function as uapi/linux/if_link.h lays it out.
func vfMessage(t *testing.T) []byte {
	t.Helper()
	e := netlink.NewEncoder(make([]byte, unix.SizeofIfInfomsg))
	e.String(unix.IFLA_IFNAME, "pf0")
	e.Nested(iflaVFInfoList, func() {
		for vf := range uint32(2) {
			e.Nested(1, func() { writeVF(e, vf) })
		}
	})
	message, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return message
}

func writeVF(e *netlink.Encoder, vf uint32) {
	mac := append(numbers(vf), make([]byte, 32)...)
	copy(mac[4:], []byte{2, 0, 0, 0, 0, byte(vf)})
	e.Bytes(iflaVFMAC, mac)
	if vf == 1 { // a driver that knows little
		e.Bytes(iflaVFSpoofChk, numbers(vf, 0xffffffff))
		return
	}
	e.Bytes(iflaVFVLAN, numbers(vf, 100, 0))
	e.Bytes(iflaVFSpoofChk, numbers(vf, 1))
	e.Bytes(iflaVFTrust, numbers(vf, 0))
	e.Bytes(iflaVFLinkState, numbers(vf, 2))
	e.Bytes(iflaVFRate, numbers(vf, 80, 800))
	e.Nested(iflaVFStats, func() {
		for i, n := range []uint64{1, 2, 3, 4, 5, 6, 0, 8, 9} {
			e.Uint64(uint16(i), n)
		}
	})
}

func TestVFsAreParsed(t *testing.T) {
	message := vfMessage(t)
	got, err := parseVFs(message)
	if err != nil {
		t.Fatal(err)
	}
	want := []VF{
		{
			MAC: []byte{2, 0, 0, 0, 0, 0}, VLAN: 100, SpoofCheck: On, Trust: Off, LinkState: Disable, MinRate: 10e6, MaxRate: 100e6,
			HasStats: true, RxPackets: 1, TxPackets: 2, RxBytes: 3, TxBytes: 4, RxDropped: 8, TxDropped: 9,
		},
		{Index: 1, MAC: []byte{2, 0, 0, 0, 0, 1}, SpoofCheck: Unknown, Trust: Unknown},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for n := range message { // cut anywhere, it is refused or shorter, and never read past
		if got, err := parseVFs(message[:n]); err == nil && len(got) > 2 {
			t.Errorf("%d bytes give %v", n, got)
		}
	}
}

// fromHeaders is RTM_NEWLINK of a physical function with all that the kernel says of
// one VF, laid out by a C compiler from uapi/linux/if_link.h (little-endian).
const fromHeaders = "0000000007000000000000000000000008000300706630000800150001000000" +
	"1401160010010100280001000000000002000000000100000000000000000000" +
	"0000000000000000000000000000000024000d00ffffffffffff000000000000" +
	"0000000000000000000000000000000000000000100002000000000064000000" +
	"00000000100006000000000050000000200300000c0003000000000020030000" +
	"0c00040000000000010000000c00050000000000020000000c00070000000000" +
	"000000000c0009000000000000000000640008000c0000000100000000000000" +
	"0c00010002000000000000000c00020003000000000000000c00030004000000" +
	"000000000c00040005000000000000000c00050006000000000000000c000700" +
	"08000000000000000c0008000900000000000000"

func TestTheMessageOfTheKernelsHeadersIsParsed(t *testing.T) {
	got, err := parseVFs(testutil.FromHeaders(t, fromHeaders))
	want := []VF{{
		MAC: []byte{2, 0, 0, 0, 0, 1}, VLAN: 100, SpoofCheck: On, Trust: Off, LinkState: Disable, MinRate: 10e6, MaxRate: 100e6,
		HasStats: true, RxPackets: 1, TxPackets: 2, RxBytes: 3, TxBytes: 4, RxDropped: 8, TxDropped: 9,
	}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestADeviceWithoutVFsHasNone(t *testing.T) {
	conn, err := Dial(testutil.NewNetNS(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if vfs, err := conn.VFs(1); err != nil || len(vfs) != 0 { // lo
		t.Errorf("%v, %v", vfs, err)
	}
	if _, err := conn.VFs(9999); err == nil {
		t.Error("a device that is not there answered")
	}
}
