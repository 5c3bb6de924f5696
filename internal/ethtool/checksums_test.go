package ethtool

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

func TestTheKernelFillsChecksumsIn(t *testing.T) {
	a, b := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, a, "port0", b, "eth0")
	c, err := Dial(b)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	said := func() string {
		return testutil.Run(t, "ip", "netns", "exec", b, "ethtool", "--show-features", "eth0")
	}
	if before := said(); !strings.Contains(before, genericChecksums+": on") {
		t.Fatalf("a veth leaves them to the device at first: %s", before)
	}
	for range 2 { // the second time nothing changes
		if err := c.FillChecksums("eth0"); err != nil {
			t.Fatal(err)
		}
		if after := said(); !strings.Contains(after, genericChecksums+": off") {
			t.Error(after)
		}
	}
	if err := c.FillChecksums("eth9"); !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), "eth9") {
		t.Errorf("a device that is not there: %v", err)
	}
	without := &Conn{fd: -1}
	if err := without.FillChecksums("eth0"); !errors.Is(err, errNoFamily) {
		t.Errorf("a kernel without ethtool by netlink: %v", err)
	}
}
