package scheduling

import "vigia/internal/bpf/vport"

// limitClasses is how many classes of limits there may be at once on a node.
const limitClasses = vport.Shapes

// classIDs hands out the minor numbers of limits' classes, each to one limit at a
// time. It goes round: a number that was returned comes again as late as possible,
// because the kernel may still hold what names it.
type classIDs struct {
	taken [limitClasses / 64]uint64
	next  int
	used  int
}

// take returns a minor number that nobody has; false if there is none.
func (c *classIDs) take() (uint16, bool) {
	if c.used == limitClasses {
		return 0, false
	}
	for c.has(c.next) {
		c.next = (c.next + 1) % limitClasses
	}
	id := c.next
	c.taken[id/64] |= 1 << (id % 64)
	c.used++
	c.next = (id + 1) % limitClasses
	return vport.FirstShape + uint16(id), true
}

// release takes a minor number back. One that nobody has changes nothing.
func (c *classIDs) release(minor uint16) {
	if id := int(minor) - vport.FirstShape; id >= 0 && id < limitClasses && c.has(id) {
		c.taken[id/64] &^= 1 << (id % 64)
		c.used--
	}
}

// skip makes numbers beyond minor come first: one of a process that is gone has it,
// and limits in the kernel may still name it.
func (c *classIDs) skip(minor uint16) {
	if id := int(minor) - vport.FirstShape; id >= c.next && id < limitClasses {
		c.next = (id + 1) % limitClasses
	}
}

func (c *classIDs) has(id int) bool { return c.taken[id/64]&(1<<(id%64)) != 0 }
