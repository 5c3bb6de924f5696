package settings

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseSource(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1": "10.0.0.1:0", "10.0.0.1:99": "10.0.0.1:99", "fd00::1": "[fd00::1]:0", "[fd00::1]:99": "[fd00::1]:99",
		"0.0.0.0": "0.0.0.0:0", "::": "[::]:0",
	} {
		got, problem := ParseSource(in)
		if problem != "" || got.String() != want {
			t.Errorf("%q: %s %s, want %s", in, got, problem, want)
		}
	}
	if got, problem := ParseSource(""); problem != "" || got.IsValid() {
		t.Errorf("nothing: %s %s", got, problem)
	}
	for _, in := range []string{"eth0", "10.0.0.1:", "10.0.0.1:99999", "10.0.0", "fe80::1%eth0", "224.0.0.1", "255.255.255.255", "::ffff:10.0.0.1"} {
		if got, problem := ParseSource(in); problem == "" {
			t.Errorf("%q was read as %s", in, got)
		}
	}
}

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1:862": "10.0.0.1", "[fd00::1]:862": "fd00::1", "a:1": "a", "a-b.c_d.example.:65535": "a-b.c_d.example.",
		"1host.example:1": "1host.example", strings.Repeat("a", 63) + ":1": strings.Repeat("a", 63),
	} {
		host, port, problem := parseTarget(in)
		if problem != "" || host != want || port == 0 {
			t.Errorf("%q: %q %d %s", in, host, port, problem)
		}
	}
	for _, in := range []string{
		"", "a", ":862", "a:", "a:0", "a:-1", "a:65536", "a:b", "a b:1", "-a:1", "a..b:1", "1.2.3:1", "1.2.3.4.5:1",
		"fd00::1:862", "[fd00::1]", strings.Repeat("a", 64) + ":1", "0.0.0.0:1", "[::]:1", "[ff02::1]:1", "a/b:1", "a\n:1",
	} {
		if host, port, problem := parseTarget(in); problem == "" {
			t.Errorf("%q was read as %q port %d", in, host, port)
		}
	}
}

func TestCheckFamilies(t *testing.T) {
	v4, v6 := netip.MustParseAddrPort("10.0.0.1:0"), netip.MustParseAddrPort("[fd00::1]:0")
	for _, tc := range []struct {
		source netip.AddrPort
		host   string
		good   bool
	}{
		{v4, "10.0.0.2", true},
		{v6, "fd00::2", true},
		{v4, "fd00::2", false},
		{v6, "10.0.0.2", false},
		{v4, "a.example", true},
		{v6, "a.example", true},
		{netip.AddrPort{}, "10.0.0.2", true},
	} {
		if problem := CheckFamilies(tc.source, tc.host); (problem == "") != tc.good {
			t.Errorf("%s to %s: %q", tc.source, tc.host, problem)
		}
	}
}
