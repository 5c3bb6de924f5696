package app

import (
	"cmp"
	"slices"

	"vigia/internal/bpf/classify"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/scheduling"
)

// leftOut is a contract of the file that is not in force as the file says.
type leftOut struct {
	owner contract.Owner
	keeps bool // what it had before
}

func (l leftOut) String() string {
	if l.keeps {
		return l.owner.String() + " (keeps what it had)"
	}
	return l.owner.String()
}

// space is what links and classes have left while contracts are chosen.
type space struct {
	free    []scheduling.Guarantees // of each link
	classes int                     // further contracts that there are classes for
	matched map[classify.Match]bool
	list    []contract.Contract
}

// fit chooses from a file whose contracts do not all go together with the configuration's, so that what one owner
// bought does not keep others from what they bought. Who has a contract keeps it, though none that is larger;
// then the smallest fit first, whatever their order in the file. It takes time that grows as a sort of the file.
func (c *Config) fit(file, before *contractsFile, room int) (fitting *contractsFile, left []leftOut) {
	s := c.space(room)
	mine := make(map[string]bool, len(c.contracts.All()))
	for _, own := range c.contracts.All() {
		mine[own.String()] = true
	}
	had := make(map[contract.Owner]*contract.Contract)
	if before != nil {
		for i := range before.list {
			had[before.list[i].Owner] = &before.list[i]
		}
	}
	var larger []int // places in s.list of those that want more than they had
	var want, fresh []contract.Contract
	for _, k := range file.list {
		old := had[k.Owner]
		switch {
		case mine[k.String()]:
		case old == nil:
			fresh = append(fresh, k)
		case within(k.Send, old.Send) && within(k.Receive, old.Receive):
			if !s.take(&k) {
				left = append(left, leftOut{owner: k.Owner})
			}
		default: // what it had, for the frames that are its own now
			kept := k
			kept.Send, kept.Receive = old.Send, old.Receive
			if s.take(&kept) {
				larger, want = append(larger, len(s.list)-1), append(want, k)
			} else {
				left = append(left, leftOut{owner: k.Owner})
			}
		}
	}
	return s.grow(larger, want, left, fresh)
}

// grow gives more to those at the places in the list that want it, and then takes in the fresh ones.
func (s *space) grow(places []int, want []contract.Contract, left []leftOut, fresh []contract.Contract) (*contractsFile, []leftOut) {
	order := make([]int, len(want))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return smaller(want[a], want[b]) })
	for _, i := range order {
		if !s.replace(places[i], &want[i]) {
			left = append(left, leftOut{owner: want[i].Owner, keeps: true})
		}
	}
	slices.SortStableFunc(fresh, smaller)
	for i := range fresh {
		if !s.take(&fresh[i]) {
			left = append(left, leftOut{owner: fresh[i].Owner})
		}
	}
	return &contractsFile{Version: 1, list: s.list}, left
}

// within says whether a guarantee is no larger than it was.
func within(now, before contract.Bandwidth) bool {
	return now.GuaranteeBytesPerSecond <= before.GuaranteeBytesPerSecond
}

// smaller orders contracts by the larger of their two guarantees, then by name.
func smaller(a, b contract.Contract) int {
	size := func(c *contract.Contract) uint64 {
		return max(c.Send.GuaranteeBytesPerSecond, c.Receive.GuaranteeBytesPerSecond)
	}
	return cmp.Or(cmp.Compare(size(&a), size(&b)), cmp.Compare(a.String(), b.String()))
}

// space returns what the configuration's own contracts leave.
func (c *Config) space(room int) *space {
	own := c.contracts.All()
	s := &space{classes: 1<<31 - 1, matched: make(map[classify.Match]bool)}
	if len(c.links) > 0 {
		s.classes = scheduling.MaxContracts - len(own)
		if room > 0 {
			s.classes = min(s.classes, room/len(c.links)-1-len(own))
		}
	}
	for i := range c.links {
		free := scheduling.Available(&c.links[i])
		for j := range own {
			free.Sub(&own[j])
		}
		s.free = append(s.free, free)
	}
	for i := range own {
		for _, m := range own[i].Matches {
			s.matched[m] = true
		}
	}
	return s
}

// take adds a contract if there is room for it. Those of a file have no frame in common.
func (s *space) take(k *contract.Contract) bool {
	if s.classes <= 0 || !s.fits(k) {
		return false
	}
	for i := range s.free {
		s.free[i].Sub(k)
	}
	s.classes--
	s.list = append(s.list, *k)
	return true
}

// replace puts a contract in another's place if there is room for it.
func (s *space) replace(place int, k *contract.Contract) bool {
	old := s.list[place]
	for i := range s.free {
		s.free[i].Add(&old)
	}
	fits := s.fits(k)
	if fits {
		s.list[place] = *k
	}
	for i := range s.free {
		s.free[i].Sub(&s.list[place])
	}
	return fits
}

func (s *space) fits(k *contract.Contract) bool {
	for _, m := range k.Matches {
		if s.matched[m] {
			return false
		}
	}
	for i := range s.free {
		if !s.free[i].Has(k) {
			return false
		}
	}
	return true
}
