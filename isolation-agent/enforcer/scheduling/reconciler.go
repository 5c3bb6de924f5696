package scheduling

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"vigia/internal/bpf/classify"
	"vigia/internal/tc"
	"vigia/isolation-agent/enforcer/contract"
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

// Reconciler compares the kernel with links and contracts, and puts it right.
type Reconciler struct {
	conn     *tc.Conn
	programs *classify.Programs
	logger   *slog.Logger
	desired  atomic.Pointer[Desired]

	mu      sync.Mutex
	settled map[string]bool    // devices that were right once: what is off later is drift
	repairs map[string]*repair // by device and object
	drift   []Drift            // of the last look, whatever was done about it
	ids     classIDs
	limits  map[uint16]*limitClass // by minor number
	dropped map[string]bool        // links that are not wanted any more, but may have what is ours
	ifbs    map[string]string      // names of the IFB devices, by uplink
}

// NewReconciler returns a reconciler for a namespace, without links.
func NewReconciler(netns string, programs *classify.Programs, logger *slog.Logger) (*Reconciler, error) {
	conn, err := tc.Dial(netns)
	if err != nil {
		return nil, err
	}
	r := &Reconciler{
		conn: conn, programs: programs, logger: logger, settled: map[string]bool{}, repairs: map[string]*repair{},
		limits: map[uint16]*limitClass{}, dropped: map[string]bool{}, ifbs: map[string]string{},
	}
	r.desired.Store(newDesired(nil, nil))
	return r, nil
}

// Close closes the connection. Everything in the kernel stays, but for classes of limits that are over.
func (r *Reconciler) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for minor, c := range r.limits {
		if c.ended {
			errs = append(errs, r.removeLimitClass(minor))
		}
	}
	return errors.Join(append(errs, r.conn.Close())...)
}

// Set swaps links and contracts, which have been admitted. Reconcile applies them, and
// removes what is ours from links that are listed no more.
func (r *Reconciler) Set(links []Link, contracts *contract.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.Desired().Links {
		r.dropped[l.Device] = true
	}
	for _, l := range links {
		delete(r.dropped, l.Device)
	}
	r.desired.Store(newDesired(links, contracts))
	clear(r.settled) // changes that now follow are wanted
	clear(r.repairs)
}

// Desired returns links and contracts. It never waits for the kernel.
func (r *Reconciler) Desired() *Desired { return r.desired.Load() }

// Drift returns the differences that the last look found.
func (r *Reconciler) Drift() []Drift {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drift
}

// Reconcile compares the kernel with the contracts and puts it right. Devices that
// fail do not keep others from being looked at.
func (r *Reconciler) Reconcile() ([]Drift, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drift = nil
	desired := r.Desired()
	var errs []error
	if len(desired.Links) > 0 {
		changed, err := r.programs.SetMatches(desired.matches())
		errs = append(errs, err, r.programs.SetOwners(desired.owners()))
		if changed > 0 && len(r.settled) > 0 {
			r.note("", "matches", "changed", "repaired", "")
		}
	}
	for i := range desired.Links {
		link := &desired.Links[i]
		if err := r.reconcileLink(desired, link); err != nil {
			r.note(link.Device, "link", "failed", "left", err.Error())
			errs = append(errs, fmt.Errorf("link %s: %w", link.Device, err))
		}
	}
	for device := range r.dropped {
		if err := r.uninstall(device); err != nil {
			errs = append(errs, fmt.Errorf("link %s, which is listed no more: %w", device, err))
			continue
		}
		delete(r.dropped, device)
	}
	return r.drift, errors.Join(errs...)
}

func (r *Reconciler) note(device, object, state, action, reason string) {
	r.drift = append(r.drift, Drift{Device: device, Object: object, State: state, Action: action, Reason: reason, Seen: time.Now().UTC()})
	r.logger.Warn("drift", "device", device, "object", object, "state", state, "action", action, "reason", reason)
}

// mayRepair reports whether something that is off shall be put right, and notes it.
// What is made for the first time is no drift.
func (r *Reconciler) mayRepair(device, object, state, action string) bool {
	if !r.settled[device] {
		return true
	}
	key := device + " " + object
	before := r.repairs[key]
	if before == nil || time.Since(before.last) > repairReset {
		before = &repair{}
		r.repairs[key] = before
	}
	if before.count++; before.count > maxRepairs { // until repairReset after the last one
		r.note(device, object, state, "given_up", fmt.Sprintf("put right %d times, and changed again", maxRepairs))
		return false
	}
	before.last = time.Now()
	r.note(device, object, state, action, "")
	return true
}

func (r *Reconciler) reconcileLink(desired *Desired, l *Link) error {
	uplink, largest, err := r.conn.Uplink(l.Device)
	if err != nil {
		return err
	}
	name := IFBName(uplink)
	if err := r.forgetFormer(l.Device, name); err != nil {
		return err
	}
	both := directions()
	if err := r.reconcileTree(l.Device, plan(device{uplink, uint64(largest)}, l, desired, both[0], r.limits), r.programs.Send()); err != nil {
		return err
	}
	for _, c := range r.limits {
		c.on[uplink] = true
	}
	r.ifbs[l.Device] = name
	ifb, err := r.conn.EnsureIFB(name)
	if err != nil {
		return err
	}
	if err := r.reconcileTree(name, plan(device{ifb, uint64(largest)}, l, desired, both[1], nil), r.programs.Receive()); err != nil {
		return err
	}
	if err := r.reconcileRedirect(l.Device, uplink, ifb); err != nil {
		return err
	}
	r.settled[l.Device], r.settled[name] = true, true
	return nil
}

// forgetFormer removes what is left of an uplink that was made anew, or is gone. What the new one lacks is no drift.
func (r *Reconciler) forgetFormer(device, name string) error {
	former := r.ifbs[device]
	if former == "" || former == name {
		return nil
	}
	if err := r.conn.DeleteIFB(former); err != nil {
		return err
	}
	for _, gone := range []string{device, former} {
		delete(r.settled, gone)
		for key := range r.repairs {
			if strings.HasPrefix(key, gone+" ") {
				delete(r.repairs, key)
			}
		}
	}
	delete(r.ifbs, device)
	return nil
}

// errForeign means that somebody else's root qdisc is in the place of ours.
var errForeign = errors.New("has a root qdisc of another owner, which stays untouched; remove it to have guarantees")

func (r *Reconciler) reconcileTree(device string, t tree, program *ebpf.Program) error {
	link := t.inner[0].Link
	root := tc.MakeHandle(Major, 0)
	qdiscs, err := r.conn.Qdiscs(link)
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
		if !r.mayRepair(device, "qdisc "+root.String(), "missing", "made") {
			return nil
		}
		if err := r.conn.AddQdisc(tc.Qdisc{Link: link, Handle: root, Parent: tc.Root, Kind: "htb", Default: DefaultMinor}); err != nil {
			return err
		}
	}
	if err := r.reconcileClasses(device, t, have); err != nil {
		return err
	}
	return r.reconcileFilter(device, tc.Filter{
		Link: link, Parent: root, Priority: filterPriority, Handle: filterHandle, Kind: "bpf", Name: filterName,
	}, program)
}

func (r *Reconciler) reconcileClasses(device string, t tree, queues map[tc.Handle]tc.Qdisc) error {
	link := t.inner[0].Link
	list, err := r.conn.Classes(link, nil)
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
		if err := r.reconcileClass(device, &t.inner[i], true, have); err != nil {
			return err
		}
	}
	for i := range t.leaves {
		l := &t.leaves[i]
		if err := r.reconcileClass(device, &l.class, false, have); err != nil {
			return err
		}
		if err := r.reconcileQueue(device, &l.queue, queues); err != nil {
			return err
		}
		delete(have, l.class.Handle)
	}
	for _, c := range t.inner {
		delete(have, c.Handle)
	}
	return r.removeLeftovers(device, link, have)
}

// removeLeftovers deletes classes that nobody wants, leaves before what they hang from.
func (r *Reconciler) removeLeftovers(device string, link int, left map[tc.Handle]tc.Class) error {
	handles := slices.SortedFunc(maps.Keys(left), func(a, b tc.Handle) int { return cmp.Compare(b, a) })
	for _, handle := range handles {
		r.ids.skip(handle.Minor())
		if r.mayRepair(device, "class "+handle.String(), "leftover", "removed") {
			if err := r.conn.DeleteClass(link, handle); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Reconciler) reconcileClass(device string, want *tc.Class, inner bool, have map[tc.Handle]tc.Class) error {
	got, exists := have[want.Handle]
	if exists && same(want, &got, inner) {
		return nil
	}
	state, action := "missing", "made"
	if exists {
		state, action = "changed", "repaired"
	}
	if !r.mayRepair(device, "class "+want.Handle.String(), state, action) {
		return nil
	}
	return r.conn.ReplaceClass(*want)
}

func (r *Reconciler) reconcileQueue(device string, want *tc.Qdisc, have map[tc.Handle]tc.Qdisc) error {
	got, exists := have[want.Handle]
	if exists && got.Kind == want.Kind && got.Parent == want.Parent && got.Limit == want.Limit {
		return nil
	}
	state, action := "missing", "made"
	if exists {
		state, action = "changed", "repaired"
	}
	if !r.mayRepair(device, "qdisc "+want.Handle.String(), state, action) {
		return nil
	}
	if exists && got.Kind != want.Kind { // a queue stays of its kind: what an older version made, too
		if err := r.conn.DeleteQdisc(got.Link, got.Handle, got.Parent); err != nil {
			return err
		}
	}
	return r.conn.ReplaceQdisc(*want)
}

func (r *Reconciler) reconcileFilter(device string, want tc.Filter, program *ebpf.Program) error {
	list, err := r.conn.Filters(want.Link, want.Parent)
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
	if !r.mayRepair(device, "filter "+want.Name, state, action) {
		return nil
	}
	return r.conn.ReplaceFilter(want)
}

// reconcileRedirect leads what comes in by the uplink through the IFB device. A
// clsact or ingress qdisc of another owner serves as well as ours, and stays.
func (r *Reconciler) reconcileRedirect(device string, uplink, ifb int) error {
	err := r.conn.AddQdisc(tc.Qdisc{Link: uplink, Handle: tc.MakeHandle(0xffff, 0), Parent: tc.Clsact, Kind: "clsact"})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return r.reconcileFilter(device, tc.Filter{
		Link: uplink, Parent: tc.ClsactIngress, Priority: filterPriority, Handle: filterHandle, Kind: "bpf", Name: filterName,
		Redirect: ifb,
	}, r.programs.All())
}

// uninstall removes what is ours from an uplink: tree, redirect and IFB device.
func (r *Reconciler) uninstall(device string) error {
	uplink, err := r.conn.LinkIndex(device)
	if errors.Is(err, unix.ENODEV) {
		return r.forgetFormer(device, "")
	}
	if err != nil {
		return err
	}
	qdiscs, err := r.conn.Qdiscs(uplink)
	if err != nil {
		return err
	}
	var errs []error
	for _, q := range qdiscs {
		switch {
		case q.Parent == tc.Clsact:
			errs = append(errs, r.removeRedirect(uplink))
		case q.Parent == tc.Root && q.Handle == tc.MakeHandle(Major, 0):
			errs = append(errs, r.conn.DeleteQdisc(uplink, q.Handle, tc.Root))
		}
	}
	return errors.Join(append(errs, r.conn.DeleteIFB(IFBName(uplink)), r.forgetFormer(device, ""))...)
}

// removeRedirect removes our filter and no other. The clsact qdisc stays: others
// may use it by now, and empty it does nothing.
func (r *Reconciler) removeRedirect(uplink int) error {
	list, err := r.conn.Filters(uplink, tc.ClsactIngress)
	if err != nil {
		return err
	}
	for _, f := range list {
		if f.Priority == filterPriority && f.Name == filterName {
			return r.conn.DeleteFilter(uplink, tc.ClsactIngress, filterPriority)
		}
	}
	return nil
}
