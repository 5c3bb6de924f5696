package stamp

import (
	"net/netip"
	"regexp"
)

const (
	// MaxNetworks is how many networks a reflector tells of.
	MaxNetworks = 8

	// A network is a name, filled up with zeros, of an interface at most (IFNAMSIZ), and an
	// IPv6 address or an IPv4 address mapped into one.
	networkNameSize   = 16
	networkSize       = networkNameSize + 16
	networksValueSize = MaxNetworks * networkSize

	// NetworksSize is the size of a whole Networks TLV in bytes.
	NetworksSize = TLVHeaderSize + networksValueSize
)

// networkRE is what a network may be called: what can be part of a label.
var networkRE = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,14}$`)

// Network is where a node is in a network beside the one that it is known by.
type Network struct {
	Name    string // of the interface, which is the same on all nodes that have the network
	Address netip.Addr
}

// Valid reports whether the network can be told, and believed: a name that can be part of a
// label, and the address of one node that packets can be routed to.
func (n Network) Valid() bool {
	return networkRE.MatchString(n.Name) && n.Address.IsGlobalUnicast() && !n.Address.Is4In6() && n.Address.Zone() == ""
}

// PutNetworks writes networks into a Networks TLV: the first that are valid, as many as there
// is room for. It returns false, and writes nothing, when the TLV's length is wrong.
func PutNetworks(t TLV, networks []Network) bool {
	v := t.Value()
	if len(v) != networksValueSize {
		return false
	}
	clear(v)
	for _, n := range networks {
		if len(v) == 0 {
			break
		}
		if !n.Valid() {
			continue
		}
		copy(v, n.Name)
		address := n.Address.As16()
		copy(v[networkNameSize:], address[:])
		v = v[networkSize:]
	}
	return true
}

// ParseNetworks reads a Networks TLV. What is not valid, or has the name or the address of one
// before it, is left out. ok is false when the TLV's length is wrong.
func ParseNetworks(t TLV) (networks []Network, ok bool) {
	v := t.Value()
	if len(v) != networksValueSize {
		return nil, false
	}
	for ; len(v) > 0; v = v[networkSize:] {
		n := Network{Name: name(v[:networkNameSize])}
		n.Address, _ = netip.AddrFromSlice(v[networkNameSize:networkSize])
		n.Address = n.Address.Unmap()
		if n.Valid() && !clashes(networks, n) {
			networks = append(networks, n)
		}
	}
	return networks, true
}

func clashes(networks []Network, n Network) bool {
	for _, other := range networks {
		if other.Name == n.Name || other.Address == n.Address {
			return true
		}
	}
	return false
}

// name reads a name that is filled up with zeros; empty if something follows them.
func name(b []byte) string {
	end := 0
	for end < len(b) && b[end] != 0 {
		end++
	}
	for _, rest := range b[end:] {
		if rest != 0 {
			return ""
		}
	}
	return string(b[:end])
}

// NewNetworksRequest returns a request of the mode that asks for networks, without HMACs.
func NewNetworksRequest(mode Mode, r Request) []byte {
	size := mode.BaseSize() + NetworksSize
	if mode == Authenticated {
		size += HMACSize
	}
	b := make([]byte, size)
	mode.PutRequest(b, r)
	putHeader(b[mode.BaseSize():], TypeNetworks, networksValueSize)
	if mode == Authenticated {
		putHeader(b[mode.BaseSize()+NetworksSize:], TypeHMAC, hmacSize)
	}
	return b
}

// NetworksOf returns what a reply tells of networks; ok is false where it does not. Signatures
// are the caller's to verify.
func NetworksOf(mode Mode, reply []byte) (networks []Network, ok bool) {
	tlvs := mode.TLVs(reply)
	for t, whole := tlvs.Next(); t != nil && whole; t, whole = tlvs.Next() {
		if t.Type() == TypeNetworks && t.Flags() == 0 {
			return ParseNetworks(t)
		}
	}
	return nil, false
}
