package ports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"vigia/internal/config"
	"vigia/internal/ovsdb"
	"vigia/internal/rtnl"
)

// Sources say where a node's ports are found.
type Sources struct {
	NetNS      string    `yaml:"netns"`           // namespace of the node's interfaces; empty for the own one
	OVSDB      string    `yaml:"ovsdb"`           // unix:PATH of ovsdb-server; empty without Open vSwitch
	Southbound string    `yaml:"ovn_southbound"`  // unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT; empty without OVN
	TLS        ovsdb.TLS `yaml:"ovn_tls"`         // for ssl: as an address of OVN
	Libvirt    string    `yaml:"libvirt_dir"`     // folder of domain XML, /run/libvirt/qemu; empty without libvirt
	CNI        string    `yaml:"cni_results_dir"` // results of CNI plugins, /var/lib/cni/results; empty without Kubernetes
	File       string    `yaml:"ports_file"`      // identity of ports that nothing else tells
}

// Validate checks the sources, including that a ports file can be read.
func (s *Sources) Validate() error {
	var errs []error
	if s.OVSDB == "" && s.File == "" && s.Libvirt == "" && s.CNI == "" {
		errs = append(errs, &config.FieldError{Field: "ports_file", Problem: "is missing and so are ovsdb, libvirt_dir and cni_results_dir", Fix: "name at least one source of ports"})
	}
	if s.OVSDB != "" && !strings.HasPrefix(s.OVSDB, "unix:/") {
		errs = append(errs, &config.FieldError{Field: "ovsdb", Value: s.OVSDB, Problem: "is not a unix socket", Fix: "write unix:/run/openvswitch/db.sock"})
	}
	errs = append(errs, s.validateSouthbound())
	if s.Libvirt != "" && !filepath.IsAbs(s.Libvirt) {
		errs = append(errs, &config.FieldError{Field: "libvirt_dir", Value: s.Libvirt, Problem: "is not an absolute path", Fix: "write /run/libvirt/qemu"})
	}
	if s.CNI != "" && !filepath.IsAbs(s.CNI) {
		errs = append(errs, &config.FieldError{Field: "cni_results_dir", Value: s.CNI, Problem: "is not an absolute path", Fix: "write /var/lib/cni/results"})
	}
	if s.File != "" {
		if _, err := CheckFile(s.File); err != nil {
			errs = append(errs, &config.FieldError{Field: "ports_file", Value: s.File, Problem: err.Error(), Fix: "correct the file"})
		}
	}
	return errors.Join(errs...)
}

func (s *Sources) validateSouthbound() error {
	switch {
	case s.Southbound == "":
		if s.TLS != (ovsdb.TLS{}) {
			return &config.FieldError{Field: "ovn_tls", Problem: "is of no use without ovn_southbound", Fix: "remove it or write ovn_southbound: ssl:HOST:6642"}
		}
		return nil
	case s.OVSDB == "":
		return &config.FieldError{Field: "ovn_southbound", Value: s.Southbound, Problem: "needs ovsdb to know the node's ports", Fix: "write ovsdb: unix:/run/openvswitch/db.sock"}
	}
	if err := ovsdb.CheckRemote(s.Southbound, s.TLS); err != nil {
		return &config.FieldError{Field: "ovn_southbound", Value: s.Southbound, Problem: err.Error(), Fix: "write unix:PATH, tcp:HOST:PORT, or ssl:HOST:PORT with ovn_tls"}
	}
	return nil
}

const (
	ovsDatabase = "Open_vSwitch"
	// resyncInterval bounds how late a change of the ports file or of libvirt's
	// domains is noticed.
	resyncInterval = 2 * time.Second
	// settleInterval is when CNI's results are read again after an interface changed:
	// a plugin makes the device first and says whose it is at its end.
	settleInterval = 250 * time.Millisecond
	// relinkInterval is how often interfaces are listed though no event says so.
	relinkInterval = 30 * time.Second
)

// SourceState is the health of one source.
type SourceState struct {
	Name string        // rtnetlink, ovsdb, ovn, libvirt, cni or file
	Err  error         // nil while it works
	Age  time.Duration // of its data; 0 for sources that are read each time
}

// derived is what is made of a database's copy, for as long as that is the same one. The
// cells of a copy are JSON: to read those of a thousand ports takes milliseconds.
type derived[T any] struct {
	mu         sync.Mutex
	made       bool
	generation uint64
	value      T
}

// of returns what is made of the copy, which must not be altered, and why the server is away.
func (d *derived[T]) of(r *ovsdb.Replica, made func(map[string]ovsdb.Table) T) (T, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	generation := r.Generation()
	tables, err := r.Tables()
	if !d.made || d.generation != generation {
		d.value, d.generation, d.made = made(tables), generation, true
	}
	return d.value, err
}

// Inventory is the live list of a node's ports.
type Inventory struct {
	sources Sources
	logger  *slog.Logger
	conn    *rtnl.Conn
	replica *ovsdb.Replica // nil without Open vSwitch
	south   *ovsdb.Replica // nil without OVN
	libvirt folder
	cni     folder
	file    *namedPorts // nil without a path

	fromOVS   derived[map[string]ovsPort]
	fromSouth derived[map[string]identity]
	bridges   derived[[]Bridge]

	listed   []rtnl.Link // used by sync alone, as of listedAt
	listedAt time.Time

	mu    sync.Mutex
	ports []Port
	links map[int]bool // indices of all interfaces that exist
	// deviceless are ports that only the switch knows, see EveryPort.
	deviceless []Port
	states     []SourceState
	synced     bool
	known      bool // every source could be read at the same time, once
	changes    chan struct{}
}

// NewInventory opens the sources. Run keeps the list current.
func NewInventory(s Sources, logger *slog.Logger) (*Inventory, error) {
	conn, err := rtnl.Dial(s.NetNS)
	if err != nil {
		return nil, err
	}
	inv := &Inventory{sources: s, logger: logger, conn: conn, changes: make(chan struct{}, 1)}
	inv.file, inv.libvirt, inv.cni = newFile(s.File), libvirtDomains(s.Libvirt), cniResults(s.CNI)
	if s.OVSDB != "" {
		inv.replica, err = ovsdb.NewReplica(s.OVSDB, ovsDatabase, ovsColumns(), logger)
	}
	if s.Southbound != "" && err == nil {
		inv.south, err = ovsdb.NewReplica(s.Southbound, southboundDatabase, southboundColumns(), logger, ovsdb.WithTLS(s.TLS), ovsdb.WithCondition(portBinding, logicalPort))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return inv, nil
}

// Close frees the sources, after Run has ended.
func (inv *Inventory) Close() error { return inv.conn.Close() }

// Run keeps the list current until ctx ends.
func (inv *Inventory) Run(ctx context.Context) error {
	watcher, err := rtnl.Watch(inv.sources.NetNS)
	if err != nil {
		return err
	}
	defer watcher.Close()
	var ovsChanges, southChanges <-chan struct{}
	var wg sync.WaitGroup
	defer wg.Wait()
	if inv.replica != nil {
		wg.Go(func() { inv.replica.Run(ctx) })
		ovsChanges = inv.replica.Changes()
	}
	if inv.south != nil {
		wg.Go(func() { inv.south.Run(ctx) })
		southChanges = inv.south.Changes()
	}
	tick := time.NewTicker(resyncInterval)
	defer tick.Stop()
	settled := time.NewTimer(0)
	defer settled.Stop()
	for {
		inv.sync(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-watcher.Changes():
			inv.forgetLinks()
			if inv.sources.CNI != "" {
				settled.Reset(settleInterval)
			}
		case <-settled.C:
		case <-ovsChanges:
		case <-southChanges:
		case <-tick.C:
		case <-watcher.Done():
			return fmt.Errorf("watch interfaces: %w", watcher.Err())
		}
	}
}

// list returns the interfaces: those of the last time if no event came since.
func (inv *Inventory) list(now time.Time) ([]rtnl.Link, error) {
	if inv.listed != nil && now.Sub(inv.listedAt) < relinkInterval {
		return inv.listed, nil
	}
	links, err := inv.conn.Links()
	if err == nil {
		inv.listed, inv.listedAt = links, now
	}
	return links, err
}

func (inv *Inventory) forgetLinks() { inv.listed = nil }

// sync reads every source once and publishes the result.
func (inv *Inventory) sync(now time.Time) {
	links, linkErr := inv.list(now)
	states := []SourceState{{Name: "rtnetlink", Err: linkErr}}
	known, more := inv.facts()
	states = append(states, more...)
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.logStates(states)
	inv.states = states
	if linkErr != nil {
		return // the last list is better than none
	}
	ports := resolve(links, known)
	inv.deviceless = deviceless(links, known, ports)
	present := make(map[int]bool, len(links))
	for _, l := range links {
		present[l.Index] = true
	}
	other := !slices.Equal(ports, inv.ports)
	changed := !inv.synced || other || len(present) != len(inv.links)
	if other { // who looks things up in it need not do so anew while it stays
		inv.ports = ports
	}
	inv.links, inv.synced = present, true
	inv.known = inv.known || inv.missing() == nil
	if changed {
		select {
		case inv.changes <- struct{}{}:
		default:
		}
	}
}

// facts reads what every source of identity says now, and how it fares.
func (inv *Inventory) facts() (f facts, states []SourceState) {
	if inv.replica != nil {
		ovs, err := inv.fromOVS.of(inv.replica, fromOVS)
		age, _ := inv.replica.Age()
		states = append(states, SourceState{Name: "ovsdb", Err: err, Age: age})
		f.ovs = ovs
	}
	if inv.south != nil {
		inv.south.SetCondition(portBinding, logicalPorts(f.ovs))
		southbound, err := inv.fromSouth.of(inv.south, fromSouthbound)
		age, _ := inv.south.Age()
		states = append(states, SourceState{Name: "ovn", Err: err, Age: age})
		f.southbound = southbound
	}
	if inv.sources.Libvirt != "" {
		var err error
		f.libvirt, err = inv.libvirt.read()
		states = append(states, SourceState{Name: "libvirt", Err: err})
	}
	if inv.sources.CNI != "" {
		var err error
		f.cni, err = inv.cni.read()
		states = append(states, SourceState{Name: "cni", Err: err})
	}
	if inv.sources.File != "" {
		content, err := inv.file.Read()
		if content != nil {
			f.file = content.Ports
		}
		states = append(states, SourceState{Name: "file", Err: err, Age: content.age(time.Now())})
	}
	return f, states
}

// logStates says once when a source breaks and when it works again.
func (inv *Inventory) logStates(states []SourceState) {
	for i, s := range states {
		var before error
		if i < len(inv.states) {
			before = inv.states[i].Err
		}
		switch {
		case s.Err != nil && (before == nil || before.Error() != s.Err.Error()):
			inv.logger.Warn("cannot read source of ports", "source", s.Name, "err", s.Err)
		case s.Err == nil && before != nil:
			inv.logger.Info("source of ports works again", "source", s.Name)
		}
	}
}

// Ports returns the ports and the health of the sources. Neither may be altered; the
// ports are in the same memory for as long as they stay what they are.
func (inv *Inventory) Ports() ([]Port, []SourceState) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return inv.ports, inv.states
}

// EveryPort returns the ports and, beside those, the ones that have no device in
// the kernel: vhost-user ports of Open vSwitch. Their Index is 0, no program can
// be attached to them, and only the switch counts what they carry.
func (inv *Inventory) EveryPort() ([]Port, []SourceState) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if len(inv.deviceless) == 0 {
		return inv.ports, inv.states
	}
	all := slices.Concat(inv.ports, inv.deviceless)
	slices.SortFunc(all, func(a, b Port) int { return strings.Compare(a.ID, b.ID) })
	return all, inv.states
}

// Lookup returns the port with that id.
func (inv *Inventory) Lookup(id string) (Port, bool) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	i, ok := slices.BinarySearchFunc(inv.ports, id, func(p Port, id string) int {
		switch {
		case p.ID < id:
			return -1
		case p.ID > id:
			return 1
		}
		return 0
	})
	if !ok {
		return Port{}, false
	}
	return inv.ports[i], true
}

// Exists tells whether an interface exists, and whether all sources work: while one does
// not, an interface that is no port may be one nevertheless.
func (inv *Inventory) Exists(index int) (exists, healthy bool) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return inv.links[index] || !inv.synced, inv.missing() == nil
}

// Ready returns nil while every source can be read, or what is missing.
func (inv *Inventory) Ready() error {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return inv.missing()
}

// Known returns nil once every source has been read, or what is missing. A source that is away later does
// not change that: what it said last is kept.
func (inv *Inventory) Known() error {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if inv.known {
		return nil
	}
	return inv.missing()
}

// missing returns what is not known now. It needs mu.
func (inv *Inventory) missing() error {
	if !inv.synced {
		return errors.New("the interfaces have not been read yet")
	}
	for _, s := range inv.states {
		if s.Err != nil {
			return fmt.Errorf("%s: %w", s.Name, s.Err)
		}
	}
	return nil
}

// Changes delivers a value after the list has changed.
func (inv *Inventory) Changes() <-chan struct{} { return inv.changes }
