// Package contract says what tenants bought. It is the one description of a contract
// that schedulers, limits, the fast loop and the API share; configuration and API
// convert to and from it at their edges.
package contract

import (
	"vigia/internal/bpf/classify"
)

// Owner is whose a contract is: a tenant's, or with a Port that port's alone.
type Owner struct {
	Tenant string
	Port   string // empty: all of the tenant's ports that have no contract of their own
}

// String names the owner, and with it the contract, on a node: TENANT or TENANT/PORT.
func (o Owner) String() string {
	if o.Port == "" {
		return o.Tenant
	}
	return o.Tenant + "/" + o.Port
}

// Bandwidth is what a contract says of the bytes in one direction, Ethernet header
// included.
type Bandwidth struct {
	GuaranteeBytesPerSecond uint64 // whatever others do
	CeilingBytesPerSecond   uint64 // while others leave room; at least the guarantee
}

// Contract is what a tenant, or one port of it, bought. Directions are the tenant's.
type Contract struct {
	Owner
	Send    Bandwidth
	Receive Bandwidth
	// Bounds of each port; 0 = any number.
	SendPacketsPerSecond    uint64
	ReceivePacketsPerSecond uint64
	NewFlowsPerSecond       uint64 // flows that the port begins
	// NewMACPairsPerSecond are the pairs of MAC addresses between which the port begins to
	// send, where Open vSwitch forwards in user space: each costs all ports' thread a flow.
	NewMACPairsPerSecond uint64
	// Matches say which frames on the uplinks are the contract's.
	Matches []classify.Match
}

// Set is the contracts of a node. It never changes: a reload makes another one. The
// nil Set has no contracts.
type Set struct {
	list    []Contract
	byOwner map[Owner]*Contract
}

// NewSet returns the contracts as a set, or what is wrong with them (see Validate).
func NewSet(list []Contract) (*Set, error) {
	if err := Validate(list); err != nil {
		return nil, err
	}
	s := &Set{list: list, byOwner: make(map[Owner]*Contract, len(list))}
	for i := range list {
		s.byOwner[list[i].Owner] = &list[i]
	}
	return s, nil
}

// All returns the contracts in the order of the configuration. They must not be changed.
func (s *Set) All() []Contract {
	if s == nil {
		return nil
	}
	return s.list
}

// Of returns the contract that holds for a port: its own before its tenant's; nil
// without either.
func (s *Set) Of(tenant, port string) *Contract {
	if s == nil {
		return nil
	}
	if own := s.byOwner[Owner{tenant, port}]; own != nil {
		return own
	}
	return s.byOwner[Owner{Tenant: tenant}]
}
