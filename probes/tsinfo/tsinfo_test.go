package tsinfo

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/ethtool"
	"vigia/internal/testutil"
)

// allHardware is what it takes to have hardware stamps of arbitrary packets.
const allHardware = unix.SOF_TIMESTAMPING_TX_HARDWARE | unix.SOF_TIMESTAMPING_RX_HARDWARE | unix.SOF_TIMESTAMPING_RAW_HARDWARE

var (
	software = ethtool.TimeStamps{Stamping: unix.SOF_TIMESTAMPING_TX_SOFTWARE | unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE, Clock: -1}
	card     = ethtool.TimeStamps{
		Stamping: allHardware | software.Stamping,
		TxTypes:  1<<unix.HWTSTAMP_TX_OFF | 1<<unix.HWTSTAMP_TX_ON, RxFilters: 1<<unix.HWTSTAMP_FILTER_NONE | 1<<unix.HWTSTAMP_FILTER_ALL, Clock: 3,
	}
)

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
		info       ethtool.TimeStamps
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

// TestRealDevices decides about lo and veth, which stamp in software alone, and about a
// device that is not there.
func TestRealDevices(t *testing.T) {
	left, right := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, left, "v0", right, "v0")
	d, err := Open(left)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, device := range []string{"lo", "v0"} {
		for _, mode := range []Mode{Auto, Off, Enable} {
			if v, err := d.Hardware(device, mode); err != nil || v.Use || v.Why == "" {
				t.Errorf("%s, mode %d: %+v, %v", device, mode, v, err)
			}
		}
	}
	if v, err := d.Hardware("nowhere", Auto); err == nil || v.Use || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestSurveysOfSoftwareDevices surveys flows and addresses of a namespace without a card.
func TestSurveysOfSoftwareDevices(t *testing.T) {
	ns := testutil.NewNetNS(t)
	flows := []Flow{{To: netip.MustParseAddr("127.0.0.1")}, {To: netip.MustParseAddr("203.0.113.1")}}
	for _, mode := range []Mode{Auto, Off, Enable} {
		if use, err := Survey(ns, mode, flows); err != nil || len(use) != 2 || use[0] || use[1] {
			t.Errorf("mode %d: %v, %v", mode, use, err)
		}
		if use, err := SurveyLocal(ns, mode, []netip.Addr{netip.IPv4Unspecified()}); err != nil || len(use) != 1 || use[0] {
			t.Errorf("mode %d: %v, %v", mode, use, err)
		}
	}
	for _, mode := range []Mode{Auto, Enable} {
		if use, err := Survey("vigia-test-absent", mode, flows); err == nil || len(use) != 2 {
			t.Errorf("mode %d, a namespace that is not there: %v, %v", mode, use, err)
		}
	}
}
