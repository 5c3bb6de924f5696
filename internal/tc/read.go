package tc

import (
	"bytes"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
)

// parseStats reads a TCA_STATS2 attribute.
func parseStats(b []byte, err *error) (s Stats) {
	for kind, v := range netlink.Attributes(b, 0, err) {
		switch kind {
		case tcaStatsBasic:
			s.Bytes = netlink.Uint64(v, 0)
			if s.Packets == 0 {
				s.Packets = uint64(netlink.Uint32(v, 8))
			}
		case tcaStatsPkt64:
			s.Packets = netlink.Uint64(v, 0)
		case tcaStatsQueue:
			s.Queued, s.Backlog, s.Drops = netlink.Uint32(v, 0), netlink.Uint32(v, 4), netlink.Uint32(v, 8)
		}
	}
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
	err := c.socket.Dump(unix.RTM_GETQDISC, tcmsg(0, 0, 0, 0), func(_ uint16, data []byte) error {
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

// kindOf returns a kind's name, those of usual qdiscs without memory of their own.
func kindOf(b []byte) string {
	name := bytes.TrimRight(b, "\x00")
	switch string(name) {
	case "noqueue":
		return "noqueue"
	case "pfifo_fast":
		return "pfifo_fast"
	case "fq_codel":
		return "fq_codel"
	case "fq":
		return "fq"
	case "mq":
		return "mq"
	case "clsact":
		return "clsact"
	case "ingress":
		return "ingress"
	case "htb":
		return "htb"
	case "tbf":
		return "tbf"
	case "pfifo":
		return "pfifo"
	case "bfifo":
		return "bfifo"
	}
	return string(name)
}

func parseQdisc(b []byte) (q Qdisc, err error) {
	q = Qdisc{Link: int(netlink.Uint32(b, 4)), Handle: Handle(netlink.Uint32(b, 8)), Parent: Handle(netlink.Uint32(b, 12))}
	var options []byte
	for kind, v := range netlink.Attributes(b, sizeofTcmsg, &err) {
		switch kind {
		case unix.TCA_KIND:
			q.Kind = kindOf(v)
		case unix.TCA_OPTIONS:
			options = v
		case unix.TCA_STATS2:
			q.Stats = parseStats(v, &err)
		}
	}
	switch q.Kind {
	case "pfifo", "bfifo":
		q.Limit = netlink.Uint32(options, 0)
	case "htb":
		for kind, v := range netlink.Attributes(options, 0, &err) {
			if kind == tcaHTBInit {
				q.Default = netlink.Uint32(v, 8)
			}
		}
	}
	return q, err
}

// Classes lists the classes of an interface, appending to into, which may be
// nil or an earlier answer cut to no length.
func (c *Conn) Classes(link int, into []Class) ([]Class, error) {
	err := c.socket.Dump(unix.RTM_GETTCLASS, tcmsg(link, 0, 0, 0), func(_ uint16, data []byte) error {
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
	err = c.socket.Ask(unix.RTM_GETTCLASS, unix.NLM_F_ECHO, tcmsg(link, handle, 0, 0), func(_ uint16, data []byte) (err error) {
		k, err = parseClass(data)
		return err
	})
	if err != nil {
		return Class{}, fmt.Errorf("read class %s of interface %d: %w", handle, link, err)
	}
	return k, nil
}

func parseClass(b []byte) (k Class, err error) {
	k = Class{
		Link: int(netlink.Uint32(b, 4)), Handle: Handle(netlink.Uint32(b, 8)),
		Parent: Handle(netlink.Uint32(b, 12)), Leaf: Handle(netlink.Uint32(b, 16)),
	}
	var options []byte
	for kind, v := range netlink.Attributes(b, sizeofTcmsg, &err) {
		switch kind {
		case unix.TCA_KIND:
			k.Kind = kindOf(v)
		case unix.TCA_OPTIONS:
			options = v
		case unix.TCA_STATS2:
			k.Stats = parseStats(v, &err)
		}
	}
	if err != nil || k.Kind != "htb" {
		return k, err
	}
	var ticks uint32
	for kind, v := range netlink.Attributes(options, 0, &err) {
		switch kind {
		case tcaHTBParms:
			if len(v) < sizeofHTBOpt {
				continue
			}
			k.Rate = max(k.Rate, uint64(netlink.Uint32(v, 8)))
			k.Ceil = max(k.Ceil, uint64(netlink.Uint32(v, sizeofRateSpec+8)))
			ticks = netlink.Uint32(v, 2*sizeofRateSpec)
			k.Quantum, k.Prio = netlink.Uint32(v, 2*sizeofRateSpec+8), netlink.Uint32(v, 2*sizeofRateSpec+16)
		case tcaHTBRate64:
			k.Rate = netlink.Uint64(v, 0)
		case tcaHTBCeil64:
			k.Ceil = netlink.Uint64(v, 0)
		}
	}
	k.Burst = ticksBurst(ticks, k.Rate)
	return k, err
}

// Filters lists the filters below a parent.
func (c *Conn) Filters(link int, parent Handle) ([]Filter, error) {
	var out []Filter
	err := c.socket.Dump(unix.RTM_GETTFILTER, tcmsg(link, 0, parent, 0), func(_ uint16, data []byte) error {
		f, err := parseFilter(data)
		if f.Handle != 0 { // what has none is the list's head
			out = append(out, f)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list filters of interface %d: %w", link, err)
	}
	return out, nil
}

func parseFilter(b []byte) (f Filter, err error) {
	f = Filter{
		Link: int(netlink.Uint32(b, 4)), Handle: netlink.Uint32(b, 8), Parent: Handle(netlink.Uint32(b, 12)),
		Priority: uint16(netlink.Uint32(b, 16) >> 16),
	}
	var options []byte
	for kind, v := range netlink.Attributes(b, sizeofTcmsg, &err) {
		switch kind {
		case unix.TCA_KIND:
			f.Kind = netlink.Text(v)
		case unix.TCA_OPTIONS:
			options = v
		}
	}
	if err != nil || f.Kind != "bpf" {
		return f, err
	}
	for kind, v := range netlink.Attributes(options, 0, &err) {
		switch kind {
		case tcaBPFName:
			f.Name = netlink.Text(v)
		case tcaBPFID:
			f.Program = netlink.Uint32(v, 0)
		case tcaBPFFlags:
			f.Direct = netlink.Uint32(v, 0)&tcaBPFFlagActDirect != 0
		case tcaBPFAct:
			f.Redirect = redirectOf(v, &err)
		}
	}
	return f, err
}

// redirectOf returns the target of the first mirred action of a list, or 0.
func redirectOf(list []byte, err *error) (target int) {
	for _, action := range netlink.Attributes(list, 0, err) {
		for kind, options := range netlink.Attributes(action, 0, err) {
			if kind != tcaActOptions {
				continue
			}
			for kind, v := range netlink.Attributes(options, 0, err) {
				if kind == tcaMirredParms && target == 0 {
					target = int(netlink.Uint32(v, 24))
				}
			}
		}
	}
	return target
}
