package ports

import (
	"context"
	"log/slog"
	"sync"

	"vigia/internal/bpf/vport"
)

// Node is a node's ports and the programs at them, as exporter and enforcer have it.
type Node struct {
	Inventory *Inventory
	Manager   *vport.Manager
	Keeper    *Keeper
}

// OpenNode opens the sources of ports and loads the programs, or takes over those
// that another process pinned. Run keeps both current.
func OpenNode(s Sources, c vport.Config, logger *slog.Logger) (*Node, error) {
	inventory, err := NewInventory(s, logger)
	if err != nil {
		return nil, err
	}
	manager, err := vport.Open(vport.Options{PinDir: c.PinDir, NetNS: s.NetNS, MaxPorts: c.MaxPorts, Attachment: c.Attachment})
	if err != nil {
		inventory.Close()
		return nil, err
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

// Ready returns nil once the ports are known and have been tried.
func (n *Node) Ready() error {
	if err := n.Inventory.Ready(); err != nil {
		return err
	}
	return n.Keeper.Ready()
}

// Close frees the sources and lets go of the programs, after Run has ended.
func (n *Node) Close() {
	n.Manager.Close()
	n.Inventory.Close()
}
