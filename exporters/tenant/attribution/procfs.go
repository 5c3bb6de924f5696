package attribution

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/procfs"
)

// proc reads proc(5). Most of it is read by the library; what is not is too dear by it
// (ADR 0025).
type proc struct {
	root   string
	all    procfs.FS // what is the same for all namespaces, and processes
	thread procfs.FS // of the network namespace that the calling thread is in
}

func newProc(root string) (p proc, err error) {
	p.root = root
	if p.all, err = procfs.NewFS(root); err == nil {
		p.thread, err = procfs.NewFS(filepath.Join(root, "thread-self"))
	}
	return p, err
}

// userHZ is the unit of times in procfs; 100 a second on every architecture that Linux
// exports to user space.
const userHZ = 100

// softirqSeconds returns the time that all processors spent in softirqs. It reads the first
// line alone of a file that has hundreds on a large server.
func (p *proc) softirqSeconds() (float64, error) {
	f, err := os.Open(filepath.Join(p.root, "stat"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var start [512]byte
	n, err := f.Read(start[:])
	if err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	line, _, whole := bytes.Cut(start[:n], []byte("\n"))
	fields := bytes.Fields(line) // cpu user nice system idle iowait irq softirq ...
	const column = 7
	if !whole || len(fields) <= column || string(fields[0]) != "cpu" {
		return 0, errors.New("/proc/stat has no line of all processors")
	}
	ticks, err := strconv.ParseUint(string(fields[column]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	return float64(ticks) / userHZ, nil
}

// processSeconds returns the processor time of a process, all threads.
func (p *proc) processSeconds(pid int) (float64, error) {
	process, err := p.all.Proc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	if err != nil {
		return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return stat.CPUTime(), nil
}

// softnetDropped returns the packets that processors had no room for.
func (p *proc) softnetDropped() (dropped uint64, err error) {
	processors, err := p.all.NetSoftnetStat()
	for i := range processors {
		dropped += uint64(processors[i].Dropped)
	}
	return dropped, err
}

// connTable is a namespace's table of connections.
type connTable struct {
	count, max, drops uint64
	hasDrops          bool
}

// connections reads the table of the calling thread's network namespace; fs.ErrNotExist
// without connection tracking.
func (p *proc) connections() (t connTable, err error) {
	for name, into := range map[string]*uint64{"count": &t.count, "max": &t.max} {
		values, err := p.all.SysctlInts("net.netfilter.nf_conntrack_" + name)
		if err != nil {
			return t, err
		}
		if len(values) != 1 || values[0] < 0 {
			return t, fmt.Errorf("nf_conntrack_%s is %v, not a number", name, values)
		}
		*into = uint64(values[0])
	}
	processors, err := p.thread.ConntrackStat()
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil // CONFIG_NF_CONNTRACK_PROCFS is not set
	}
	if err != nil {
		return t, err
	}
	for i := range processors {
		t.drops += processors[i].Drop + processors[i].EarlyDrop
	}
	t.hasDrops = true
	return t, nil
}
