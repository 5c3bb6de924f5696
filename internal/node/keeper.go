package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
)

const (
	// retryInterval is how often failed attachments are tried again and
	// attached ones are looked at.
	retryInterval = 2 * time.Second
	// forgetAfter is how long an interface that is no vport any more keeps
	// its program: identities may be late after a restart.
	forgetAfter = time.Minute
	// verifyInterval is how often what was found attached is looked at again;
	// a look takes three system calls a port.
	verifyInterval = 10 * time.Second
)

// Keeper keeps a BPF program on every port of an inventory. The exporter and
// the enforcer each run one on the same pins.
type Keeper struct {
	inventory *ports.Inventory
	manager   *vport.Manager
	logger    *slog.Logger

	mu      sync.Mutex
	failed  map[int]error     // by interface index
	missing map[int]time.Time // attached interfaces that are no ports, since when
	watched map[int]vport.Hook
	rounds  int

	good     map[int]vport.Hook // attached, as of verified; used by reconcile alone
	verified time.Time
}

// NewKeeper returns a keeper of the inventory's ports.
func NewKeeper(inv *ports.Inventory, m *vport.Manager, logger *slog.Logger) *Keeper {
	return &Keeper{inventory: inv, manager: m, logger: logger, failed: map[int]error{}, missing: map[int]time.Time{}}
}

// Run keeps programs attached until ctx ends, and leaves them attached then.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.inventory.Changes():
		case <-tick.C:
		}
		k.reconcile(time.Now())
	}
}

func (k *Keeper) reconcile(now time.Time) {
	list, _ := k.inventory.Ports()
	var wanted []vport.Want
	if now.Sub(k.verified) >= verifyInterval {
		k.good, k.verified = make(map[int]vport.Hook, len(list)), now
	}
	isPort := make(map[int]bool, len(list))
	for i := range list {
		p := &list[i]
		isPort[p.Index] = true
		hook := Hook(p)
		if at, ok := k.good[p.Index]; ok && at == hook {
			continue
		}
		wanted = append(wanted, vport.Want{Index: p.Index, Hook: hook})
	}
	failed, err := k.manager.AttachAll(wanted)
	if err != nil {
		k.logger.Warn("cannot finish attaching programs", "err", err)
	}
	for _, w := range wanted {
		if failed[w.Index] == nil {
			k.good[w.Index] = w.Hook
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range list {
		p := &list[i]
		if err := failed[p.Index]; err != nil && k.failed[p.Index] == nil {
			k.logger.Warn("cannot watch port", "port", p.ID, "device", p.Device, "err", err)
		}
	}
	k.failed = failed
	if len(wanted) > 0 {
		k.watched = maps.Clone(k.good)
	}
	k.rounds++
	k.forget(isPort, now)
}

// forget detaches programs from interfaces that are gone, or that have not been
// ports for a while although every source works.
func (k *Keeper) forget(isPort map[int]bool, now time.Time) {
	attached, err := k.manager.Attached()
	if err != nil {
		k.logger.Warn("cannot list attached interfaces", "err", err)
		return
	}
	for index := range attached {
		if isPort[index] {
			delete(k.missing, index)
			continue
		}
		exists, healthy := k.inventory.Exists(index)
		since, known := k.missing[index]
		switch {
		case !exists:
		case !healthy:
			delete(k.missing, index)
			continue
		case !known:
			k.missing[index] = now
			continue
		case now.Sub(since) < forgetAfter:
			continue
		}
		delete(k.missing, index)
		delete(k.good, index)
		if err := k.manager.Detach(index); err != nil {
			k.logger.Warn("cannot detach from interface", "index", index, "err", err)
		}
	}
}

// Failed returns why an interface has no program, or nil.
func (k *Keeper) Failed(index int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed[index]
}

// Watches tells whether an interface has the programs of a hook. Its counters are there a moment earlier.
func (k *Keeper) Watches(index int, hook vport.Hook) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, ok := k.watched[index]
	return ok && at == hook
}

// Ready returns nil once every port has been tried.
func (k *Keeper) Ready() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rounds == 0 {
		return errors.New("no port has been attached yet")
	}
	return nil
}
