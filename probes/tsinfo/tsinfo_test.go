package tsinfo

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// Messages of Linux 6.18 about lo: the request as this package makes it, and the
// answer with bitsets in their compact and in their long form.
const (
	requestForLo = "1901000014000180070002006c6f00000800030001000000"
	compactOfLo  = "1a010000140001800800010001000000070002006c6f000018000280040001000800020013000000080004001a000000"
	longOfLo     = "1a010000140001800800010001000000070002006c6f0000840002800400010008000200130000007400038024000180" +
		"080001000100000016000200736f6674776172652d7472616e736d697400000024000180080001000300000015000200" +
		"736f6674776172652d72656365697665000000002800018008000100040000001a000200736f6674776172652d737973" +
		"74656d2d636c6f636b000000"
	// A network card with a PTP clock, in the same form: all kinds of stamps (0x5f),
	// sending off and on, receiving none and all, clock 3.
	compactOfCard = "1a010000180001800800010004000000090002006574683000000000" +
		"18000280040001000800020013000000080004005f000000" +
		"180003800400010008000200040000000800040003000000" +
		"180004800400010008000200100000000800040003000000" + "0800050003000000"
)

var (
	software = Info{Stamping: unix.SOF_TIMESTAMPING_TX_SOFTWARE | unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE, Clock: -1}
	card     = Info{
		Stamping: allHardware | software.Stamping,
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
	request, err := encodeRequest("lo")
	if err != nil || !bytes.Equal(request, unhex(t, requestForLo)) {
		t.Errorf("request %x, %v", request, err)
	}
	for name, tc := range map[string]struct {
		message string
		want    Info
	}{"compact": {compactOfLo, software}, "long": {longOfLo, software}, "card": {compactOfCard, card}} {
		if got, err := parse(unhex(t, tc.message)); err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, tc.want)
		}
	}
	for cut := range len(unhex(t, compactOfCard)) {
		got, err := parse(unhex(t, compactOfCard)[:cut])
		if err == nil && got.Hardware() && cut < 52 {
			t.Errorf("%d bytes offer hardware stamps", cut)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range []string{compactOfLo, longOfLo, compactOfCard, ""} {
		f.Add(unhex(f, m))
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = parse(b)
		_, _ = parseRoute(b)
		_, _, _ = parseAddress(b)
	})
}

func TestDecide(t *testing.T) {
	config := func(tx, rx int32) *unix.HwTstampConfig { return &unix.HwTstampConfig{Tx_type: tx, Rx_filter: rx} }
	on := config(unix.HWTSTAMP_TX_ON, unix.HWTSTAMP_FILTER_ALL)
	ptpOnly, noTX, noRX, noRaw := card, card, card, card
	ptpOnly.RxFilters = 1<<unix.HWTSTAMP_FILTER_NONE | 1<<unix.HWTSTAMP_FILTER_PTP_V2_EVENT
	noTX.Stamping &^= unix.SOF_TIMESTAMPING_TX_HARDWARE
	noRX.Stamping &^= unix.SOF_TIMESTAMPING_RX_HARDWARE
	noRaw.Stamping &^= unix.SOF_TIMESTAMPING_RAW_HARDWARE
	for _, tc := range []struct {
		name       string
		mode       Mode
		info       Info
		configured *unix.HwTstampConfig
		use        bool
		enable     bool
		why        string
	}{
		{"switched on", Auto, card, on, true, false, ""},
		{"switched on, and may be", Enable, card, on, true, false, ""},
		{"unwanted", Off, card, on, false, false, "off"},
		{"software alone", Auto, software, nil, false, false, "does not offer"},
		{"software alone, whatever it says", Enable, software, on, false, false, "does not offer"},
		{"no send stamps", Enable, noTX, on, false, false, "does not offer"},
		{"no receive stamps", Auto, noRX, on, false, false, "does not offer"},
		{"no raw stamps", Auto, noRaw, on, false, false, "does not offer"},
		{"switched off", Auto, card, config(0, 0), false, false, "not switched on"},
		{"send alone", Auto, card, config(unix.HWTSTAMP_TX_ON, 0), false, false, "not switched on"},
		{"receive alone", Auto, card, config(0, unix.HWTSTAMP_FILTER_ALL), false, false, "not switched on"},
		{"PTP alone", Auto, card, config(unix.HWTSTAMP_TX_ON, unix.HWTSTAMP_FILTER_PTP_V2_EVENT), false, false, "not switched on"},
		{"configuration unknown", Auto, card, nil, false, false, "not switched on"},
		{"to be switched on", Enable, card, config(0, 0), true, true, ""},
		{"to be switched on, configuration unknown", Enable, card, nil, true, true, ""},
		{"cannot stamp all", Enable, ptpOnly, config(0, 0), false, false, "PTP packets alone"},
	} {
		got := Decide(tc.mode, tc.info, tc.configured)
		if got.Use != tc.use || got.Enable != tc.enable || !strings.Contains(got.Why, tc.why) || (got.Why == "") != tc.use {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}

// opened are the devices of a namespace.
func opened(t *testing.T, ns string) *Devices {
	t.Helper()
	var d *Devices
	if err := netns.Do(ns, func() (err error) { d, err = Open(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// TestRealDevices asks the kernel about lo and veth, which stamp in software, by
// netlink and by ioctl, and about a device that is not there.
func TestRealDevices(t *testing.T) {
	left, right := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, left, "v0", right, "v0")
	d := opened(t, left)
	for _, device := range []string{"lo", "v0"} {
		info, err := d.Info(device)
		if err != nil || info.Hardware() || info.Stamping&software.Stamping != software.Stamping {
			t.Errorf("%s: %+v, %v", device, info, err)
		}
		if old, err := d.legacyInfo(device); err != nil || old != info {
			t.Errorf("%s by ioctl: %+v, %v; by netlink %+v", device, old, err, info)
		}
		for _, mode := range []Mode{Auto, Off, Enable} {
			if v, err := d.Hardware(device, mode); err != nil || v.Use || v.Why == "" {
				t.Errorf("%s, mode %d: %+v, %v", device, mode, v, err)
			}
		}
	}
	if v, err := d.Hardware("nowhere", Auto); err == nil || v.Use || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("%+v, %v", v, err)
	}
	d.ethtool.Close()
	d.ethtool = nil // as on a kernel without the family
	if info, err := d.Info("v0"); err != nil || info.Stamping == 0 {
		t.Errorf("without the family: %+v, %v", info, err)
	}
}

// TestRealCards asks about this machine's devices, whatever they are: what the
// kernel offers by netlink must be what it offers by ioctl.
func TestRealCards(t *testing.T) {
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	devices, err := filepath.Glob("/sys/class/net/*/device")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range devices {
		name := filepath.Base(filepath.Dir(path))
		info, err := d.Info(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if old, err := d.legacyInfo(name); err == nil && old.Stamping != info.Stamping {
			t.Errorf("%s: %+v by netlink, %+v by ioctl", name, info, old)
		}
	}
}

// TestEgress follows addresses, sources, marks and devices through real routes.
func TestEgress(t *testing.T) {
	left, right := testutil.NewNetNS(t), testutil.NewNetNS(t)
	for _, dev := range []string{"v0", "v1"} {
		testutil.NewVethPair(t, left, dev, right, dev)
	}
	for _, args := range []string{
		"addr add 10.9.0.1/24 dev v0", "addr add 10.9.1.1/24 dev v1", "-6 addr add fd00:9::1/64 dev v1 nodad",
		"route add 10.8.0.0/16 via 10.9.0.2", "route add default via 10.9.1.2 table 7", "rule add fwmark 7 table 7",
	} {
		testutil.IP(t, append([]string{"-n", left}, strings.Fields(args)...)...)
	}
	d := opened(t, left)
	address := netip.MustParseAddr
	for _, tc := range []struct {
		flow Flow
		want string
	}{
		{Flow{To: address("10.9.0.2")}, "v0"},
		{Flow{To: address("10.9.1.2"), From: address("0.0.0.0")}, "v1"},
		{Flow{To: address("10.8.3.4"), From: address("10.9.0.1")}, "v0"},
		{Flow{To: address("10.8.3.4"), Mark: 7}, "v1"},
		{Flow{To: address("fd00:9::2")}, "v1"},
		{Flow{To: address("127.0.0.1")}, "lo"},
		{Flow{To: address("10.9.0.2"), Device: "v1"}, "v1"},
	} {
		if got, err := d.Egress(tc.flow); err != nil || got != tc.want {
			t.Errorf("%+v: %q, %v, want %s", tc.flow, got, err, tc.want)
		}
	}
	if got, err := d.Egress(Flow{To: address("203.0.113.1")}); err == nil {
		t.Errorf("without a route: %q", got)
	}
	for local, want := range map[string]string{"10.9.1.1": "v1", "fd00:9::1": "v1", "10.9.9.9": "", "0.0.0.0": "lo v0 v1"} {
		got, err := d.Holder(address(local))
		slices.Sort(got)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s is held by %q, %v, want %q", local, got, err, want)
		}
	}
}
