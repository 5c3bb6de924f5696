package vport

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// ErrFull means that all slots are taken.
var ErrFull = errors.New("no slot is free; raise bpf.max_ports")

// Attach puts the programs on the interface and gives it a slot with counters
// at zero. Attaching what is attached already changes nothing.
func (m *Manager) Attach(ifindex int, hook Hook) error {
	err := m.locked(func() error { return m.attach(ifindex, hook) })
	if err != nil {
		return fmt.Errorf("attach to interface %d by %s: %w", ifindex, hook, err)
	}
	return nil
}

// Want is an interface that shall have the programs.
type Want struct {
	Index int
	Hook  Hook
}

// AttachAll does what Attach does for many interfaces, and returns what went wrong
// by interface; err tells what went wrong beside.
func (m *Manager) AttachAll(wanted []Want) (failed map[int]error, err error) {
	failed = make(map[int]error)
	end := m.ExpediteRCU(len(wanted))
	for _, w := range wanted {
		if err := m.Attach(w.Index, w.Hook); err != nil {
			failed[w.Index] = err
		}
	}
	return failed, end()
}

func (m *Manager) attach(ifindex int, hook Hook) error {
	var p vportPlace
	err := m.objects.VportPlace.Lookup(uint32(ifindex), &p)
	alive := false
	if err == nil && Hook(p.Hook) == hook {
		if alive, err = m.linksAlive(ifindex, hook); err != nil {
			return fmt.Errorf("look at the programs, which stay as they are: %w", err)
		}
	}
	switch {
	case alive:
		return m.setSlot(ifindex, p.Slot)
	case err == nil:
		// Another hook, or an interface that took over a dead one's number.
		if err := m.detach(ifindex); err != nil {
			return err
		}
	case !errors.Is(err, ebpf.ErrKeyNotExist):
		return fmt.Errorf("look up slot: %w", err)
	}
	slot, err := m.freeSlot(ifindex)
	if err != nil {
		return err
	}
	if err := m.clearSlot(slot, ifindex); err != nil {
		return err
	}
	p = vportPlace{Slot: slot, Hook: uint32(hook), SinceNs: Monotonic()}
	if err := m.objects.VportPlace.Put(uint32(ifindex), p); err != nil {
		return fmt.Errorf("take slot: %w", err)
	}
	if err := m.setSlot(ifindex, slot); err != nil {
		return errors.Join(err, m.detach(ifindex))
	}
	if err := m.netns.Do(func() error { return m.link(ifindex, hook) }); err != nil {
		return errors.Join(explainAttach(err), m.detach(ifindex))
	}
	return nil
}

// freeSlot returns the interface's own place if it is free. Otherwise it takes another
// one, beginning with those that are the fewest interfaces' own.
func (m *Manager) freeSlot(ifindex int) (uint32, error) {
	taken := make([]bool, m.maxPorts)
	if err := m.readPlaces(&m.scratch); err != nil {
		return 0, err
	}
	for _, p := range m.scratch.Places {
		taken[p.slot] = true
	}
	if own := uint32(ifindex) & m.placeMask(); !taken[own] {
		return own, nil
	}
	for slot, isTaken := range slices.Backward(taken) {
		if !isTaken {
			return uint32(slot), nil
		}
	}
	return 0, ErrFull
}

// placeMask gives the bits of an interface's number that say where its own place is.
func (m *Manager) placeMask() uint32 { return 1<<(bits.Len(uint(m.maxPorts))-1) - 1 }

func (m *Manager) clearSlot(slot uint32, ifindex int) error {
	if err := m.clearCounters(slot, ifindex); err != nil {
		return err
	}
	if err := m.objects.VportLimit.Put(slot, vportLimit{}); err != nil {
		return fmt.Errorf("clear limit: %w", err)
	}
	if err := m.objects.VportState.Put(slot, vportState{}); err != nil {
		return fmt.Errorf("clear state: %w", err)
	}
	if err := m.objects.VportMacPairs.Put(slot, vportMacPairs{}); err != nil {
		return fmt.Errorf("clear pairs of MAC addresses: %w", err)
	}
	if err := m.objects.VportContract.Put(slot, vportContract{}); err != nil {
		return fmt.Errorf("clear contract: %w", err)
	}
	return m.clearPairs(slot)
}

// clearCounters sets a slot's counters to zero and says whose they are from now on.
func (m *Manager) clearCounters(slot uint32, ifindex int) error {
	zero := make([]vportCounters, ebpf.MustPossibleCPU())
	for i := range zero {
		zero[i].Ifindex = uint32(ifindex)
	}
	if err := m.objects.VportCount.Put(slot, zero); err != nil {
		return fmt.Errorf("clear counters: %w", err)
	}
	return nil
}

// setSlot tells the programs the interface's slot.
func (m *Manager) setSlot(ifindex int, slot uint32) error {
	if err := m.slotMap(ifindex).Put(uint32(ifindex), slot+1); err != nil {
		return fmt.Errorf("publish slot: %w", err)
	}
	return nil
}

func (m *Manager) slotMap(ifindex int) *ebpf.Map {
	if uint32(ifindex) < m.objects.VportSlots.MaxEntries() {
		return m.objects.VportSlots
	}
	return m.objects.VportHigh
}

// The links of an interface, by the name of their pin's second part.
const (
	linkIngress       = "ingress"
	linkEgress        = "egress"
	linkXDP           = "xdp"
	linkPassed        = "ingress-passed" // behind XDP
	linkTenantIngress = "ingress-tenant"
	linkTenantEgress  = "egress-tenant"
)

func linkNames(hook Hook) []string {
	switch hook {
	case XDP:
		return []string{linkXDP, linkPassed, linkEgress}
	case TCXTenant:
		return []string{linkTenantIngress, linkTenantEgress}
	}
	return []string{linkIngress, linkEgress}
}

func isEgress(name string) bool { return name == linkEgress || name == linkTenantEgress }

func (m *Manager) linkPin(ifindex int, name string) string {
	return filepath.Join(m.linkDir(), strconv.Itoa(ifindex)+"-"+name)
}

func (m *Manager) link(ifindex int, hook Hook) error {
	for _, name := range linkNames(hook) {
		if name != linkXDP && m.attachment == ClsactFilters {
			if err := m.addFilter(ifindex, name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		l, err := m.newLink(ifindex, name)
		if name != linkXDP && m.attachment != TCXLinks && errors.Is(err, ebpf.ErrNotSupported) {
			err = m.addFilter(ifindex, name)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		err = l.Pin(m.linkPin(ifindex, name))
		l.Close()
		if err != nil {
			return fmt.Errorf("pin %s link: %w", name, err)
		}
	}
	return nil
}

func (m *Manager) newLink(ifindex int, name string) (link.Link, error) {
	if name == linkXDP {
		l, err := link.AttachXDP(link.XDPOptions{Program: m.objects.VportXdpFrom, Interface: ifindex, Flags: link.XDPDriverMode})
		if err == nil || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
			return l, err
		}
		return link.AttachXDP(link.XDPOptions{Program: m.objects.VportXdpFrom, Interface: ifindex, Flags: link.XDPGenericMode})
	}
	side := ebpf.AttachTCXIngress
	if isEgress(name) {
		side = ebpf.AttachTCXEgress
	}
	return link.AttachTCX(link.TCXOptions{Program: m.program(name), Interface: ifindex, Attach: side, Anchor: link.Head()})
}

func explainAttach(err error) error {
	switch {
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("the kernel lacks TCX links (Linux 6.6); set bpf.attachment to auto or clsact: %w", err)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("the interface has an XDP program of another owner (an AF_XDP port?); it stays untouched: %w", err)
	}
	return err
}

// linksAlive tells whether the pinned links of the interface still hold on to it. It fails where that cannot be told.
func (m *Manager) linksAlive(ifindex int, hook Hook) (bool, error) {
	for _, name := range linkNames(hook) {
		got, err := m.linkTarget(m.linkPin(ifindex, name))
		if exhausted(err) {
			return false, err
		}
		if err != nil || got != ifindex {
			return false, nil
		}
	}
	return true, nil
}

// exhausted tells whether an error is of this process or the machine, and says nothing of what was asked for.
func exhausted(err error) bool {
	for _, errno := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.EAGAIN, unix.EINTR} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// linkTarget returns the interface of a pinned link, 0 if it has gone away.
func (m *Manager) linkTarget(pin string) (int, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, fs.ErrNotExist) || exhausted(err) {
		return 0, err
	}
	if err != nil { // a program: a filter's, on kernels without TCX links
		p, noProgram := ebpf.LoadPinnedProgram(pin, nil)
		if noProgram != nil {
			return 0, errors.Join(err, noProgram)
		}
		defer p.Close()
		return m.filterTarget(pin, p)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return 0, err
	}
	if x := info.TCX(); x != nil {
		return int(x.Ifindex), nil
	}
	if x := info.XDP(); x != nil {
		return int(x.Ifindex), nil
	}
	return 0, fmt.Errorf("%s is no TCX or XDP link", pin)
}

// Detach removes the programs from the interface, which may be gone, and frees
// its slot. Detaching what is not attached changes nothing.
func (m *Manager) Detach(ifindex int) error {
	if err := m.locked(func() error { return m.detach(ifindex) }); err != nil {
		return fmt.Errorf("detach from interface %d: %w", ifindex, err)
	}
	return nil
}

func (m *Manager) detach(ifindex int) error {
	var errs []error
	for _, name := range []string{linkIngress, linkEgress, linkTenantIngress, linkTenantEgress, linkXDP, linkPassed, qdiscMark} {
		errs = append(errs, m.unlink(m.linkPin(ifindex, name)))
	}
	slots := m.slotMap(ifindex)
	errs = append(errs, m.finish(ifindex))
	var err error
	if slots.Type() == ebpf.Array {
		err = slots.Put(uint32(ifindex), uint32(0))
	} else {
		err = slots.Delete(uint32(ifindex))
	}
	errs = append(errs, ignoreAbsent(err), ignoreAbsent(m.objects.VportPlace.Delete(uint32(ifindex))))
	return errors.Join(errs...)
}

// unlink detaches a pinned link at once and removes its pin. Removing the pin
// alone would leave the program in place until the kernel frees the inode.
func (m *Manager) unlink(pin string) error {
	if p, err := ebpf.LoadPinnedProgram(pin, nil); err == nil {
		defer p.Close()
		return m.removeFilter(pin, p)
	}
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = l.Detach()
		l.Close()
		if errors.Is(err, unix.ENOLINK) {
			err = nil // the interface went away and took the link with it
		}
	}
	return errors.Join(err, os.Remove(pin))
}

func ignoreAbsent(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// Attached returns the interfaces that have a slot, with their hooks.
func (m *Manager) Attached() (map[int]Hook, error) {
	out := make(map[int]Hook)
	var ifindex uint32
	var p vportPlace
	it := m.objects.VportPlace.Iterate()
	for it.Next(&ifindex, &p) {
		out[int(ifindex)] = Hook(p.Hook)
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("list slots: %w", err)
	}
	return out, nil
}

// updateLinks brings the programs of links that another build pinned up to date.
func (m *Manager) updateLinks() error {
	entries, err := os.ReadDir(m.linkDir())
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	same := make(map[ebpf.ProgramID]bool) // links share few programs
	for _, e := range entries {
		_, name, _ := strings.Cut(e.Name(), "-")
		if name == qdiscMark {
			continue
		}
		if err := m.updateLink(filepath.Join(m.linkDir(), e.Name()), m.program(name), same); err != nil {
			return fmt.Errorf("update link %s: %w", e.Name(), err)
		}
	}
	return nil
}

// program returns what belongs on a hook's link.
func (m *Manager) program(name string) *ebpf.Program {
	switch name {
	case linkXDP:
		return m.objects.VportXdpFrom
	case linkPassed:
		return m.objects.VportTcxPassed
	case linkEgress, linkTenantIngress:
		return m.objects.VportTcxTo
	}
	return m.objects.VportTcxFrom
}

// updateLink puts want on a link unless its program is the same; same remembers
// which programs are: links of one program are all to have the same one.
func (m *Manager) updateLink(pin string, want *ebpf.Program, same map[ebpf.ProgramID]bool) error {
	if p, err := ebpf.LoadPinnedProgram(pin, nil); err == nil {
		defer p.Close()
		return m.updateFilter(pin, p, want)
	}
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return err
	}
	if _, known := same[info.Program]; !known {
		if same[info.Program], err = sameProgram(info.Program, want); err != nil {
			return err
		}
	}
	if same[info.Program] {
		return nil
	}
	err = l.Update(want)
	if errors.Is(err, unix.ENOLINK) {
		return nil // the interface is gone; the next look at the ports cleans up
	}
	return err
}

// sameProgram tells whether the program of an id does the same. To look at it takes CAP_SYS_ADMIN: without, it is
// another one, and is replaced.
func sameProgram(id ebpf.ProgramID, want *ebpf.Program) (bool, error) {
	have, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, unix.EPERM) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer have.Close()
	return sameCode(have, want)
}

func sameCode(have, want *ebpf.Program) (bool, error) {
	a, err := have.Info()
	if err != nil {
		return false, err
	}
	b, err := want.Info()
	if err != nil {
		return false, err
	}
	return a.Tag == b.Tag, nil
}
