package contract

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"vigia/internal/bpf/classify"
	"vigia/internal/bpf/vport"
	"vigia/internal/config"
)

const mbit = 125_000 // bytes per second

func both(guarantee, ceiling uint64) Bandwidth {
	return Bandwidth{GuaranteeBytesPerSecond: guarantee * mbit, CeilingBytesPerSecond: ceiling * mbit}
}

func of(tenant, port string) Contract {
	c := Contract{Owner: Owner{tenant, port}, Send: both(1, 10), Receive: both(2, 20)}
	c.Matches = []classify.Match{{Network: classify.VXLAN, ID: uint32(len(tenant)*100 + len(port)), MAC: [6]byte{2, byte(len(port)), 1}}}
	return c
}

func TestOwnersAreNamed(t *testing.T) {
	for owner, want := range map[Owner]string{
		{"red", ""}: "red", {"red", "db"}: "red/db", {"a/b", ""}: "a/b", {"", ""}: "", {"", "db"}: "/db",
	} {
		if got := owner.String(); got != want {
			t.Errorf("%+v is called %q, want %q", owner, got, want)
		}
	}
	if got := of("red", "db").String(); got != "red/db" {
		t.Errorf("a contract is called %q", got)
	}
}

func TestAPortsOwnContractGoesBeforeItsTenants(t *testing.T) {
	s, err := NewSet([]Contract{of("red", ""), of("red", "db"), of("blue", "www")})
	if err != nil {
		t.Fatal(err)
	}
	for port, want := range map[Owner]string{
		{"red", "db"}: "red/db", {"red", "www"}: "red", {"red", ""}: "red", {"blue", "www"}: "blue/www",
		{"blue", "db"}: "", {"blue", ""}: "", {"", ""}: "", {"green", "db"}: "",
	} {
		got := ""
		if c := s.Of(port.Tenant, port.Port); c != nil {
			got = c.String()
		}
		if got != want {
			t.Errorf("port %q of %q has the contract %q, want %q", port.Port, port.Tenant, got, want)
		}
	}
	if list := s.All(); len(list) != 3 || list[2].Tenant != "blue" {
		t.Errorf("in another order: %v", list)
	}
}

func TestWithoutContractsNobodyHasOne(t *testing.T) {
	empty, err := NewSet(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Set{"no set": nil, "an empty set": empty} {
		if s.Of("red", "db") != nil || len(s.All()) != 0 {
			t.Errorf("%s has a contract", name)
		}
	}
}

// fault is a mistake in one field and what is said of it.
type fault struct {
	name   string
	change func([]Contract) []Contract
	want   string
}

func faultsOfOne() []fault {
	first := func(change func(*Contract)) func([]Contract) []Contract {
		return func(list []Contract) []Contract {
			change(&list[0])
			return list
		}
	}
	return []fault{
		{"no tenant", first(func(c *Contract) { c.Tenant = "" }), "contracts[0].tenant: is missing; "},
		{"no guarantee", first(func(c *Contract) { c.Send.GuaranteeBytesPerSecond = 0 }), "contracts[0].guarantee: is missing; "},
		{"no ceiling", first(func(c *Contract) { c.Send.CeilingBytesPerSecond = 0 }), "contracts[0].ceiling: is missing; "},
		{"a low ceiling", first(func(c *Contract) { c.Send = both(10, 1) }), `contracts[0].ceiling: "1Mbit": is below the guarantee of 10Mbit; `},
		{"no guarantee to receive", first(func(c *Contract) { c.Receive.GuaranteeBytesPerSecond = 0 }), "contracts[0].receive.guarantee: is missing; "},
		{"no ceiling to receive", first(func(c *Contract) { c.Receive.CeilingBytesPerSecond = 0 }), "contracts[0].receive.ceiling: is missing; "},
		{"a low ceiling to receive", first(func(c *Contract) { c.Receive = both(9, 5) }), `contracts[0].receive.ceiling: "5Mbit": is below the guarantee of 9Mbit; `},
		{"too many packets", first(func(c *Contract) { c.SendPacketsPerSecond = vport.MaxRate + 1 }), `contracts[0].packets_per_second: "18000000001": is out of range; `},
		{"too many packets to receive", first(func(c *Contract) { c.ReceivePacketsPerSecond = 1 << 63 }), "contracts[0].receive.packets_per_second: "},
		{"too many flows", first(func(c *Contract) { c.NewFlowsPerSecond = vport.MaxRate + 1 }), "contracts[0].new_flows_per_second: "},
		{"a tenant twice", func(l []Contract) []Contract {
			return append(l, Contract{Owner: l[0].Owner, Send: both(1, 1), Receive: both(1, 1)})
		}, `contracts[2].tenant: "red": is the name of contracts[0] already; `},
		{"a port twice", func(l []Contract) []Contract {
			return append(l, Contract{Owner: l[1].Owner, Send: both(1, 1), Receive: both(1, 1)})
		}, `contracts[2].tenant: "red/db": is the name of contracts[1] already; `},
		{"a tenant named as a port", func(l []Contract) []Contract { return append(l, of("red/db", "")) }, `contracts[2].tenant: "red/db": is the name of contracts[1] already; `},
		{"a match twice", first(func(c *Contract) { c.Matches = append(c.Matches, c.Matches[0]) }), "contracts[0].match[1]: is red's already; "},
		{"another's match", func(l []Contract) []Contract { l[1].Matches = append(l[1].Matches, l[0].Matches[0]); return l }, "contracts[1].match[1]: is red's already; "},
		{"a network for a port", func(l []Contract) []Contract {
			l[1].Matches = []classify.Match{{Network: classify.VLAN, ID: 7}}
			return l
		}, "contracts[1].match[0]: is a whole network, but the contract is for one port; "},
	}
}

func TestEveryMistakeIsNamed(t *testing.T) {
	for _, f := range faultsOfOne() {
		t.Run(f.name, func(t *testing.T) {
			list := f.change([]Contract{of("red", ""), of("red", "db")})
			s, err := NewSet(list)
			var field *config.FieldError
			if s != nil || !errors.As(err, &field) || !strings.HasPrefix(err.Error(), f.want) || field.Fix == "" {
				t.Errorf("got %v, want %s", err, f.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("one mistake is more than one error:\n%v", err)
			}
		})
	}
}

func TestAllMistakesAreNamedAtOnce(t *testing.T) {
	list := []Contract{of("red", ""), of("red", "db"), {}}
	list[0].Send.GuaranteeBytesPerSecond = 0
	list[1].NewFlowsPerSecond = 1 << 62
	err := Validate(list)
	var got []string
	for line := range strings.SplitSeq(fmt.Sprint(err), "\n") {
		field, _, _ := strings.Cut(line, ":")
		got = append(got, field)
	}
	want := "contracts[0].guarantee contracts[1].new_flows_per_second contracts[2].tenant contracts[2].guarantee contracts[2].ceiling"
	if strings.Join(got, " ") != want {
		t.Errorf("named %q, want %s", got, want)
	}
}

func TestBoundsMayBeReached(t *testing.T) {
	c := of("red", "")
	c.Send, c.Receive = both(5, 5), both(7, 7)
	c.SendPacketsPerSecond, c.ReceivePacketsPerSecond, c.NewFlowsPerSecond = vport.MaxRate, vport.MaxRate, vport.MaxRate
	if err := Validate([]Contract{c}); err != nil {
		t.Error(err)
	}
	c.Receive = c.Send
	c.Matches = nil
	if err := Validate([]Contract{c}); err != nil {
		t.Errorf("the same both ways, without a match: %v", err)
	}
}

// TestASetFindsWhatAListHas compares a set with a search through its list.
func TestASetFindsWhatAListHas(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var list []Contract
		taken := map[string]bool{}
		for range random.IntN(40) {
			c := Contract{Owner: Owner{Tenant: fmt.Sprint("t", random.IntN(8))}, Send: both(1, 2), Receive: both(1, 2)}
			if random.IntN(2) == 0 {
				c.Port = fmt.Sprint("p", random.IntN(8))
			}
			if !taken[c.String()] {
				taken[c.String()] = true
				list = append(list, c)
			}
		}
		s, err := NewSet(list)
		if err != nil {
			t.Fatal(err)
		}
		for tenant := range 9 {
			for port := range 9 {
				owner := Owner{fmt.Sprint("t", tenant), fmt.Sprint("p", port)}
				want := ""
				for i := range list {
					if c := &list[i]; c.Owner == owner {
						want = c.String()
						break
					} else if c.Tenant == owner.Tenant && c.Port == "" {
						want = c.String()
					}
				}
				got := ""
				if c := s.Of(owner.Tenant, owner.Port); c != nil {
					got = c.String()
				}
				if got != want {
					t.Fatalf("%s has %q, want %q of %v", owner, got, want, list)
				}
			}
		}
	}
}
