package ethtool

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

func TestSpeedOfTheKernelsDevices(t *testing.T) {
	node, peer := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, node, "up0", peer, "up0")
	testutil.IP(t, "-n", node, "link", "add", "ifb9", "type", "ifb")
	c, err := Dial(node)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for device, want := range map[string]uint64{"up0": 10e9, "ifb9": 0, "lo": 0} { // veth says 10 Gbit/s
		if got, err := c.Speed(device); err != nil || got != want {
			t.Errorf("%s: %d bit/s, %v; want %d", device, got, err, want)
		}
	}
	if got, err := c.Speed("absent0"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("a device that is not there: %d, %v", got, err)
	}
}

func TestAnswersAreChecked(t *testing.T) {
	attribute := func(kind uint16, value uint32) []byte {
		b := binary.NativeEndian.AppendUint16(nil, 8)
		b = binary.NativeEndian.AppendUint16(b, kind)
		return binary.NativeEndian.AppendUint32(b, value)
	}
	for name, tc := range map[string]struct {
		payload []byte
		want    uint64
		broken  bool
	}{
		"a speed":          {attribute(linkModesSpeed, 25000), 25e9, false},
		"an unknown one":   {attribute(linkModesSpeed, 0xffffffff), 0, false},
		"something else":   {attribute(6, 1), 0, false},
		"nothing":          {nil, 0, false},
		"half a number":    {[]byte{6, 0, linkModesSpeed, 0, 1, 2, 0, 0}, 0, true},
		"a length too big": {[]byte{60, 0, linkModesSpeed, 0, 1, 2, 0, 0}, 0, true},
	} {
		if got, err := parseSpeed(tc.payload); got != tc.want || (err != nil) != tc.broken {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
}
