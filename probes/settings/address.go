package settings

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
)

// hostRE is what a host name may look like (RFC 1123); underscores are common.
var hostRE = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*\.?$`)

const maxHost = 253

// ParseSource reads IP or IP:port; the empty text is no source. problem says what
// is wrong.
func ParseSource(s string) (a netip.AddrPort, problem string) {
	if s == "" {
		return netip.AddrPort{}, ""
	}
	if ip, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(ip, 0), CheckUnicast(ip)
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return netip.AddrPort{}, "is not an IP address, with or without a port"
	}
	return a, CheckUnicast(a.Addr())
}

// parseTarget reads IP:port or name:port.
func parseTarget(s string) (host string, port uint16, problem string) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, "is not an address with a port"
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return "", 0, "has no port from 1 to 65535"
	}
	host, _, problem = parseHost(host)
	return host, uint16(n), problem
}

// parseHost reads an IP address or a name; the port is 0.
func parseHost(s string) (host string, port uint16, problem string) {
	if ip, err := netip.ParseAddr(s); err == nil {
		if ip.IsUnspecified() {
			return "", 0, "is not the address of a host"
		}
		return s, 0, CheckUnicast(ip)
	}
	if len(s) > maxHost || !hostRE.MatchString(s) || isNumeric(s) {
		return "", 0, "has neither an IP address nor a host name"
	}
	return s, 0, ""
}

// isNumeric reports whether a name looks like a mistyped IPv4 address.
func isNumeric(host string) bool {
	for _, c := range host {
		if c != '.' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// CheckUnicast says what keeps an address from being one host's.
func CheckUnicast(ip netip.Addr) string {
	switch {
	case ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "is a multicast or broadcast address"
	case ip.Zone() != "":
		return "has a zone, which is not supported"
	case ip.Is4In6():
		return "is an IPv4 address written as IPv6"
	}
	return ""
}

func checkListener(s string) (problem string) {
	if s == "" {
		return "is missing"
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return "is not an IP address with a port"
	}
	if a.Port() == 0 {
		return "has no port from 1 to 65535"
	}
	return CheckUnicast(a.Addr())
}

// checkPrefix says what is wrong with a range of addresses, and what to write.
func checkPrefix(s string) (problem, fix string) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return "is not a range of addresses", "write for example 10.0.0.0/24, or 10.0.0.1/32 for one address"
	}
	if p != p.Masked() {
		return "has bits set beyond its length", fmt.Sprintf("write %s", p.Masked())
	}
	return "", ""
}

// CheckFamilies compares the source's family with the target's, as far as it is
// known: a name is resolved to the source's.
func CheckFamilies(source netip.AddrPort, host string) (problem string) {
	ip, err := netip.ParseAddr(host)
	if err != nil || !source.IsValid() || source.Addr().Is4() == ip.Is4() {
		return ""
	}
	return "is of another family than the target's address"
}
