// Package sockets opens sockets in network namespaces and keeps them open:
// what is not there yet is tried again in the background, and a namespace that
// was replaced by another of the same name is noticed.
package sockets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/probes/timestamping"
)

// RetryInterval is how often the sockets are checked in the background.
const RetryInterval = 2 * time.Second

// Key says where a socket is and how it sends.
type Key struct {
	Netns string // name, absolute path, or empty for our own
	Local netip.AddrPort

	Transport timestamping.Transport
	timestamping.Channel
}

// String names the socket for people.
func (k Key) String() string {
	name := k.Local.String()
	if k.Transport != timestamping.UDP {
		name = k.Transport.String() + " " + name
	}
	if k.Device != "" {
		name += " on device " + k.Device
	}
	if k.Netns != "" {
		name += " in network namespace " + k.Netns
	}
	return name
}

// Owner uses the sockets. Its methods are called one at a time.
type Owner interface {
	// Attach hands over a socket that has just been opened.
	Attach(Key, *timestamping.Socket)
	// Detach says that a socket is about to be closed. When it returns the
	// owner no longer uses it.
	Detach(Key, error)
}

// Keeper keeps the wanted sockets open.
type Keeper struct {
	options timestamping.Options
	owner   Owner
	logger  *slog.Logger

	mu      sync.Mutex
	entries map[Key]*entry
}

type entry struct {
	socket *timestamping.Socket // nil while it cannot be opened
	inode  uint64               // of its namespace
	err    error                // why it is not open
}

// NewKeeper returns a keeper that opens sockets with the options, except for the
// address.
func NewKeeper(options timestamping.Options, owner Owner, logger *slog.Logger) *Keeper {
	return &Keeper{options: options, owner: owner, logger: logger, entries: make(map[Key]*entry)}
}

// Change is a set of sockets that is ready to take the place of the present one.
// While it exists the keeper is locked; Commit or Discard ends that.
type Change struct {
	keeper *Keeper
	opened map[Key]*entry
	wanted map[Key]bool
}

// Prepare opens the wanted sockets that are not open yet. What only needs time,
// like a namespace that does not exist, is left to the background; anything else
// is an error and nothing has changed.
func (k *Keeper) Prepare(wanted []Key) (*Change, error) {
	k.mu.Lock()
	c := &Change{keeper: k, opened: make(map[Key]*entry), wanted: make(map[Key]bool)}
	for _, key := range wanted {
		if c.wanted[key] {
			continue
		}
		c.wanted[key] = true
		if k.entries[key] != nil {
			continue
		}
		e := k.open(key)
		c.opened[key] = e
		if e.err != nil && !Transient(e.err) {
			c.Discard()
			return nil, e.err
		}
	}
	return c, nil
}

// Opened calls fn for each socket of the change that is new: the socket, or why
// it is not open.
func (c *Change) Opened(fn func(Key, *timestamping.Socket, error)) {
	for key, e := range c.opened {
		fn(key, e.socket, e.err)
	}
}

// Removed calls fn for each present socket that is no longer wanted.
func (c *Change) Removed(fn func(Key)) {
	for key := range c.keeper.entries {
		if !c.wanted[key] {
			fn(key)
		}
	}
}

// Commit makes the change, after the owner has stopped using what Removed lists.
func (c *Change) Commit() {
	k := c.keeper
	defer k.mu.Unlock()
	c.Removed(func(key Key) {
		k.entries[key].close()
		delete(k.entries, key)
	})
	for key, e := range c.opened {
		k.entries[key] = e
		if e.err != nil {
			k.logger.Warn("cannot open a socket yet", "socket", key.String(), "err", e.err)
		}
	}
}

// Discard undoes the change.
func (c *Change) Discard() {
	defer c.keeper.mu.Unlock()
	for _, e := range c.opened {
		e.close()
	}
}

func (e *entry) close() {
	if e.socket != nil {
		e.socket.Close()
		e.socket = nil
	}
}

func (k *Keeper) open(key Key) *entry {
	options := k.options
	options.Local, options.Transport, options.Channel = key.Local, key.Transport, key.Channel
	if key.Netns == "" {
		s, err := timestamping.Open(options)
		return &entry{socket: s, err: err}
	}
	ns, err := netns.Open(key.Netns)
	if err != nil {
		return &entry{err: err}
	}
	defer ns.Close()
	e := &entry{}
	if e.inode, e.err = ns.Inode(); e.err != nil {
		return e
	}
	e.err = ns.Do(func() (err error) {
		e.socket, err = timestamping.Open(options)
		return err
	})
	if e.err != nil {
		e.err = fmt.Errorf("network namespace %s: %w", key.Netns, e.err)
	}
	return e
}

// Transient reports whether an error of opening a socket may go away by itself:
// the namespace, the device or the address is not there (yet).
func Transient(err error) bool {
	for _, t := range []error{fs.ErrNotExist, unix.EADDRNOTAVAIL, unix.ENODEV, unix.ENETDOWN} {
		if errors.Is(err, t) {
			return true
		}
	}
	// The file of a namespace that is just being made is not a namespace.
	var errno unix.Errno
	return errors.As(err, &errno) && errno == unix.EINVAL
}

// Run checks the sockets until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	ticker := time.NewTicker(RetryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			k.Check()
		}
	}
}

// Check tries to open what is not open, and closes sockets whose namespace
// is gone, so that they do not keep it alive.
func (k *Keeper) Check() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, e := range k.entries {
		if e.socket != nil {
			if err := e.verify(key); err != nil {
				k.logger.Warn("cannot keep a socket; it is closed", "socket", key.String(), "err", err)
				k.owner.Detach(key, err)
				e.close()
				e.err = err
			}
		}
		if e.socket == nil {
			k.reopen(key)
		}
	}
}

func (k *Keeper) reopen(key Key) {
	e := k.open(key)
	k.entries[key] = e
	if e.socket != nil {
		k.logger.Info("socket is open", "socket", key.String())
		k.owner.Attach(key, e.socket)
	}
}

// verify checks that the socket's namespace still goes by its name.
func (e *entry) verify(key Key) error {
	if key.Netns == "" {
		return nil
	}
	path, err := netns.Path(key.Netns)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("network namespace %s is gone: %w", key.Netns, err)
	}
	if st.Ino != e.inode {
		return fmt.Errorf("network namespace %s was replaced by another", key.Netns)
	}
	return nil
}

// Err returns why a socket is not open, or nil when all are.
func (k *Keeper) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for key, e := range k.entries {
		if e.err != nil {
			errs = append(errs, fmt.Errorf("socket %s is not open: %w", key, e.err))
		}
	}
	return errors.Join(errs...)
}

// Close closes every socket. The owner must not use them any more.
func (k *Keeper) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, e := range k.entries {
		e.close()
		delete(k.entries, key)
	}
}
