package contracts

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"vigia/internal/bpf/classify"
	"vigia/internal/tc"
)

// Drift is a difference between what shall be and what the kernel has.
type Drift struct {
	Device string    `json:"device"`
	Object string    `json:"object"` // for example "class 1150:1a2b"
	State  string    `json:"state"`  // missing, changed, leftover, foreign or failed
	Action string    `json:"action"` // made, repaired, removed, left or given_up
	Reason string    `json:"reason,omitempty"`
	Seen   time.Time `json:"seen"`
}

// maxRepairs is how often an object that somebody keeps changing is put right
// before it is left alone and only reported.
const (
	maxRepairs  = 3
	repairReset = 10 * time.Minute
)

type repair struct {
	count int
	last  time.Time
}

// Keeper keeps the kernel at what the contracts say.
type Keeper struct {
	conn     *tc.Conn
	programs *classify.Programs
	logger   *slog.Logger

	mu        sync.Mutex
	links     []Link
	contracts []Contract
	settled   map[string]bool    // devices that were right once: what is off later is drift
	repairs   map[string]*repair // by device and object
	drift     []Drift            // of the last look, whatever was done about it
	shapes    map[shapeKey]leaf  // of limits, by device
}

// NewKeeper returns a keeper for a namespace.
func NewKeeper(netns string, programs *classify.Programs, logger *slog.Logger) (*Keeper, error) {
	conn, err := tc.Dial(netns)
	if err != nil {
		return nil, err
	}
	return &Keeper{
		conn: conn, programs: programs, logger: logger, settled: map[string]bool{}, repairs: map[string]*repair{},
		shapes: map[shapeKey]leaf{},
	}, nil
}

// Close closes the connection. Everything in the kernel stays.
func (k *Keeper) Close() error { return k.conn.Close() }

// Set swaps links and contracts, which have been admitted. Reconcile applies them.
func (k *Keeper) Set(links []Link, list []Contract) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.links, k.contracts = links, list
	clear(k.settled) // changes that now follow are wanted
	clear(k.repairs)
}

// Desired returns links and contracts.
func (k *Keeper) Desired() ([]Link, []Contract) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.links, k.contracts
}

// Drift returns the differences that the last look found.
func (k *Keeper) Drift() []Drift {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.drift
}

// IFBName returns the name of the device behind an uplink's ingress.
func IFBName(link int) string { return fmt.Sprintf("vigia-ifb%d", link) }

// Reconcile compares the kernel with the contracts and puts it right. Devices that
// fail do not keep others from being looked at.
func (k *Keeper) Reconcile() ([]Drift, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drift = nil
	var errs []error
	if len(k.links) > 0 {
		changed, err := k.programs.SetMatches(Matches(k.contracts))
		errs = append(errs, err)
		if changed > 0 && len(k.settled) > 0 {
			k.note("", "matches", "changed", "repaired", "")
		}
	}
	for i := range k.links {
		if err := k.reconcileLink(&k.links[i]); err != nil {
			k.note(k.links[i].Device, "link", "failed", "left", err.Error())
			errs = append(errs, fmt.Errorf("link %s: %w", k.links[i].Device, err))
		}
	}
	return k.drift, errors.Join(errs...)
}

func (k *Keeper) note(device, object, state, action, reason string) {
	k.drift = append(k.drift, Drift{Device: device, Object: object, State: state, Action: action, Reason: reason, Seen: time.Now().UTC()})
	k.logger.Warn("drift", "device", device, "object", object, "state", state, "action", action, "reason", reason)
}

// mayRepair tells whether something that is off shall be put right, and notes it.
// What is made for the first time is no drift.
func (k *Keeper) mayRepair(device, object, state, action string) bool {
	if !k.settled[device] {
		return true
	}
	key := device + " " + object
	r := k.repairs[key]
	if r == nil || time.Since(r.last) > repairReset {
		r = &repair{}
		k.repairs[key] = r
	}
	r.count++
	r.last = time.Now()
	if r.count > maxRepairs {
		k.note(device, object, state, "given_up", fmt.Sprintf("put right %d times, and changed again", maxRepairs))
		return false
	}
	k.note(device, object, state, action, "")
	return true
}

func (k *Keeper) reconcileLink(l *Link) error {
	uplink, err := k.conn.LinkIndex(l.Device)
	if err != nil {
		return err
	}
	both := directions()
	if err := k.reconcileTree(l.Device, plan(uplink, l, k.contracts, both[0]), k.programs.Send()); err != nil {
		return err
	}
	name := IFBName(uplink)
	ifb, err := k.conn.EnsureIFB(name)
	if err != nil {
		return err
	}
	if err := k.reconcileTree(name, plan(ifb, l, k.contracts, both[1]), k.programs.Receive()); err != nil {
		return err
	}
	if err := k.reconcileRedirect(l.Device, uplink, ifb); err != nil {
		return err
	}
	k.settled[l.Device], k.settled[name] = true, true
	return nil
}

// errForeign tells that somebody else's root qdisc is in the place of ours.
var errForeign = errors.New("has a root qdisc of another owner, which stays untouched; remove it to have guarantees")

func (k *Keeper) reconcileTree(device string, t tree, program *ebpf.Program) error {
	link := t.inner[0].Link
	root := tc.MakeHandle(Major, 0)
	qdiscs, err := k.conn.Qdiscs(link)
	if err != nil {
		return err
	}
	have := make(map[tc.Handle]tc.Qdisc)
	ours := false
	for _, q := range qdiscs {
		have[q.Handle] = q
		if q.Parent != tc.Root {
			continue
		}
		if ours = q.Handle == root && q.Kind == "htb"; !ours && q.Handle.Major() != 0 {
			return fmt.Errorf("%s %w (%s %s)", device, errForeign, q.Kind, q.Handle)
		}
	}
	if !ours {
		if !k.mayRepair(device, "qdisc "+root.String(), "missing", "made") {
			return nil
		}
		if err := k.conn.AddQdisc(tc.Qdisc{Link: link, Handle: root, Parent: tc.Root, Kind: "htb", Default: DefaultMinor}); err != nil {
			return err
		}
	}
	if err := k.reconcileClasses(device, t, have); err != nil {
		return err
	}
	return k.reconcileFilter(device, tc.Filter{
		Link: link, Parent: root, Priority: filterPriority, Handle: filterHandle, Kind: "bpf", Name: filterName,
	}, program)
}

func (k *Keeper) reconcileClasses(device string, t tree, queues map[tc.Handle]tc.Qdisc) error {
	link := t.inner[0].Link
	list, err := k.conn.Classes(link, nil)
	if err != nil {
		return err
	}
	have := make(map[tc.Handle]tc.Class, len(list))
	for _, c := range list {
		if c.Handle.Major() == Major {
			have[c.Handle] = c
		}
	}
	for i := range t.inner {
		if err := k.reconcileClass(device, &t.inner[i], have); err != nil {
			return err
		}
	}
	for i := range t.leaves {
		l := &t.leaves[i]
		if err := k.reconcileClass(device, &l.class, have); err != nil {
			return err
		}
		if err := k.reconcileQueue(device, &l.queue, queues); err != nil {
			return err
		}
		delete(have, l.class.Handle)
	}
	for _, c := range t.inner {
		delete(have, c.Handle)
	}
	return k.removeLeftovers(device, link, have)
}

// removeLeftovers deletes classes that nobody wants, leaves before what they hang from.
func (k *Keeper) removeLeftovers(device string, link int, left map[tc.Handle]tc.Class) error {
	handles := slices.SortedFunc(maps.Keys(left), func(a, b tc.Handle) int { return cmp.Compare(b, a) })
	for _, handle := range handles {
		if _, live := k.shapes[shapeKey{link, handle.Minor()}]; live {
			continue
		}
		if k.mayRepair(device, "class "+handle.String(), "leftover", "removed") {
			if err := k.conn.DeleteClass(link, handle); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *Keeper) reconcileClass(device string, want *tc.Class, have map[tc.Handle]tc.Class) error {
	got, exists := have[want.Handle]
	if exists && same(want, &got) {
		return nil
	}
	state, action := "missing", "made"
	if exists {
		state, action = "changed", "repaired"
	}
	if !k.mayRepair(device, "class "+want.Handle.String(), state, action) {
		return nil
	}
	return k.conn.ReplaceClass(*want)
}

func (k *Keeper) reconcileQueue(device string, want *tc.Qdisc, have map[tc.Handle]tc.Qdisc) error {
	got, exists := have[want.Handle]
	if exists && got.Kind == want.Kind && got.Parent == want.Parent && got.Limit == want.Limit {
		return nil
	}
	state, action := "missing", "made"
	if exists {
		state, action = "changed", "repaired"
	}
	if !k.mayRepair(device, "qdisc "+want.Handle.String(), state, action) {
		return nil
	}
	return k.conn.ReplaceQdisc(*want)
}

func (k *Keeper) reconcileFilter(device string, want tc.Filter, program *ebpf.Program) error {
	list, err := k.conn.Filters(want.Link, want.Parent)
	if err != nil {
		return err
	}
	info, err := program.Info()
	if err != nil {
		return fmt.Errorf("look at classifier: %w", err)
	}
	id, _ := info.ID()
	want.FD = program.FD()
	state, action := "missing", "made"
	for _, f := range list {
		if f.Priority != want.Priority || f.Handle != want.Handle {
			continue
		}
		if f.Kind != "bpf" || f.Name != want.Name {
			return fmt.Errorf("%s has a filter of another owner (%s %q) at priority %#x, which stays untouched", device, f.Kind, f.Name, f.Priority)
		}
		if f.Program == uint32(id) && f.Redirect == want.Redirect {
			return nil
		}
		state, action = "changed", "repaired"
	}
	if !k.mayRepair(device, "filter "+want.Name, state, action) {
		return nil
	}
	return k.conn.ReplaceFilter(want)
}

// reconcileRedirect leads what comes in by the uplink through the IFB device. A
// clsact or ingress qdisc of another owner serves as well as ours, and stays.
func (k *Keeper) reconcileRedirect(device string, uplink, ifb int) error {
	err := k.conn.AddQdisc(tc.Qdisc{Link: uplink, Handle: tc.MakeHandle(0xffff, 0), Parent: tc.Clsact, Kind: "clsact"})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return k.reconcileFilter(device, tc.Filter{
		Link: uplink, Parent: tc.ClsactIngress, Priority: filterPriority, Handle: filterHandle, Kind: "bpf", Name: filterName,
		Redirect: ifb,
	}, k.programs.All())
}

// Uninstall removes what is ours from the links: trees, redirects and IFB devices.
func (k *Keeper) Uninstall() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for i := range k.links {
		errs = append(errs, k.uninstall(&k.links[i]))
	}
	clear(k.settled)
	return errors.Join(errs...)
}

func (k *Keeper) uninstall(l *Link) error {
	uplink, err := k.conn.LinkIndex(l.Device)
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	qdiscs, err := k.conn.Qdiscs(uplink)
	if err != nil {
		return err
	}
	var errs []error
	for _, q := range qdiscs {
		switch {
		case q.Parent == tc.Clsact:
			errs = append(errs, k.removeRedirect(uplink))
		case q.Parent == tc.Root && q.Handle == tc.MakeHandle(Major, 0):
			errs = append(errs, k.conn.DeleteQdisc(uplink, q.Handle, tc.Root))
		}
	}
	return errors.Join(append(errs, k.conn.DeleteIFB(IFBName(uplink)))...)
}

// removeRedirect removes our filter and no other. The clsact qdisc stays: others
// may use it by now, and empty it does nothing.
func (k *Keeper) removeRedirect(uplink int) error {
	list, err := k.conn.Filters(uplink, tc.ClsactIngress)
	if err != nil {
		return err
	}
	for _, f := range list {
		if f.Priority == filterPriority && f.Name == filterName {
			return k.conn.DeleteFilter(uplink, tc.ClsactIngress, filterPriority)
		}
	}
	return nil
}
