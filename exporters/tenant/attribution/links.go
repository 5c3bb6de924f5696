package attribution

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"vigia/exporters/tenant/source"
	"vigia/internal/ethtool"
	"vigia/internal/exposition"
)

// links knows how fast the links behind queues are, and what was sent over them.
type links struct {
	netns  string
	conn   *ethtool.Conn // nil until it is needed
	speeds map[string]speed
	bytes  map[string]source.Queue // through each queue, as of the scrape before
	used   map[string]float64      // seconds that each link was busy, so far
	at     time.Time               // of the scrape before
}

type speed struct {
	bits  float64 // per second; 0 if unknown
	asked time.Time
}

// speedAge is how long a link's speed is taken for what it was.
const speedAge = time.Minute

func newLinks(netns string) *links {
	return &links{netns: netns, speeds: make(map[string]speed), used: make(map[string]float64)}
}

func (l *links) close() error {
	if l.conn == nil {
		return nil
	}
	return l.conn.Close()
}

// speed returns the bits per second of a device's link, 0 where it is unknown.
func (l *links) speed(device string, now time.Time) (float64, error) {
	if known, ok := l.speeds[device]; ok && now.Sub(known.asked) < speedAge {
		return known.bits, nil
	}
	if l.conn == nil {
		var err error
		if l.conn, err = ethtool.Dial(l.netns); err != nil {
			return 0, err
		}
	}
	bits, err := l.conn.Speed(device)
	if errors.Is(err, unix.ENODEV) {
		return 0, nil // it went since its queue was read
	}
	if err != nil {
		return 0, err
	}
	l.speeds[device] = speed{float64(bits), now}
	return float64(bits), nil
}

// queues emits how busy the links behind the queues of shared devices are, where their
// speed is known, and attributes that to the tenants that sent meanwhile, by bytes.
func (s *Source) queues(v *source.View, carried []source.Carried, out *exposition.Page) error {
	l := s.links
	bytes, passed := l.bytes, v.Now.Sub(l.at).Seconds()
	l.bytes, l.at = v.Queues, v.Now
	tenants, sum := growth(v, carried, every, sent)
	var errs []error
	for device, now := range v.Queues {
		bits, err := l.speed(device, v.Now)
		if err != nil {
			errs = append(errs, err) // the other links are read nevertheless
		}
		if bits == 0 {
			continue
		}
		if now.Ceiling > 0 { // a scheduler holds it below the link's speed
			bits = min(bits, 8*float64(now.Ceiling))
		}
		name := queue + device
		last, known := bytes[device]
		busy := 0.0
		if known && now.Bytes > last.Bytes {
			busy = float64(now.Bytes-last.Bytes) * 8 / bits
		}
		l.used[device] += busy
		out.Emit(s.used, l.used[device], name, kind(name))
		if known && passed > 0 {
			out.Emit(s.utilization, busy/passed, name, kind(name))
		}
		s.add(v, name, busy, tenants, sum)
	}
	s.forgetQueues(v.Queues)
	return errors.Join(errs...)
}

// forgetQueues forgets devices that are gone.
func (s *Source) forgetQueues(here map[string]source.Queue) {
	if len(here) == 0 {
		return // no source has read them this time
	}
	for device := range s.links.speeds {
		if _, ok := here[device]; ok {
			continue
		}
		delete(s.links.speeds, device)
		delete(s.links.used, device)
		for k := range s.shares {
			if k.resource == queue+device {
				delete(s.shares, k)
			}
		}
	}
}
