package once

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"vigia/internal/testutil"
)

// The loopback device carries more than is tried, unless its own MTU is in reach.
func TestPathMTU(t *testing.T) {
	at := reflectOnLoopback(t, "udp4", "127.0.0.1")
	out, _, err := call(t, t.Context(), "--to", at.String(), "--path-mtu")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"^" + regexp.QuoteMeta(at.String()) + `: path MTU 9216 bytes, 9188 of UDP payload or more: larger packets were not tried\n`,
		`\nsearched 576 to 9216 bytes with \d+ packets in \d+\.\ds; nothing was reported by ICMP or the device\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no match for %q:\n%s", want, out)
		}
	}
}

// TestPathMTUOfALink finds what both devices of a link carry.
func TestPathMTUOfALink(t *testing.T) {
	left, right := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, left, "veth0", right, "veth0")
	for ns, address := range map[string]string{left: "10.9.0.1/24", right: "10.9.0.2/24"} {
		testutil.IP(t, "-n", ns, "link", "set", "veth0", "mtu", "1400")
		testutil.IP(t, "-n", ns, "addr", "add", address, "dev", "veth0")
	}
	reflect(t, right, netip.MustParseAddrPort("10.9.0.2:862"))
	out, _, err := call(t, t.Context(), "--to", "10.9.0.2", "--netns", left, "--path-mtu")
	if err != nil {
		t.Fatal(err)
	}
	want := `^10\.9\.0\.2:862: path MTU 1400 bytes, 1372 of UDP payload\nsearched 576 to 9216 bytes with \d+ packets in \d+\.\ds; smallest MTU reported by ICMP or the device: 1400 bytes\n$`
	if !regexp.MustCompile(want).MatchString(out) {
		t.Errorf("no match for %q:\n%s", want, out)
	}
}

func TestPathMTUAsJSON(t *testing.T) {
	at := reflectOnLoopback(t, "udp6", "::1")
	out, _, err := call(t, t.Context(), "--to", at.String(), "--path-mtu", "--path-mtu-max", "1400", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"schema": "vigia.probe.path-mtu/1", "address": at.String(), "outcome": "found", "path_mtu_bytes": 1400.0,
		"largest_udp_payload_bytes": 1352.0, "at_max": true, "reported_mtu_bytes": nil, "min_bytes": 576.0, "max_bytes": 1400.0,
	} {
		if v, ok := got[key]; !ok || v != want {
			t.Errorf("%s is %v, want %v", key, v, want)
		}
	}
}

func TestPathMTUOfNothing(t *testing.T) {
	out, _, err := call(t, t.Context(), "--to", "127.0.0.1:1", "--path-mtu", "--deadline", "10ms", "--json")
	if err == nil || !strings.Contains(err.Error(), "path MTU of 127.0.0.1:1: unreachable: no probe of the smallest size was answered: connection refused") {
		t.Errorf("got %v", err)
	}
	if isUsage(err) || !strings.Contains(out, `"outcome": "unreachable"`) || !strings.Contains(out, `"path_mtu_bytes": null`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestPathMTUMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		"--path-mtu-min 255 is not a possible size of a packet; write 256 to 65535": {"--path-mtu-min", "255"},
		"--path-mtu-max 65536 is not a possible size of a packet":                   {"--path-mtu-max", "65536"},
		"--path-mtu-max 576 is not above --path-mtu-min 576; write 577 to 65535":    {"--path-mtu-max", "576"},
		"is a multicast or broadcast address; write the address of one host":        {"--to", "224.0.0.1"},
	} {
		if args[0] != "--to" {
			args = append(args, "--to", "127.0.0.1")
		}
		_, _, err := call(t, t.Context(), append(args, "--path-mtu")...)
		if err == nil || !isUsage(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want a mistake that says %q", args, err, want)
		}
	}
}
