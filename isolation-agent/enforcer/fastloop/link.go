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
	ids      []uint32 // of its ingress classes
	readings map[uint32]control.Reading
	active   []uint32   // classes that have moved since they were last read
	classes  []tc.Class // all of them, when they were last read together
	polled   time.Time
	arrived  uint64 // bytes, when it was last polled
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
				Link: link, readings: map[uint32]control.Reading{},
				receiver: control.NewReceiver(l.config.Variant, link.Limit(), link.DropThreshold()),
			}
		}
		s.forgetDevice() // it may have been made anew
		s.receiver.SetClasses(classes)
		s.ids = s.ids[:0]
		for id := range classes {
			s.ids = append(s.ids, id)
		}
		l.links = append(l.links, s)
	}
}

// forgetDevice has the link's IFB device looked up again.
func (s *linkState) forgetDevice() {
	s.ifb = 0
	clear(s.readings)
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
	clear(l.arrivals)
	if err := l.programs.Arrivals(l.arrivals); err != nil {
		l.logger.Debug("cannot read arrivals", "device", s.Device, "err", err)
		return false
	}
	var arrived uint64
	for class, a := range l.arrivals {
		if class.Link == s.ifb {
			arrived += a.Bytes
		}
	}
	more := arrived - s.arrived
	s.arrived = arrived
	if float64(more) <= elapsed.Seconds()*float64(s.Limit())/2 {
		return false
	}
	clear(s.readings)
	s.receiver.Wake(now)
	return true
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
	clear(l.arrivals)
	if err := l.programs.Arrivals(l.arrivals); err != nil {
		return err
	}
	active := s.active[:0]
	for _, id := range s.ids {
		r, known := s.readings[id]
		arrived := l.arrivals[classify.Class{Link: s.ifb, ID: counted(id)}].Bytes
		if !known || arrived != r.Arrived || r.Waiting > 0 { // nothing else can have moved
			active = append(active, id)
		}
		r.Arrived = arrived
		s.readings[id] = r
	}
	s.active = active
	if single(len(active), len(s.ids)) {
		return l.readEach(s)
	}
	return l.readAll(s)
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

func (s *linkState) put(k *tc.Class) {
	r := s.readings[uint32(k.Handle)]
	r.Left, r.Waiting = k.Stats.Bytes, uint64(k.Stats.Backlog)
	s.readings[uint32(k.Handle)] = r
}

// readEach reads the queues of the classes that are in use. One that is not there has no
// reading: what was for it goes to the default class, and nothing can be told of its losses.
func (l *Loop) readEach(s *linkState) error {
	for _, id := range s.active {
		k, err := l.conn.Class(s.ifb, tc.Handle(id))
		if errors.Is(err, unix.ENOENT) {
			delete(s.readings, id)
			continue
		}
		if err != nil {
			return err
		}
		s.put(&k)
		if id == scheduling.DefaultClass {
			lower, err := l.conn.Class(s.ifb, lowerEffort)
			if err == nil {
				s.putLower(&lower)
			} else if !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	}
	return s.someThere()
}

// lowerEffort waits apart and arrives as what belongs to no contract: both queues have one reading.
const lowerEffort = tc.Handle(classify.LowerEffort)

// putLower adds what waits as lower effort to the reading of the default class.
func (s *linkState) putLower(k *tc.Class) {
	r := s.readings[scheduling.DefaultClass]
	r.Left += k.Stats.Bytes
	r.Waiting += uint64(k.Stats.Backlog)
	s.readings[scheduling.DefaultClass] = r
}

// someThere fails if the device has none of the classes: it is another one by now.
func (s *linkState) someThere() error {
	if len(s.readings) == 0 {
		return fmt.Errorf("none of %d classes are there", len(s.ids))
	}
	return nil
}

// readAll reads the queues of all classes.
func (l *Loop) readAll(s *linkState) (err error) {
	if s.classes, err = l.conn.Classes(s.ifb, s.classes[:0]); err != nil {
		return err
	}
	found := 0
	var lower *tc.Class
	for i := range s.classes {
		k := &s.classes[i]
		if _, ours := s.readings[uint32(k.Handle)]; ours {
			s.put(k)
			found++
		}
		if k.Handle == lowerEffort {
			lower = k
		}
	}
	if found < len(s.readings) {
		s.forgetAbsent()
	}
	if _, there := s.readings[scheduling.DefaultClass]; there && lower != nil {
		s.putLower(lower)
	}
	return s.someThere()
}

// forgetAbsent forgets the readings of classes that were not among those read last.
func (s *linkState) forgetAbsent() {
	there := make(map[uint32]bool, len(s.classes))
	for i := range s.classes {
		there[uint32(s.classes[i].Handle)] = true
	}
	for id := range s.readings {
		if !there[id] {
			delete(s.readings, id)
		}
	}
}

// prune forgets arrivals of classes and devices that are gone, once there are any.
func (l *Loop) prune() {
	classes := 0
	for _, s := range l.links {
		if s.ifb == 0 {
			return
		}
		classes += len(s.ids)
	}
	if len(l.arrivals) <= classes {
		return
	}
	known := make(map[classify.Class]bool, classes)
	for _, s := range l.links {
		for _, id := range s.ids {
			known[classify.Class{Link: s.ifb, ID: counted(id)}] = true
		}
	}
	if err := l.programs.Prune(func(c classify.Class) bool { return known[c] }); err != nil {
		l.logger.Warn("cannot forget the arrivals of devices that are gone", "err", err)
	}
}
