package attribution

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// procfs reads proc(5).
type procfs struct{ root string }

// ticks is USER_HZ, the unit of times in procfs; 100 on every architecture that
// Linux exports to user space.
const ticks = 100

const maxFile = 4 << 20

func (p procfs) read(name string) (string, error) {
	f, err := os.Open(filepath.Join(p.root, name))
	if err != nil {
		return "", err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(raw), err
}

// softirqSeconds returns the time that all processors spent in softirqs.
func (p procfs) softirqSeconds() (float64, error) {
	text, err := p.read("stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq ...
	const column = 7
	if len(fields) <= column || fields[0] != "cpu" {
		return 0, errors.New("/proc/stat has no line of all processors")
	}
	n, err := strconv.ParseUint(fields[column], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	return float64(n) / ticks, nil
}

// processSeconds returns the processor time of a process, all threads.
func (p procfs) processSeconds(pid int) (float64, error) {
	name := filepath.Join(strconv.Itoa(pid), "stat")
	text, err := p.read(name)
	if err != nil {
		return 0, err
	}
	// The second field is the command in brackets and may hold anything.
	i := strings.LastIndexByte(text, ')')
	fields := strings.Fields(text[i+1:])
	const utime, stime = 11, 12 // fields 14 and 15 of the line
	if i < 0 || len(fields) <= stime {
		return 0, fmt.Errorf("/proc/%s is cut short", name)
	}
	user, err1 := strconv.ParseUint(fields[utime], 10, 64)
	system, err2 := strconv.ParseUint(fields[stime], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("/proc/%s: %w", name, err)
	}
	return float64(user+system) / ticks, nil
}

// hexColumn adds a column of hexadecimal numbers up.
func hexColumn(text string, column int, skip int) (sum uint64, err error) {
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if i < skip {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) <= column {
			return 0, fmt.Errorf("line %d has %d columns", i+1, len(fields))
		}
		n, err := strconv.ParseUint(fields[column], 16, 64)
		if err != nil {
			return 0, fmt.Errorf("line %d: %w", i+1, err)
		}
		sum += n
	}
	return sum, nil
}

// softnetDropped returns the packets that processors had no room for.
func (p procfs) softnetDropped() (uint64, error) {
	text, err := p.read("net/softnet_stat")
	if err != nil {
		return 0, err
	}
	n, err := hexColumn(text, 1, 0)
	if err != nil {
		return 0, fmt.Errorf("/proc/net/softnet_stat: %w", err)
	}
	return n, nil
}

type connTable struct {
	count, max, drops uint64
	hasDrops          bool
}

// connections reads the table of the calling thread's network namespace.
func (p procfs) connections() (t connTable, err error) {
	for name, into := range map[string]*uint64{"count": &t.count, "max": &t.max} {
		text, err := p.read("sys/net/netfilter/nf_conntrack_" + name)
		if err != nil {
			return t, err
		}
		if *into, err = strconv.ParseUint(strings.TrimSpace(text), 10, 64); err != nil {
			return t, fmt.Errorf("nf_conntrack_%s: %w", name, err)
		}
	}
	text, err := p.read("thread-self/net/stat/nf_conntrack")
	if errors.Is(err, os.ErrNotExist) {
		return t, nil // CONFIG_NF_CONNTRACK_PROCFS is not set
	}
	if err != nil {
		return t, err
	}
	head, _, _ := strings.Cut(text, "\n")
	for i, name := range strings.Fields(head) {
		if name != "drop" && name != "early_drop" {
			continue
		}
		n, err := hexColumn(text, i, 1)
		if err != nil {
			return t, fmt.Errorf("nf_conntrack: %w", err)
		}
		t.drops += n
		t.hasDrops = true
	}
	return t, nil
}

// pid reads the pid file of ovs-vswitchd.
func pid(runDir string) (int, error) {
	text, err := procfs{runDir}.read("ovs-vswitchd.pid")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
	if err != nil {
		return 0, fmt.Errorf("ovs-vswitchd.pid holds no process id")
	}
	return int(n), nil
}
