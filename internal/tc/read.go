package tc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"vigia/internal/nldump"
)

// text returns a NUL-terminated string attribute.
func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

func u32(b []byte, at int) uint32 {
	if len(b) < at+4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b[at:])
}

func u64(b []byte, at int) uint64 {
	if len(b) < at+8 {
		return 0
	}
	return binary.NativeEndian.Uint64(b[at:])
}

// parseStats reads a TCA_STATS2 attribute.
func parseStats(b []byte) (s Stats) {
	_ = nldump.Attributes(b, func(kind uint16, v []byte) {
		switch kind {
		case tcaStatsBasic:
			s.Bytes = u64(v, 0)
			if s.Packets == 0 {
				s.Packets = uint64(u32(v, 8))
			}
		case tcaStatsPkt64:
			s.Packets = u64(v, 0)
		case tcaStatsQueue:
			s.Queued, s.Backlog, s.Drops = u32(v, 0), u32(v, 4), u32(v, 8)
		}
	})
	return s
}

// Qdiscs lists the qdiscs of an interface.
func (c *Conn) Qdiscs(link int) ([]Qdisc, error) {
	all, err := c.AllQdiscs(nil)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(q Qdisc) bool { return q.Link != link }), nil
}

// AllQdiscs lists the qdiscs of every interface, ingress and clsact among them,
// appending to into, which may be nil or an earlier answer cut to no length.
func (c *Conn) AllQdiscs(into []Qdisc) ([]Qdisc, error) {
	err := c.dumps.Dump(unix.RTM_GETQDISC, tcmsg(0, 0, 0, 0), func(_ uint16, data []byte) error {
		if len(data) < sizeofTcmsg {
			return nldump.ErrShort
		}
		q, err := parseQdisc(data)
		if err != nil {
			return fmt.Errorf("interface %d: %w", q.Link, err)
		}
		into = append(into, q)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list qdiscs: %w", err)
	}
	return into, nil
}

// kinds are the usual qdiscs: their names need no memory of their own.
var kinds = [...]string{"noqueue", "pfifo_fast", "fq_codel", "fq", "mq", "clsact", "ingress", "htb", "tbf", "pfifo", "bfifo"}

func kindOf(b []byte) string {
	name := bytes.TrimRight(b, "\x00")
	for _, k := range kinds {
		if string(name) == k {
			return k
		}
	}
	return string(name)
}

func parseQdisc(b []byte) (Qdisc, error) {
	q := Qdisc{Link: int(u32(b, 4)), Handle: Handle(u32(b, 8)), Parent: Handle(u32(b, 12))}
	var options []byte
	err := nldump.Attributes(b[sizeofTcmsg:], func(kind uint16, v []byte) {
		switch kind {
		case unix.TCA_KIND:
			q.Kind = kindOf(v)
		case unix.TCA_OPTIONS:
			options = v
		case unix.TCA_STATS2:
			q.Stats = parseStats(v)
		}
	})
	switch q.Kind {
	case "pfifo", "bfifo":
		q.Limit = u32(options, 0)
	case "htb":
		err = errors.Join(err, nldump.Attributes(options, func(kind uint16, v []byte) {
			if kind == tcaHTBInit {
				q.Default = u32(v, 8)
			}
		}))
	}
	return q, err
}

// Classes lists the classes of an interface, appending to into, which may be
// nil or an earlier answer cut to no length.
func (c *Conn) Classes(link int, into []Class) ([]Class, error) {
	err := c.dumps.Dump(unix.RTM_GETTCLASS, tcmsg(link, 0, 0, 0), func(_ uint16, data []byte) error {
		k, err := parseClass(data)
		into = append(into, k)
		return err
	})
	if err != nil {
		return into, fmt.Errorf("list classes of interface %d: %w", link, err)
	}
	return into, nil
}

// Class reads one class; ENOENT if there is none.
func (c *Conn) Class(link int, handle Handle) (k Class, err error) {
	// The kernel answers by an echo.
	err = c.dumps.Ask(unix.RTM_GETTCLASS, unix.NLM_F_ECHO, tcmsg(link, handle, 0, 0), func(_ uint16, data []byte) (err error) {
		k, err = parseClass(data)
		return err
	})
	if err != nil {
		return Class{}, fmt.Errorf("read class %s of interface %d: %w", handle, link, err)
	}
	return k, nil
}

func parseClass(b []byte) (Class, error) {
	if len(b) < sizeofTcmsg {
		return Class{}, nldump.ErrShort
	}
	k := Class{Link: int(u32(b, 4)), Handle: Handle(u32(b, 8)), Parent: Handle(u32(b, 12)), Leaf: Handle(u32(b, 16))}
	var options []byte
	err := nldump.Attributes(b[sizeofTcmsg:], func(kind uint16, v []byte) {
		switch kind {
		case unix.TCA_KIND:
			if string(v) == "htb\x00" {
				k.Kind = "htb" // a constant: no allocation
			} else {
				k.Kind = text(v)
			}
		case unix.TCA_OPTIONS:
			options = v
		case unix.TCA_STATS2:
			k.Stats = parseStats(v)
		}
	})
	if err != nil || k.Kind != "htb" {
		return k, err
	}
	var ticks uint32
	err = nldump.Attributes(options, func(kind uint16, v []byte) {
		switch kind {
		case tcaHTBParms:
			if len(v) < sizeofHTBOpt {
				return
			}
			k.Rate, k.Ceil = max(k.Rate, uint64(u32(v, 8))), max(k.Ceil, uint64(u32(v, sizeofRateSpec+8)))
			ticks = u32(v, 2*sizeofRateSpec)
			k.Quantum, k.Prio = u32(v, 2*sizeofRateSpec+8), u32(v, 2*sizeofRateSpec+16)
		case tcaHTBRate64:
			k.Rate = u64(v, 0)
		case tcaHTBCeil64:
			k.Ceil = u64(v, 0)
		}
	})
	k.Burst = ticksBurst(ticks, k.Rate)
	return k, err
}

// Filters lists the filters below a parent.
func (c *Conn) Filters(link int, parent Handle) ([]Filter, error) {
	msgs, err := c.execute(unix.RTM_GETTFILTER, netlink.Dump, tcmsg(link, 0, parent, 0))
	if err != nil {
		return nil, fmt.Errorf("list filters of interface %d: %w", link, err)
	}
	var out []Filter
	for _, m := range msgs {
		if len(m.Data) < sizeofTcmsg {
			return nil, fmt.Errorf("parse filter of interface %d: %w", link, nldump.ErrShort)
		}
		f, err := parseFilter(m.Data)
		if err != nil {
			return nil, fmt.Errorf("parse filter of interface %d: %w", link, err)
		}
		if f.Handle != 0 { // what has none is the list's head
			out = append(out, f)
		}
	}
	return out, nil
}

func parseFilter(b []byte) (Filter, error) {
	f := Filter{
		Link: int(u32(b, 4)), Handle: u32(b, 8), Parent: Handle(u32(b, 12)), Priority: uint16(u32(b, 16) >> 16),
	}
	var options []byte
	err := nldump.Attributes(b[sizeofTcmsg:], func(kind uint16, v []byte) {
		switch kind {
		case unix.TCA_KIND:
			f.Kind = text(v)
		case unix.TCA_OPTIONS:
			options = v
		}
	})
	if err != nil || f.Kind != "bpf" {
		return f, err
	}
	return f, nldump.Attributes(options, func(kind uint16, v []byte) {
		switch kind {
		case tcaBPFName:
			f.Name = text(v)
		case tcaBPFID:
			f.Program = u32(v, 0)
		case tcaBPFFlags:
			f.Direct = u32(v, 0)&tcaBPFFlagActDirect != 0
		case tcaBPFAct:
			f.Redirect = redirectOf(v)
		}
	})
}

// redirectOf returns the target of the first mirred action of a list, or 0.
func redirectOf(list []byte) (target int) {
	_ = nldump.Attributes(list, func(_ uint16, action []byte) {
		_ = nldump.Attributes(action, func(kind uint16, options []byte) {
			if kind != tcaActOptions {
				return
			}
			_ = nldump.Attributes(options, func(kind uint16, v []byte) {
				if kind == tcaMirredParms && target == 0 {
					target = int(u32(v, 24))
				}
			})
		})
	})
	return target
}
