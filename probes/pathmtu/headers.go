package pathmtu

import (
	"net/netip"
)

const (
	ipv4Header = 20 // RFC 791, without options
	ipv6Header = 40 // RFC 8200, without extensions
	// transportHeader is as large for UDP as for an ICMP echo.
	transportHeader = 8
)

// Headers returns how many bytes of a packet are not its UDP or ICMP payload.
func Headers(to netip.Addr) int {
	if to.Is4() {
		return ipv4Header + transportHeader
	}
	return ipv6Header + transportHeader
}
