// Package node keeps a BPF program at every port of a node, as the exporter and the
// enforcer do: both run one Node on the same pins.
package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"

	"vigia/internal/bpf/vport"
	"vigia/internal/ports"
)

// Hook returns where a program must sit to see and drop what a port's tenant sends.
func Hook(p *ports.Port) vport.Hook {
	switch {
	case p.TenantSide: // Open vSwitch reads an internal port's frames after tc
		return vport.TCXTenant
	case p.DataPlane == ports.OVSUserspace:
		return vport.XDP
	}
	return vport.TCX
}

// Node is a node's ports and the programs at them.
type Node struct {
	Inventory *ports.Inventory
	Manager   *vport.Manager
	Keeper    *Keeper
}

// Open opens the sources of ports and loads the programs, or takes over those
// that another process pinned. Run keeps both current.
func Open(c Config, logger *slog.Logger) (*Node, error) {
	inventory, err := ports.NewInventory(c.Sources, logger)
	if err != nil {
		return nil, err
	}
	manager, err := vport.Open(vport.Options{PinDir: c.BPF.PinDir, NetNS: c.Sources.NetNS, MaxPorts: c.BPF.MaxPorts, Attachment: c.BPF.Attachment})
	if err != nil {
		return nil, errors.Join(err, inventory.Close())
	}
	return &Node{Inventory: inventory, Manager: manager, Keeper: NewKeeper(inventory, manager, logger)}, nil
}

// Run keeps ports known and programs attached until ctx ends, beside what else the
// node works for. What is attached stays so. All have ended when it returns.
func (n *Node) Run(ctx context.Context, beside ...func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, work := range append(beside, n.Keeper.Run) {
		wg.Go(func() { work(ctx) })
	}
	err := n.Inventory.Run(ctx)
	cancel()
	wg.Wait()
	return err
}

// Ready returns nil while the ports can be read, once they have been tried.
func (n *Node) Ready() error { return cmp.Or(n.Inventory.Ready(), n.Keeper.Ready()) }

// Known returns nil once the ports have been read and tried, and then for ever.
func (n *Node) Known() error { return cmp.Or(n.Inventory.Known(), n.Keeper.Ready()) }

// Close frees the sources and lets go of the programs, after Run has ended.
func (n *Node) Close() error { return errors.Join(n.Manager.Close(), n.Inventory.Close()) }
