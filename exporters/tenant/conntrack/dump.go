package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
)

const (
	ctnetlink    = 1 // NFNL_SUBSYS_CTNETLINK
	ctGet        = 1 // IPCTNL_MSG_CT_GET
	ctaZone      = 18
	sizeofNfgen  = 4
	bufferSize   = 256 << 10
	receiveLimit = 2 * time.Second
	maxEntries   = 8 << 20
)

// count reads the namespace's table of connections and counts entries by zone. The
// answer is read piece by piece: it may be hundreds of megabytes.
func count(ctx context.Context, name string) (map[uint16]int, error) {
	var fd int
	err := netns.Do(name, func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open ctnetlink socket: %w", err)
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(int64(receiveLimit))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return nil, fmt.Errorf("set up ctnetlink socket: %w", err)
	}
	req := make([]byte, unix.SizeofNlMsghdr+sizeofNfgen)
	binary.NativeEndian.PutUint32(req, uint32(len(req)))
	binary.NativeEndian.PutUint16(req[4:], ctnetlink<<8|ctGet)
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("ask for connections: %w", err)
	}
	counts := make(map[uint16]int)
	buffer := make([]byte, bufferSize)
	for total := 0; total < maxEntries; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("receive connections: %w", err)
		}
		more, done, err := tally(buffer[:n], counts)
		if err != nil || done {
			return counts, err
		}
		total += more
	}
	return nil, fmt.Errorf("the table has more than %d connections", maxEntries)
}

var errShort = errors.New("a netlink message is cut short")

// tally counts the entries of one piece; done tells that it was the last.
func tally(b []byte, counts map[uint16]int) (entries int, done bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		length := int(binary.NativeEndian.Uint32(b))
		if length < unix.SizeofNlMsghdr || length > len(b) {
			return entries, false, errShort
		}
		body := b[unix.SizeofNlMsghdr:length]
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return entries, true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return entries, false, errShort
			}
			if code := int32(binary.NativeEndian.Uint32(body)); code != 0 {
				return entries, false, fmt.Errorf("the kernel refuses to list connections: %w", unix.Errno(-code))
			}
			return entries, true, nil
		case ctnetlink<<8 | ctGet, ctnetlink << 8: // answers are IPCTNL_MSG_CT_NEW
			zone, err := zone(body)
			if err != nil {
				return entries, false, err
			}
			counts[zone]++
			entries++
		}
		b = b[min(len(b), (length+3)&^3):]
	}
	return entries, false, nil
}

// zone finds CTA_ZONE among an entry's attributes; none is zone 0.
func zone(body []byte) (uint16, error) {
	if len(body) < sizeofNfgen {
		return 0, errShort
	}
	for b := body[sizeofNfgen:]; len(b) >= 4; {
		length := int(binary.NativeEndian.Uint16(b))
		if length < 4 || length > len(b) {
			return 0, errShort
		}
		if binary.NativeEndian.Uint16(b[2:])&0x3fff == ctaZone && length >= 6 {
			return binary.BigEndian.Uint16(b[4:]), nil
		}
		b = b[min(len(b), (length+3)&^3):]
	}
	return 0, nil
}
