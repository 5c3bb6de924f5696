package bpf

import (
	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
)

// ledger is what totals need to outlive the process. *vport.Ledger is one.
type ledger interface {
	Settled() (map[string]vport.Amount, error)
	Settle(tenant string, a vport.Amount) error
	Owners() (map[vport.Life]string, error)
	Own(life vport.Life, tenant string) error
	Final(life vport.Life) (vport.Amount, bool, error)
	Forget(life vport.Life) error
}

// totals sum ports' counters by tenant so that the sums only grow: a port that goes
// away, changes hands or is unknown for a while takes nothing with it, whether the
// exporter runs at that moment or not. What a tenant has is what is settled for it
// plus what its live ports count.
type totals struct {
	ledger  ledger
	loaded  bool
	settled map[string]vport.Amount
	owners  map[vport.Life]string
	live    []reading // at this scrape
	last    []reading // and at the one before, in the same order but for what came and went
	moved   bool      // something came or went since, or may have
	ended   bool      // the scrape before was carried through
	sums    map[string]*vport.Amount
}

// reading is what a life counts.
type reading struct {
	life   vport.Life
	owner  string // empty while nobody is known to be
	amount vport.Amount
	sum    *vport.Amount // the owner's, once it was asked for
}

func newTotals(l ledger) *totals {
	return &totals{ledger: l, sums: make(map[string]*vport.Amount)}
}

func (t *totals) begin() {
	t.moved, t.ended = !t.ended, false
	t.last, t.live = t.live, t.last[:0]
}

// put takes a reading and returns where it is kept.
func (t *totals) put(life vport.Life, c *vport.Counters) *reading {
	i := len(t.live)
	t.live = append(t.live, reading{life: life})
	r := &t.live[i]
	r.amount = c.Amount()
	if i < len(t.last) && t.last[i].life == life {
		r.owner, r.sum = t.last[i].owner, t.last[i].sum
		return r
	}
	t.moved = true
	r.owner = t.owners[life]
	return r
}

func (t *totals) load() error {
	if t.loaded {
		return nil
	}
	var err error
	if t.settled, err = t.ledger.Settled(); err != nil {
		return err
	}
	if t.owners, err = t.ledger.Owners(); err != nil {
		return err
	}
	t.loaded = true
	return nil
}

// add takes what a port counts. Without a tenant it stays whose it was: after a
// start identities come one by one.
func (t *totals) add(life vport.Life, tenant string, now *vport.Counters) error {
	if err := t.load(); err != nil {
		return err
	}
	r := t.put(life, now)
	switch {
	case tenant == "" || tenant == r.owner || r.owner != "" && tenant == ports.Unresolved:
		return nil
	case r.owner != "": // it changed hands: what it counted so far stays with its owner
		if err := t.settle(r.owner, &r.amount, (*vport.Amount).Add); err != nil {
			return err
		}
		if err := t.settle(tenant, &r.amount, (*vport.Amount).Sub); err != nil {
			return err
		}
	}
	r.owner, r.sum = tenant, nil
	t.owners[life] = tenant
	return t.ledger.Own(life, tenant)
}

// end settles the lives that are over.
func (t *totals) end() error {
	if err := t.load(); err != nil {
		return err
	}
	if t.ended = !t.moved && len(t.live) == len(t.last); t.ended {
		return nil
	}
	alive, last := make(map[vport.Life]bool, len(t.live)), make(map[vport.Life]vport.Amount)
	for i := range t.live {
		alive[t.live[i].life] = true
	}
	for i := range t.last {
		if r := &t.last[i]; !alive[r.life] {
			last[r.life] = r.amount
		}
	}
	for life, owner := range t.owners {
		if alive[life] {
			continue
		}
		final, ok, err := t.ledger.Final(life)
		if err != nil {
			return err
		}
		if !ok {
			final = last[life] // evicted: nearly as good
		}
		if err := t.settle(owner, &final, (*vport.Amount).Add); err != nil {
			return err
		}
		delete(t.owners, life)
		if err := t.ledger.Forget(life); err != nil {
			return err
		}
	}
	t.ended = true
	return nil
}

func (t *totals) settle(tenant string, a *vport.Amount, change func(sum, a *vport.Amount)) error {
	sum := t.settled[tenant]
	change(&sum, a)
	t.settled[tenant] = sum
	return t.ledger.Settle(tenant, sum)
}

// byTenant returns what every tenant has had, valid until it is called again.
func (t *totals) byTenant() map[string]*vport.Amount {
	for _, a := range t.sums {
		*a = vport.Amount{}
	}
	of := func(tenant string) *vport.Amount {
		if t.sums[tenant] == nil {
			t.sums[tenant] = &vport.Amount{}
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
		r.sum.Add(&r.amount)
	}
	return t.sums
}
