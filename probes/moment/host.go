package moment

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/internal/rtnl"
	"vigia/internal/tc"
	"vigia/probes/health"
)

// maxQueues is how many queueing disciplines a record names.
const maxQueues = 16

// readHost reads the state of this host; ns is the target's network namespace. What cannot
// be read is zero, and named.
func readHost(reading health.Reading, ns string) Host {
	h := Host{Processors: runtime.NumCPU(), CPUPressure: reading.CPUPressure, Steal: reading.Steal}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		h.Error = err.Error()
		return h
	}
	var errs []error
	load, err := proc.LoadAvg()
	if err != nil {
		errs = append(errs, fmt.Errorf("load: %w", err))
	} else {
		h.Load1 = load.Load1
	}
	processors, err := proc.NetSoftnetStat()
	if err != nil {
		errs = append(errs, fmt.Errorf("softnet: %w", err))
	}
	for i := range processors {
		h.SoftnetDropped += uint64(processors[i].Dropped)
	}
	if err := netns.Do(ns, func() error { return h.readSockets(proc, ns) }); err != nil {
		errs = append(errs, fmt.Errorf("sockets: %w", err))
	}
	namespaces := []string{ns, ""}
	if ns == "" {
		namespaces = namespaces[:1]
	}
	for _, ns := range namespaces {
		if err := h.readQueues(ns); err != nil {
			errs = append(errs, fmt.Errorf("queues: %w", err))
		}
	}
	slices.SortFunc(h.Queues, func(a, b Queue) int {
		return cmp.Or(cmp.Compare(b.Dropped, a.Dropped), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Handle, b.Handle))
	})
	h.Queues = h.Queues[:min(len(h.Queues), maxQueues)]
	if err := errors.Join(errs...); err != nil {
		h.Error = err.Error()
	}
	return h
}

// readSockets reads what UDP sockets dropped in the namespace of the calling thread.
func (h *Host) readSockets(proc procfs.FS, ns string) error {
	task := os.Getpid()
	if ns != "" {
		task = unix.Gettid() // the thread that has entered it
	}
	self, err := proc.Proc(task)
	if err != nil {
		return err
	}
	v4, err := self.Snmp()
	if err != nil {
		return err
	}
	v6, err := self.Snmp6()
	if err != nil {
		return err
	}
	h.SocketDropped = count(v4.Udp.RcvbufErrors) + count(v6.Udp6.RcvbufErrors)
	h.SendRefused = count(v4.Udp.SndbufErrors) + count(v6.Udp6.SndbufErrors)
	return nil
}

func count(v *float64) uint64 {
	if v == nil || *v < 0 {
		return 0
	}
	return uint64(*v)
}

// readQueues adds the queueing disciplines of a namespace that have dropped packets.
func (h *Host) readQueues(ns string) error {
	queues, err := tc.Dial(ns)
	if err != nil {
		return err
	}
	defer queues.Close()
	all, err := queues.AllQdiscs(nil)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(q tc.Qdisc) bool { return q.Stats.Drops == 0 })
	if len(all) == 0 {
		return nil
	}
	devices, err := rtnl.Dial(ns)
	if err != nil {
		return err
	}
	defer devices.Close()
	links, err := devices.Links()
	if err != nil {
		return err
	}
	names := make(map[int]string, len(links))
	for i := range links {
		names[links[i].Index] = links[i].Name
	}
	for i := range all {
		q := &all[i]
		h.Queues = append(h.Queues, Queue{
			Netns: ns, Device: names[q.Link], Kind: q.Kind, Handle: q.Handle.String(), Dropped: uint64(q.Stats.Drops), Backlog: uint64(q.Stats.Backlog),
		})
	}
	return nil
}
