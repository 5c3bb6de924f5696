package vport

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"vigia/internal/tc"
)

// Attachment is how programs get onto the tc hooks.
type Attachment string

// The attachments. TCX links hold on to a port by themselves and go with their
// pin; clsact filters are what kernels before Linux 6.6 have.
const (
	Auto          Attachment = "auto"
	TCXLinks      Attachment = "tcx"
	ClsactFilters Attachment = "clsact"
)

// A filter has no pin of its own. Its program is pinned where a TCX link would
// be, which tells the next process what is attached, and by its id what is ours.
const (
	filterHandle = 0x76696761 // "viga"
	// qdiscMark is pinned beside them where we made the clsact qdisc. Its name
	// sorts after those of the filters, which have to go before it.
	qdiscMark = "qdisc"
)

func clsactParent(name string) tc.Handle {
	if isEgress(name) {
		return tc.ClsactEgress
	}
	return tc.ClsactIngress
}

// ofPin returns the interface and the name of a pin.
func ofPin(pin string) (ifindex int, name string, err error) {
	number, name, _ := strings.Cut(filepath.Base(pin), "-")
	ifindex, err = strconv.Atoi(number)
	return ifindex, name, err
}

// addFilter attaches by a filter. The pin comes first: what it stands for is
// looked up in the kernel each time.
func (m *Manager) addFilter(ifindex int, name string) error {
	conn, err := tc.Dial(m.nsName)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := m.ensureClsact(conn, ifindex); err != nil {
		return err
	}
	if err := pinCopy(m.program(name), m.linkPin(ifindex, name)); err != nil {
		return err
	}
	filters, err := conn.Filters(ifindex, clsactParent(name))
	if err != nil {
		return err
	}
	return conn.ReplaceFilter(m.filter(ifindex, name, freePriority(filters)))
}

func (m *Manager) filter(ifindex int, name string, priority uint16) tc.Filter {
	return tc.Filter{
		Link: ifindex, Parent: clsactParent(name), Priority: priority, Handle: filterHandle,
		Name: "vigia_" + name, FD: m.program(name).FD(), Direct: true,
	}
}

// freePriority returns the first priority that no filter of another kind has:
// filters of one priority are of one kind.
func freePriority(filters []tc.Filter) uint16 {
	taken := make(map[uint16]bool)
	for _, f := range filters {
		if f.Kind != "bpf" || f.Handle == filterHandle {
			taken[f.Priority] = true
		}
	}
	priority := uint16(1)
	for taken[priority] {
		priority++
	}
	return priority
}

// ensureClsact makes the qdisc that filters hang from, unless there is one.
func (m *Manager) ensureClsact(conn *tc.Conn, ifindex int) error {
	qdiscs, err := conn.Qdiscs(ifindex)
	if err != nil {
		return err
	}
	for _, q := range qdiscs {
		if q.Parent != tc.Clsact {
			continue
		}
		if q.Kind != "clsact" {
			return fmt.Errorf("interface %d has a qdisc of kind %s, which has no egress side; replace it by clsact", ifindex, q.Kind)
		}
		return nil
	}
	if err := pinCopy(m.objects.VportTcxFrom, m.linkPin(ifindex, qdiscMark)); err != nil {
		return err
	}
	return conn.AddQdisc(tc.Qdisc{Link: ifindex, Kind: "clsact", Handle: tc.MakeHandle(0xffff, 0), Parent: tc.Clsact})
}

// pinCopy pins a program at one more place.
func pinCopy(p *ebpf.Program, pin string) error {
	c, err := p.Clone()
	if err != nil {
		return fmt.Errorf("copy program: %w", err)
	}
	defer c.Close()
	if err := os.Remove(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("make room for a pin: %w", err)
	}
	if err := c.Pin(pin); err != nil {
		return fmt.Errorf("pin program: %w", err)
	}
	return nil
}

// ours lists the filters that the program at a pin is attached by.
func (m *Manager) ours(conn *tc.Conn, pin string, p *ebpf.Program) ([]tc.Filter, error) {
	ifindex, name, err := ofPin(pin)
	if err != nil {
		return nil, err
	}
	info, err := p.Info()
	if err != nil {
		return nil, fmt.Errorf("look at program: %w", err)
	}
	id, _ := info.ID()
	filters, err := conn.Filters(ifindex, clsactParent(name))
	if gone(err) {
		return nil, nil
	}
	var out []tc.Filter
	for _, f := range filters {
		if f.Handle == filterHandle && ebpf.ProgramID(f.Program) == id {
			out = append(out, f)
		}
	}
	return out, err
}

// gone tells whether the interface or its qdisc is no more.
func gone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL)
}

// removeFilter takes away what a pinned program stands for, and the pin.
func (m *Manager) removeFilter(pin string, p *ebpf.Program) error {
	conn, err := tc.Dial(m.nsName)
	if err != nil {
		return err
	}
	defer conn.Close()
	ifindex, name, err := ofPin(pin)
	if err != nil {
		return err
	}
	if name == qdiscMark {
		err = removeClsact(conn, ifindex)
	} else {
		err = m.removeFilters(conn, pin, p)
	}
	return errors.Join(err, os.Remove(pin))
}

func (m *Manager) removeFilters(conn *tc.Conn, pin string, p *ebpf.Program) error {
	filters, err := m.ours(conn, pin, p)
	errs := []error{err}
	for _, f := range filters {
		errs = append(errs, conn.DeleteOneFilter(f))
	}
	return errors.Join(errs...)
}

// removeClsact removes the qdisc that we made, unless somebody else uses it by now.
func removeClsact(conn *tc.Conn, ifindex int) error {
	for _, parent := range []tc.Handle{tc.ClsactIngress, tc.ClsactEgress} {
		filters, err := conn.Filters(ifindex, parent)
		if gone(err) {
			return nil
		}
		if err != nil || len(filters) > 0 {
			return err
		}
	}
	err := conn.DeleteQdisc(ifindex, tc.MakeHandle(0xffff, 0), tc.Clsact)
	if gone(err) {
		return nil
	}
	return err
}

// filterTarget returns the interface that the program at a pin is attached to, 0 if it is not.
func (m *Manager) filterTarget(pin string, p *ebpf.Program) (int, error) {
	conn, err := tc.Dial(m.nsName)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	filters, err := m.ours(conn, pin, p)
	if err != nil || len(filters) == 0 {
		return 0, err
	}
	return filters[0].Link, nil
}

// updateFilter brings the filter of a program that another build pinned up to date.
func (m *Manager) updateFilter(pin string, have, want *ebpf.Program) error {
	if same, err := sameCode(have, want); err != nil || same {
		return err
	}
	conn, err := tc.Dial(m.nsName)
	if err != nil {
		return err
	}
	defer conn.Close()
	ifindex, name, err := ofPin(pin)
	if err != nil {
		return err
	}
	filters, err := m.ours(conn, pin, have)
	if err != nil || len(filters) == 0 {
		return err // the next look at the ports attaches anew
	}
	// The kernel exchanges the program in one step.
	if err := conn.ReplaceFilter(m.filter(ifindex, name, filters[0].Priority)); err != nil {
		return err
	}
	return pinCopy(want, pin)
}
