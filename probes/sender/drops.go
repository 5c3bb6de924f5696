package sender

import "slices"

// drops are what a socket's drop counter tells, each to explain one loss.
//
// Probes of many targets share a socket, and their deadlines come in another order
// than they were sent in, so what is not explained yet is not one range.
type drops struct {
	seen uint32 // the counter, as last read
	free []span // drops that explain no loss yet, the oldest first
}

// span is the drops that took the counter from begin to end.
type span struct{ begin, end uint32 }

// maxSpans bounds what is remembered of drops that no loss has asked for, because they
// hit duplicates and datagrams of others.
const maxSpans = 64

// note takes a reading of the counter; readings may come late.
func (d *drops) note(counter uint32) {
	if int32(counter-d.seen) <= 0 {
		return
	}
	if n := len(d.free); n > 0 && d.free[n-1].end == d.seen {
		d.free[n-1].end = counter
	} else {
		d.free = append(d.free, span{d.seen, counter})
	}
	d.seen = counter
	d.bound()
}

func (d *drops) bound() {
	if len(d.free) > maxSpans {
		d.free = slices.Delete(d.free, 0, 1)
	}
}

// take attributes to a loss the oldest drop since the counter had a value, if there is
// one that explains no other.
func (d *drops) take(since uint32) bool {
	for i := range d.free {
		s := &d.free[i]
		if int32(s.end-since) <= 0 {
			continue
		}
		switch at := since; {
		case int32(at-s.begin) <= 0: // all of it is since then
			s.begin++
			if s.begin == s.end {
				d.free = slices.Delete(d.free, i, i+1)
			}
		case at+1 == s.end:
			s.end--
		default:
			d.free = slices.Insert(d.free, i+1, span{at + 1, s.end})
			d.free[i].end = at
			d.bound()
		}
		return true
	}
	return false
}
