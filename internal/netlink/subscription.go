package netlink

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Subscription hears of changes that the kernel tells everybody of. What they are is
// not read: who hears of one lists anew what is there.
type Subscription struct {
	file   *os.File
	buffer []byte
}

// Subscribe joins multicast groups of a netlink family, given as bits (group n is bit
// n-1), in the namespace given by name or path; empty means the process's own.
func Subscribe(nameOrPath string, family int, groups uint32) (*Subscription, error) {
	fd, err := socket(nameOrPath, family, unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(fmt.Errorf("join netlink groups %#x: %w", groups, err), unix.Close(fd))
	}
	return &Subscription{file: os.NewFile(uintptr(fd), "netlink"), buffer: make([]byte, bufferSize)}, nil
}

// Wait returns nil after a change, also when the kernel had to drop what it would have
// told. It returns os.ErrClosed after Close, which may be called meanwhile.
func (s *Subscription) Wait() error {
	_, err := s.file.Read(s.buffer)
	if errors.Is(err, unix.ENOBUFS) {
		return nil // changes that were not heard of are changes
	}
	return err
}

// Close ends the subscription.
func (s *Subscription) Close() error { return s.file.Close() }
