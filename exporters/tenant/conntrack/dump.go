package conntrack

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"vigia/internal/netlink"
)

const (
	ctnetlink   = 1 // NFNL_SUBSYS_CTNETLINK
	ctGet       = 1 // IPCTNL_MSG_CT_GET
	ctaZone     = 18
	sizeofNfgen = 4
	maxEntries  = 8 << 20
)

// count reads the namespace's table of connections and counts entries by zone. The
// answer is read piece by piece: it may be hundreds of megabytes.
func count(ctx context.Context, name string) (map[uint16]int, error) {
	socket := netlink.New(name, unix.NETLINK_NETFILTER)
	defer socket.Close()
	counts, total := make(map[uint16]int), 0
	err := socket.Dump(ctnetlink<<8|ctGet, make([]byte, sizeofNfgen), func(_ uint16, entry []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if total++; total > maxEntries {
			return fmt.Errorf("the table has more than %d connections", maxEntries)
		}
		zone, err := zone(entry)
		counts[zone]++
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	return counts, nil
}

// zone finds CTA_ZONE among an entry's attributes; none is zone 0.
func zone(entry []byte) (zone uint16, err error) {
	for kind, value := range netlink.Attributes(entry, sizeofNfgen, &err) {
		if kind == ctaZone && len(value) >= 2 {
			zone = binary.BigEndian.Uint16(value)
		}
	}
	return zone, err
}
