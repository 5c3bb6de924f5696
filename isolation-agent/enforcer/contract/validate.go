package contract

import (
	"errors"
	"fmt"

	"vigia/internal/bpf/classify"
	"vigia/internal/bpf/vport"
	"vigia/internal/config"
)

// faults collects what is wrong with the fields of one contract.
type faults struct {
	at   string
	errs []error
}

func (f *faults) add(field string, value any, problem, fix string) {
	f.errs = append(f.errs, &config.FieldError{Field: f.at + field, Value: value, Problem: problem, Fix: fix})
}

// ceiling checks the ceiling of one direction.
func (f *faults) ceiling(field string, b Bandwidth) {
	switch guarantee := config.Rate(b.GuaranteeBytesPerSecond); {
	case b.CeilingBytesPerSecond == 0:
		f.add(field, nil, "is missing", "write what the tenant may have while others leave room, at least the guarantee")
	case b.CeilingBytesPerSecond < b.GuaranteeBytesPerSecond:
		f.add(field, config.Rate(b.CeilingBytesPerSecond), fmt.Sprintf("is below the guarantee of %s", guarantee), "write at least the guarantee")
	}
}

// Validate checks contracts and that they go together. It returns a *config.FieldError
// for each fault, or several joined; fields are named contracts[N].KEY as in the
// enforcer's configuration.
func Validate(list []Contract) error {
	var errs []error
	named := make(map[string]int, len(list)) // by name: the classes of two contracts must not be one
	matched := make(map[classify.Match]Owner)
	for i := range list {
		c := &list[i]
		f := faults{at: fmt.Sprintf("contracts[%d].", i)}
		if c.Tenant == "" {
			f.add("tenant", nil, "is missing", "write whose contract it is")
		} else if other, taken := named[c.String()]; taken {
			f.add("tenant", c.String(), fmt.Sprintf("is the name of contracts[%d] already", other), "give every tenant one contract, and every port at most one of its own")
		} else {
			named[c.String()] = i
		}
		c.validateRates(&f)
		c.validateMatches(&f, matched)
		errs = append(errs, f.errs...)
	}
	return errors.Join(errs...)
}

func (c *Contract) validateRates(f *faults) {
	send, receive := c.Send, c.Receive
	if send.GuaranteeBytesPerSecond == 0 {
		f.add("guarantee", nil, "is missing", "write what the tenant bought, for example 40Mbit")
	}
	f.ceiling("ceiling", send)
	if receive != send {
		if receive.GuaranteeBytesPerSecond == 0 {
			f.add("receive.guarantee", nil, "is missing", "write what the tenant bought to receive, or leave receive out")
		}
		f.ceiling("receive.ceiling", receive)
	}
	for _, bound := range []struct {
		field string
		value uint64
		most  uint64
	}{
		{"packets_per_second", c.SendPacketsPerSecond, vport.MaxRate},
		{"receive.packets_per_second", c.ReceivePacketsPerSecond, vport.MaxRate},
		{"new_flows_per_second", c.NewFlowsPerSecond, vport.MaxRate},
		{"new_mac_pairs_per_second", c.NewMACPairsPerSecond, vport.MaxMACPairs},
	} {
		if bound.value > bound.most {
			f.add(bound.field, bound.value, "is out of range", fmt.Sprintf("write at most %d, or 0 for any number", bound.most))
		}
	}
}

// validateMatches checks that frames lead to one contract, and those of a whole
// network to no single port's.
func (c *Contract) validateMatches(f *faults, matched map[classify.Match]Owner) {
	for i, m := range c.Matches {
		field := fmt.Sprintf("match[%d]", i)
		if other, taken := matched[m]; taken {
			f.add(field, nil, fmt.Sprintf("is %s's already", other), "let each match lead to one contract")
		}
		matched[m] = c.Owner
		if c.Port != "" && m.MAC == [6]byte{} {
			f.add(field, nil, "is a whole network, but the contract is for one port", "name the port's mac, too")
		}
	}
}
