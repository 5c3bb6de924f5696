package ovskernel

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vigia/internal/netlink"
	"vigia/internal/testutil"
)

// vportMessage is OVS_VPORT_CMD_NEW as uapi/linux/openvswitch.h lays it out.
func vportMessage(t testing.TB) []byte {
	t.Helper()
	e := netlink.NewEncoder([]byte{9, 0, 0, 0}) // struct ovs_header
	e.Uint32(vportNumber, 3)
	e.Uint32(2, 1) // OVS_VPORT_TYPE_NETDEV
	e.String(vportName, "tap0")
	var stats []byte
	for i := range uint64(8) {
		stats = binary.NativeEndian.AppendUint64(stats, i+1)
	}
	e.Bytes(vportStats, stats)
	e.Uint32(vportIndex, 42)
	e.Nested(vportUpcalls, func() {
		e.Uint64(upcallsSuccess, 70)
		e.Uint64(upcallsFailed, 7)
	})
	message, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return message
}

func TestVportsAreParsed(t *testing.T) {
	message := vportMessage(t)
	got, err := parseVport(message)
	want := Vport{
		Number: 3, Name: "tap0", Index: 42, RxPackets: 1, TxPackets: 2, RxBytes: 3, TxBytes: 4, RxErrors: 5, TxErrors: 6,
		RxDropped: 7, TxDropped: 8, HasUpcalls: true, Upcalls: 70, LostUpcalls: 7,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for n := range ovsHeader {
		if _, err := parseVport(message[:n]); err == nil {
			t.Errorf("%d bytes were taken", n)
		}
	}
	short := append([]byte{9, 0, 0, 0}, 12, 0, vportStats, 0, 1, 2, 3, 4, 5, 6, 7, 8)
	if _, err := parseVport(short); err == nil {
		t.Error("half of the statistics were taken")
	}
}

// fromHeaders is the same message from struct ovs_header on, laid out by a C compiler from
// uapi/linux/openvswitch.h (little-endian; upcalls as Linux 6.3 added them).
const fromHeaders = "09000000080001000300000008000200010000000900030074617030" +
	"00000000080008002a0000004400060001000000000000000200000000000000" +
	"0300000000000000040000000000000005000000000000000600000000000000" +
	"070000000000000008000000000000001c000a000c0000004600000000000000" +
	"0c0001000700000000000000"

func TestTheMessageOfTheKernelsHeadersIsParsed(t *testing.T) {
	got, err := parseVport(testutil.FromHeaders(t, fromHeaders))
	want, _ := parseVport(vportMessage(t))
	if diff := cmp.Diff(want, got); diff != "" || err != nil || got.Upcalls != 70 {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestThisKernel asks the real kernel: it lists ports, or says that it has no
// module openvswitch.
func TestThisKernel(t *testing.T) {
	conn, err := Dial(testutil.NewNetNS(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	list, err := conn.Vports()
	if err != nil && !errors.Is(err, ErrNoDatapath) {
		t.Fatal(err)
	}
	if len(list) != 0 {
		t.Errorf("a new namespace has the ports %v", list)
	}
}

func FuzzVport(f *testing.F) {
	f.Add(vportMessage(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parseVport(b); err == nil && len(p.Name) > len(b) {
			t.Errorf("a name of %d bytes in %d", len(p.Name), len(b))
		}
	})
}
