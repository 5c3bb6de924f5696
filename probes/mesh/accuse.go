package mesh

import (
	"cmp"
	"maps"
	"slices"
)

// Accused is a part of the site that cannot be reached.
type Accused struct {
	Scope Scope  // node, rack or zone
	Name  string // of it
	// Uplink says that all is well inside: what is down is the way out.
	Uplink bool
}

// When votes become an accusation.
const (
	// quorum is the share of those who can vote that must.
	quorum = 0.5
	// nearby is the share of voters of a scope that decides that it is no larger thing
	// that is down: some see worse than others, and a few of them must not turn a dead
	// rack into dead nodes.
	nearby = 0.25
	// fewVoters is how many must agree at least, and fewMembers how many nodes of a rack,
	// or racks of a zone, must be out of reach for it to be accused in their place.
	fewVoters  = 2
	fewMembers = 2
	// rounding is what sums of shares may be off.
	rounding = 1e-9
)

// Accuse returns who is to blame, given the votes of all nodes:
//
//   - a node is down when half of its rack cannot reach it, or half of those elsewhere
//     cannot and a quarter of its rack agrees;
//   - a rack is when two of its nodes cannot be reached from elsewhere and nobody in the
//     rack agrees;
//   - a zone is when two of its racks have nodes that cannot be reached from other zones, and
//     nobody in the zone agrees;
//   - where half of a rack's or zone's own nodes say that they reach each other and nothing
//     else, it is the uplink.
//
// Whatever it is, two voters at least must agree. alert-rules/mesh.rules.yml says the
// same in PromQL.
func Accuse(votes []Vote) []Accused {
	found := make(map[Accused]bool)
	for group := range uplinks(votes) {
		found[group] = true
	}
	down := make(map[Accused]map[string]bool) // nodes of racks, racks of zones
	for subject, t := range tallies(votes) {
		scope, is := t.verdict()
		switch {
		case !is:
		case scope == ScopeNode:
			found[Accused{Name: subject.Name}] = true
		case scope == ScopeRack:
			put(down, Accused{Scope: scope, Name: subject.Rack}, subject.Name)
		case subject.Rack != "":
			put(down, Accused{Scope: scope, Name: subject.Zone}, "rack "+subject.Rack)
		default:
			put(down, Accused{Scope: scope, Name: subject.Zone}, "node "+subject.Name)
		}
	}
	for group, members := range down {
		uplink := group
		uplink.Uplink = true
		if len(members) >= fewMembers && !found[uplink] {
			found[group] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b Accused) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Name, b.Name))
	})
}

func put(down map[Accused]map[string]bool, group Accused, member string) {
	if down[group] == nil {
		down[group] = make(map[string]bool)
	}
	down[group][member] = true
}

// tally is what was said of one node.
type tally struct {
	share  [numScopes]float64
	voters int
}

func tallies(votes []Vote) map[Node]*tally {
	all := make(map[Node]*tally)
	for i := range votes {
		v := &votes[i]
		if v.Outside {
			continue
		}
		t := all[v.Subject]
		if t == nil {
			t = &tally{}
			all[v.Subject] = t
		}
		t.share[v.Scope] += v.Share
		t.voters++
	}
	return all
}

// verdict returns whether the node cannot be reached, and by the nearest voters that say so
// how much of the site that concerns.
func (t *tally) verdict() (scope Scope, down bool) {
	if t.voters < fewVoters {
		return 0, false
	}
	scope = numScopes
	for s := numScopes; s > ScopeNode; {
		s--
		down = down || t.share[s] >= quorum-rounding
		if t.share[s] >= nearby-rounding {
			scope = s
		}
	}
	return scope, down
}

// uplinks returns the racks and zones whose own nodes say that they are cut off.
func uplinks(votes []Vote) map[Accused]bool {
	shares, voters := make(map[Accused]float64), make(map[Accused]int)
	for i := range votes {
		v := &votes[i]
		if !v.Outside {
			continue
		}
		group := Accused{Scope: v.Scope, Name: v.Subject.Rack, Uplink: true}
		if v.Scope == ScopeZone {
			group.Name = v.Subject.Zone
		}
		shares[group] += v.Share
		voters[group]++
	}
	cut := make(map[Accused]bool)
	for group, share := range shares {
		if share >= quorum-rounding && voters[group] >= fewVoters {
			cut[group] = true
		}
	}
	return cut
}
