package bpf

import (
	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
)

// persistent is what totals need to outlive the process. *vport.TenantTotals is one.
type persistent interface {
	Settled() (map[string]vport.Traffic, error)
	Settle(tenant string, a vport.Traffic) error
	Owners() (map[vport.Incarnation]string, error)
	SetOwner(of vport.Incarnation, tenant string) error
	Final(of vport.Incarnation) (vport.Traffic, bool, error)
	Forget(of vport.Incarnation) error
}

// totals sum ports' counters by tenant so that the sums only grow: a port that goes
// away, changes hands or is unknown for a while takes nothing with it, whether the
// exporter runs at that moment or not. What a tenant has is what is settled for it
// plus what its live ports count.
type totals struct {
	persistent persistent
	loaded     bool
	settled    map[string]vport.Traffic
	owners     map[vport.Incarnation]string
	live       []reading // at this scrape
	last       []reading // and at the one before, in the same order but for what came and went
	moved      bool      // something came or went since, or may have
	ended      bool      // the scrape before was carried through
	sums       map[string]*vport.Traffic
}

// reading is what an incarnation counts.
type reading struct {
	incarnation vport.Incarnation
	owner       string // empty while nobody is known to be
	traffic     vport.Traffic
	sum         *vport.Traffic // the owner's, once it was asked for
}

func newTotals(p persistent) *totals {
	return &totals{persistent: p, sums: make(map[string]*vport.Traffic)}
}

func (t *totals) begin() {
	t.moved, t.ended = !t.ended, false
	t.last, t.live = t.live, t.last[:0]
}

// put takes a reading and returns where it is kept.
func (t *totals) put(incarnation vport.Incarnation, c *vport.Counters) *reading {
	i := len(t.live)
	t.live = append(t.live, reading{incarnation: incarnation})
	r := &t.live[i]
	r.traffic = c.Traffic()
	if i < len(t.last) && t.last[i].incarnation == incarnation {
		r.owner, r.sum = t.last[i].owner, t.last[i].sum
		return r
	}
	t.moved = true
	r.owner = t.owners[incarnation]
	return r
}

func (t *totals) load() error {
	if t.loaded {
		return nil
	}
	var err error
	if t.settled, err = t.persistent.Settled(); err != nil {
		return err
	}
	if t.owners, err = t.persistent.Owners(); err != nil {
		return err
	}
	t.loaded = true
	return nil
}

// add takes what a port counts. Without a tenant it stays whose it was: after a
// start identities come one by one.
func (t *totals) add(incarnation vport.Incarnation, tenant string, now *vport.Counters) error {
	if err := t.load(); err != nil {
		return err
	}
	r := t.put(incarnation, now)
	switch {
	case tenant == "" || tenant == r.owner || r.owner != "" && tenant == ports.Unresolved:
		return nil
	case r.owner != "": // it changed hands: what it counted so far stays with its owner
		if err := t.settle(r.owner, &r.traffic, (*vport.Traffic).Add); err != nil {
			return err
		}
		if err := t.settle(tenant, &r.traffic, (*vport.Traffic).Sub); err != nil {
			return err
		}
	}
	r.owner, r.sum = tenant, nil
	t.owners[incarnation] = tenant
	return t.persistent.SetOwner(incarnation, tenant)
}

// end settles the incarnations that are over.
func (t *totals) end() error {
	if err := t.load(); err != nil {
		return err
	}
	if t.ended = !t.moved && len(t.live) == len(t.last); t.ended {
		return nil
	}
	alive, last := make(map[vport.Incarnation]bool, len(t.live)), make(map[vport.Incarnation]vport.Traffic)
	for i := range t.live {
		alive[t.live[i].incarnation] = true
	}
	for i := range t.last {
		if r := &t.last[i]; !alive[r.incarnation] {
			last[r.incarnation] = r.traffic
		}
	}
	for incarnation, owner := range t.owners {
		if alive[incarnation] {
			continue
		}
		final, ok, err := t.persistent.Final(incarnation)
		if err != nil {
			return err
		}
		if !ok {
			final = last[incarnation] // evicted: nearly as good
		}
		if err := t.settle(owner, &final, (*vport.Traffic).Add); err != nil {
			return err
		}
		delete(t.owners, incarnation)
		if err := t.persistent.Forget(incarnation); err != nil {
			return err
		}
	}
	t.ended = true
	return nil
}

func (t *totals) settle(tenant string, a *vport.Traffic, change func(sum, a *vport.Traffic)) error {
	sum := t.settled[tenant]
	change(&sum, a)
	t.settled[tenant] = sum
	return t.persistent.Settle(tenant, sum)
}

// byTenant returns what every tenant has had, valid until it is called again.
func (t *totals) byTenant() map[string]*vport.Traffic {
	for _, a := range t.sums {
		*a = vport.Traffic{}
	}
	of := func(tenant string) *vport.Traffic {
		if t.sums[tenant] == nil {
			t.sums[tenant] = &vport.Traffic{}
		}
		return t.sums[tenant]
	}
	for tenant, a := range t.settled {
		of(tenant).Add(&a)
	}
	for i := range t.live {
		r := &t.live[i]
		if r.owner == "" {
			continue
		}
		if r.sum == nil {
			r.sum = of(r.owner)
		}
		r.sum.Add(&r.traffic)
	}
	return t.sums
}
