package fastloop

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/bpf/classify"
	"vigia/internal/tc"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/scheduling"
)

// linkState is one uplink as the receiver sees it.
type linkState struct {
	scheduling.Link
	ifb      int
	receiver *control.Receiver
	rows     []row                  // of its ingress classes
	at       map[uint32]int         // in rows, by class
	listed   []int                  // in rows, of each of the arrivals listed last; -1 for what is another link's
	active   []int                  // in rows, of classes that have moved since they were last read
	moved    []control.ClassReading // of them, and of those that are not there
	classes  []tc.Class             // all of them, when they were last read together
	polled   time.Time
	arrived  uint64 // bytes, when it was last polled
}

// row is what was last read of a class.
type row struct {
	id      uint32
	counted uint32 // what the classifier calls it
	arrived uint64 // as of now; what is in reading is as of the last reading of the queue
	known   bool   // reading is one: the class is there
	listed  bool   // the class is among those that were listed just now
	reading control.Reading
}

// refresh is Refresh with the lock held.
func (l *Loop) refresh() {
	desired := l.scheduler.Desired()
	list := desired.Contracts.All()
	classes := make(map[uint32]control.ClassConfig, len(list)+1)
	classes[scheduling.DefaultClass] = control.ClassConfig{}
	clear(l.owners)
	for i := range list {
		c := &list[i]
		classes[desired.ReceiveClass(c.Owner)] = control.ClassConfig{
			Tenant: c.Tenant, GuaranteeBytesPerSecond: c.Receive.GuaranteeBytesPerSecond,
		}
		l.owners[desired.ReceiveClass(c.Owner)] = l.directory.of(c.Tenant)
	}
	old := map[string]*linkState{}
	for _, s := range l.links {
		old[s.Device] = s
	}
	l.links = make([]*linkState, 0, len(desired.Links))
	for _, link := range desired.Links {
		s := old[link.Device]
		if s == nil || s.Link != link {
			s = &linkState{
				Link: link, receiver: control.NewReceiver(l.config.Variant, link.Limit(), link.DropThreshold()),
			}
		}
		s.receiver.SetClasses(classes)
		s.setClasses(classes)
		l.links = append(l.links, s)
	}
}

// setClasses begins anew with so many classes: the device may have been made anew, too.
func (s *linkState) setClasses(classes map[uint32]control.ClassConfig) {
	s.ifb, s.rows, s.at, s.listed = 0, make([]row, 0, len(classes)), make(map[uint32]int, len(classes)), s.listed[:0]
	for id := range classes {
		s.at[counted(id)] = len(s.rows)
		s.rows = append(s.rows, row{id: id, counted: counted(id)})
	}
}

// forgetDevice has the link's IFB device looked up again.
func (s *linkState) forgetDevice() {
	s.ifb = 0
	s.forgetReadings()
}

// forgetReadings has every class read again.
func (s *linkState) forgetReadings() {
	for i := range s.rows {
		r := &s.rows[i]
		*r = row{id: r.id, counted: r.counted}
	}
}

// linkRate returns the rate of the node's links together, in bytes per second.
func (l *Loop) linkRate() (sum float64) {
	for _, s := range l.links {
		sum += float64(s.RateBytesPerSecond)
	}
	return sum
}

// wakes polls an idle link now and then. It reads only what has arrived, which is one
// system call without Go's poller: only when the link is half full are queues worth
// reading.
func (l *Loop) wakes(now time.Time, s *linkState) bool {
	elapsed := now.Sub(s.polled)
	if elapsed < idlePoll-control.Tick/2 || l.find(s) != nil {
		return false
	}
	s.polled = now
	if err := l.readArrivals(); err != nil {
		l.logger.Debug("cannot read arrivals", "device", s.Device, "err", err)
		return false
	}
	var arrived uint64
	for i := range l.arrivals {
		if a := &l.arrivals[i]; a.Link == s.ifb {
			arrived += a.Bytes
		}
	}
	more := arrived - s.arrived
	s.arrived = arrived
	if float64(more) <= elapsed.Seconds()*float64(s.Limit())/2 {
		return false
	}
	s.forgetReadings()
	s.receiver.Wake(now)
	return true
}

func (l *Loop) readArrivals() (err error) {
	l.arrivals, err = l.programs.Arrivals(l.arrivals[:0])
	return err
}

// find looks the link's IFB device up.
func (l *Loop) find(s *linkState) error {
	if s.ifb != 0 {
		return nil
	}
	uplink, err := l.conn.LinkIndex(s.Device)
	if err != nil {
		return err
	}
	s.ifb, err = l.conn.LinkIndex(scheduling.IFBName(uplink))
	return err
}

// read takes the readings of a link's ingress classes.
func (l *Loop) read(s *linkState) error {
	if err := l.find(s); err != nil {
		return err
	}
	// Arrivals first: what comes between the two readings must not look lost.
	if err := l.readArrivals(); err != nil {
		return err
	}
	s.arrive(l.arrivals)
	active := s.active[:0]
	for i := range s.rows {
		if r := &s.rows[i]; !r.known || r.arrived != r.reading.Arrived || r.reading.Waiting > 0 { // nothing else can have moved
			r.reading.Arrived = r.arrived
			active = append(active, i)
		}
	}
	s.active = active
	if single(len(active), len(s.rows)) {
		return l.readEach(s)
	}
	return l.readAll(s)
}

// arrive takes what has arrived into the rows.
func (s *linkState) arrive(arrivals []classify.ClassArrival) {
	for len(s.listed) < len(arrivals) {
		s.listed = append(s.listed, -1)
	}
	for i := range arrivals {
		a := &arrivals[i]
		if a.Link != s.ifb {
			continue
		}
		at := s.listed[i] // the order seldom changes
		if at < 0 || s.rows[at].counted != a.ID {
			var known bool
			if at, known = s.at[a.ID]; !known {
				continue
			}
			s.listed[i] = at
		}
		s.rows[at].arrived = a.Bytes
	}
}

// counted returns what the classifier calls a class: 0 for what it does not know.
func counted(class uint32) uint32 {
	if class == scheduling.DefaultClass {
		return 0
	}
	return class
}

// single reports whether so many of all classes are cheaper to read one by one than all at
// once: one takes as long as four or five of a list, whatever their number (BenchmarkReads);
// with thousands a list takes longer yet.
func single(active, all int) bool { return active <= max(8, all/5) }

func (r *row) put(k *tc.Class) {
	r.reading.Left, r.reading.Waiting = k.Stats.Bytes, uint64(k.Stats.Backlog)
}

// lowerEffort waits apart and arrives as what belongs to no contract: both queues have one reading.
const lowerEffort = tc.Handle(classify.LowerEffort)

// putLower adds what waits as lower effort to the reading of the default class.
func (r *row) putLower(k *tc.Class) {
	r.reading.Left += k.Stats.Bytes
	r.reading.Waiting += uint64(k.Stats.Backlog)
}

// tell puts a row among those that the receiver is told of.
func (s *linkState) tell(r *row) {
	if !r.known {
		r.reading = control.Reading{}
	}
	s.moved = append(s.moved, control.ClassReading{ID: r.id, Reading: r.reading, Absent: !r.known})
}

// readEach reads the queues of the classes that are in use. One that is not there has no
// reading: what was for it goes to the default class, and nothing can be told of its losses.
func (l *Loop) readEach(s *linkState) error {
	s.moved = s.moved[:0]
	for _, i := range s.active {
		r := &s.rows[i]
		k, err := l.conn.Class(s.ifb, tc.Handle(r.id))
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		if r.known = err == nil; r.known {
			r.put(&k)
		}
		if r.known && r.id == scheduling.DefaultClass {
			lower, err := l.conn.Class(s.ifb, lowerEffort)
			if err == nil {
				r.putLower(&lower)
			} else if !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		s.tell(r)
	}
	return s.someThere()
}

// someThere fails if the device has none of the classes: it is another one by now.
func (s *linkState) someThere() error {
	for i := range s.rows {
		if s.rows[i].known {
			return nil
		}
	}
	return fmt.Errorf("none of %d classes are there", len(s.rows))
}

// readAll reads the queues of all classes.
func (l *Loop) readAll(s *linkState) (err error) {
	s.moved = s.moved[:0]
	if s.classes, err = l.conn.Classes(s.ifb, s.classes[:0]); err != nil {
		return err
	}
	var lower *tc.Class
	for i := range s.classes {
		k := &s.classes[i]
		if k.Handle == lowerEffort {
			lower = k
		} else if at, ours := s.at[counted(uint32(k.Handle))]; ours {
			s.rows[at].put(k)
			s.rows[at].listed = true
		}
	}
	if at, ours := s.at[counted(scheduling.DefaultClass)]; ours && s.rows[at].listed && lower != nil {
		s.rows[at].putLower(lower)
	}
	for i := range s.rows {
		r := &s.rows[i]
		gone := r.known && !r.listed
		r.known, r.listed = r.listed, false
		if gone {
			s.tell(r)
		}
	}
	for _, i := range s.active {
		s.tell(&s.rows[i])
	}
	return s.someThere()
}

// prune forgets arrivals of classes and devices that are gone, once there are any.
func (l *Loop) prune() {
	classes := 0
	for _, s := range l.links {
		if s.ifb == 0 {
			return
		}
		classes += len(s.rows)
	}
	if len(l.arrivals) <= classes {
		return
	}
	known := make(map[classify.Class]bool, classes)
	for _, s := range l.links {
		for i := range s.rows {
			known[classify.Class{Link: s.ifb, ID: s.rows[i].counted}] = true
		}
	}
	if err := l.programs.Prune(func(c classify.Class) bool { return known[c] }); err != nil {
		l.logger.Warn("cannot forget the arrivals of devices that are gone", "err", err)
	}
}
