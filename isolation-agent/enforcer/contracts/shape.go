package contracts

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"vigia/internal/tc"
)

type shapeKey struct {
	device int
	minor  uint16
}

// A shaper's queue is bounded in bytes: room for four of the largest datagrams,
// so that one that travels in fragments is delayed whole and not cut.
const shapeQueue = 4 * 64 << 10

// ErrNoShape means that a limit cannot be shaped here: the node has no links, or
// the contract none of its classes.
var ErrNoShape = errors.New("no scheduler of an uplink could shape it")

// Shape makes, or changes, a class on every uplink that holds what is sent to it
// to a rate, below the class of a contract. It returns the class as major:minor.
func (k *Keeper) Shape(contract string, id uint16, rate uint64) (uint32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	minor, known := Minors(k.contracts)[contract]
	if !known || len(k.links) == 0 || id >= shapes {
		return 0, ErrNoShape
	}
	handle := tc.MakeHandle(Major, shapeMinor+id)
	for i := range k.links {
		device, err := k.conn.LinkIndex(k.links[i].Device)
		if err != nil {
			return 0, fmt.Errorf("shape %s: %w", contract, err)
		}
		rates := Rates{Guarantee: ownShare(rate), Ceiling: min(rate, k.links[i].Limit())}
		l := newLeaf(class(device, tc.MakeHandle(Major, minor), handle.Minor(), rates, frame), "bfifo", shapeQueue)
		if err := k.conn.ReplaceClass(l.class); err != nil {
			return 0, fmt.Errorf("shape %s: %w", contract, err)
		}
		key := shapeKey{device, handle.Minor()}
		if _, made := k.shapes[key]; !made {
			if err := k.conn.ReplaceQdisc(l.queue); err != nil {
				return 0, errors.Join(fmt.Errorf("shape %s: %w", contract, err), k.conn.DeleteClass(device, handle))
			}
		}
		k.shapes[key] = l
	}
	return uint32(handle), nil
}

// Unshape removes the classes of a limit. Without any it changes nothing.
func (k *Keeper) Unshape(id uint16) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for key, l := range k.shapes {
		if key.minor != shapeMinor+id {
			continue
		}
		delete(k.shapes, key)
		if err := k.conn.DeleteClass(key.device, l.class.Handle); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: the qdisc is gone
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
