package ethtool

import (
	"bytes"
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

// Messages of Linux 6.18 about lo, their generic netlink header left out: the request as this package makes it, and the
// answer with bitsets in their compact and in their long form.
const (
	requestForLo = "14000180070002006c6f00000800030001000000"
	compactOfLo  = "140001800800010001000000070002006c6f000018000280040001000800020013000000080004001a000000"
	longOfLo     = "140001800800010001000000070002006c6f0000840002800400010008000200130000007400038024000180" +
		"080001000100000016000200736f6674776172652d7472616e736d697400000024000180080001000300000015000200" +
		"736f6674776172652d72656365697665000000002800018008000100040000001a000200736f6674776172652d737973" +
		"74656d2d636c6f636b000000"
	// A network card with a PTP clock, in the same form: all kinds of stamps (0x5f),
	// sending off and on, receiving none and all, clock 3.
	compactOfCard = "180001800800010004000000090002006574683000000000" +
		"18000280040001000800020013000000080004005f000000" +
		"180003800400010008000200040000000800040003000000" +
		"180004800400010008000200100000000800040003000000" + "0800050003000000"
)

var (
	software = TimeStamps{Stamping: unix.SOF_TIMESTAMPING_TX_SOFTWARE | unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE, Clock: -1}
	card     = TimeStamps{
		Stamping: hardware | software.Stamping,
		TxTypes:  1<<unix.HWTSTAMP_TX_OFF | 1<<unix.HWTSTAMP_TX_ON, RxFilters: 1<<unix.HWTSTAMP_FILTER_NONE | 1<<unix.HWTSTAMP_FILTER_ALL, Clock: 3,
	}
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMessagesOfTheKernel(t *testing.T) {
	request, err := encodeRequest("lo", compactBitsets)
	if err != nil || !bytes.Equal(request, unhex(t, requestForLo)) {
		t.Errorf("request %x, %v", request, err)
	}
	for name, tc := range map[string]struct {
		message string
		want    TimeStamps
	}{"compact": {compactOfLo, software}, "long": {longOfLo, software}, "card": {compactOfCard, card}} {
		if got, err := parseTimeStamps(unhex(t, tc.message)); err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, tc.want)
		}
	}
	for cut := range len(unhex(t, compactOfCard)) {
		got, err := parseTimeStamps(unhex(t, compactOfCard)[:cut])
		if err == nil && got.Hardware() && cut < 48 {
			t.Errorf("%d bytes offer hardware stamps", cut)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range []string{compactOfLo, longOfLo, compactOfCard, ""} {
		f.Add(unhex(f, m))
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = parseTimeStamps(b)
		_, _ = parseSpeed(b)
	})
}

// TestRealDevices asks the kernel about lo and veth, which stamp in software, by
// netlink and by ioctl, and about a device that is not there.
func TestRealDevices(t *testing.T) {
	left, right := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, left, "v0", right, "v0")
	c, err := Dial(left)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, device := range []string{"lo", "v0"} {
		stamps, err := c.TimeStamps(device)
		if err != nil || stamps.Hardware() || stamps.Stamping&software.Stamping != software.Stamping {
			t.Errorf("%s: %+v, %v", device, stamps, err)
		}
		if old, err := c.legacyTimeStamps(device); err != nil || old != stamps {
			t.Errorf("%s by ioctl: %+v, %v; by netlink %+v", device, old, err, stamps)
		}
		if config, err := c.StampConfig(device); err != nil || config != nil {
			t.Errorf("%s is configured: %+v, %v", device, config, err)
		}
		if granted, err := c.StampAll(device); err == nil || !strings.Contains(err.Error(), device) {
			t.Errorf("%s stamps in hardware: %+v, %v", device, granted, err)
		}
	}
	for name, ask := range map[string]func() error{
		"time stamps":   func() error { _, err := c.TimeStamps("nowhere"); return err },
		"by ioctl":      func() error { _, err := c.legacyTimeStamps("nowhere"); return err },
		"configuration": func() error { _, err := c.StampConfig("nowhere"); return err },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("%s of a device that is not there: %v", name, err)
		}
	}
	c.family = nil // as on a kernel without it
	if stamps, err := c.TimeStamps("v0"); err != nil || stamps.Stamping == 0 {
		t.Errorf("without the family: %+v, %v", stamps, err)
	}
	if speed, err := c.Speed("v0"); err != nil || speed != 0 {
		t.Errorf("without the family: %d bit/s, %v", speed, err)
	}
}

// TestRealCards asks about this machine's devices, whatever they are: what the
// kernel offers by netlink must be what it offers by ioctl.
func TestRealCards(t *testing.T) {
	c, err := Dial("")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	devices, err := filepath.Glob("/sys/class/net/*/device")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range devices {
		name := filepath.Base(filepath.Dir(path))
		stamps, err := c.TimeStamps(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if old, err := c.legacyTimeStamps(name); err == nil && old.Stamping != stamps.Stamping {
			t.Errorf("%s: %+v by netlink, %+v by ioctl", name, stamps, old)
		}
	}
}
