package programs

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
	live    readings // at this scrape
	last    readings // and at the one before
	sums    map[string]*vport.Amount
}

// readings are what lives count. They are filled anew at every scrape, in the same
// memory.
type readings struct {
	at      map[vport.Life]int
	amounts []vport.Amount
}

func newReadings() readings { return readings{at: make(map[vport.Life]int)} }

func (r *readings) clear() {
	clear(r.at)
	r.amounts = r.amounts[:0]
}

func (r *readings) put(life vport.Life, a vport.Amount) {
	r.at[life] = len(r.amounts)
	r.amounts = append(r.amounts, a)
}

// get returns what a life counted; nothing if it was not there.
func (r *readings) get(life vport.Life) (a vport.Amount) {
	if i, ok := r.at[life]; ok {
		a = r.amounts[i]
	}
	return a
}

func newTotals(l ledger) *totals {
	return &totals{ledger: l, live: newReadings(), last: newReadings(), sums: make(map[string]*vport.Amount)}
}

func (t *totals) begin() {
	t.last, t.live = t.live, t.last
	t.live.clear()
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
func (t *totals) add(life vport.Life, tenant string, now vport.Amount) error {
	if err := t.load(); err != nil {
		return err
	}
	t.live.put(life, now)
	owner, known := t.owners[life]
	switch {
	case tenant == "" || tenant == owner || known && tenant == ports.Unresolved:
		return nil
	case known: // it changed hands: what it counted so far stays with its owner
		if err := t.settle(owner, &now, (*vport.Amount).Add); err != nil {
			return err
		}
		if err := t.settle(tenant, &now, (*vport.Amount).Sub); err != nil {
			return err
		}
	}
	t.owners[life] = tenant
	return t.ledger.Own(life, tenant)
}

// end settles the lives that are over.
func (t *totals) end() error {
	if err := t.load(); err != nil {
		return err
	}
	for life, owner := range t.owners {
		if _, alive := t.live.at[life]; alive {
			continue
		}
		final, ok, err := t.ledger.Final(life)
		if err != nil {
			return err
		}
		if !ok {
			final = t.last.get(life) // evicted: nearly as good
		}
		if err := t.settle(owner, &final, (*vport.Amount).Add); err != nil {
			return err
		}
		delete(t.owners, life)
		if err := t.ledger.Forget(life); err != nil {
			return err
		}
	}
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
	for life, i := range t.live.at {
		if owner, known := t.owners[life]; known {
			of(owner).Add(&t.live.amounts[i])
		}
	}
	return t.sums
}
