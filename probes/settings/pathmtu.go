package settings

import (
	"fmt"
	"time"

	"vigia/internal/config"
	"vigia/probes/pathmtu"
)

// PathMTU asks for the path MTU of a class's targets to be searched.
type PathMTU struct {
	Interval config.Duration `yaml:"interval" help:"between two searches, 10s to 24h, default 10m"`
	Min      int             `yaml:"min" help:"smallest size in bytes with the IP header, default 576"`
	Max      int             `yaml:"max" help:"largest size, default 9216"`
}

const (
	defaultSearchInterval = 10 * time.Minute
	minSearchInterval     = 10 * time.Second
	maxSearchInterval     = 24 * time.Hour
)

// validatePathMTU checks the search of the path MTU.
func (c *Class) validatePathMTU(e *faults, field string) {
	if c.PathMTU == nil {
		return
	}
	if c.protocol != nil && !searches(c.protocol) {
		e.add(field, nil, "means nothing to "+c.traits.Noun, "remove it, or write protocol: "+c.protocols.names(searches))
		return
	}
	s := c.PathMTU.search()
	if s.Interval < minSearchInterval || s.Interval > maxSearchInterval {
		e.add(field+".interval", s.Interval, "is out of bounds", fmt.Sprintf("write %v to %v", minSearchInterval, maxSearchInterval))
	}
	if problem, fix := CheckPacketSize(s.Min); problem != "" {
		e.add(field+".min", s.Min, problem, fix)
	}
	if problem, fix := CheckPacketSize(s.Max); problem != "" {
		e.add(field+".max", s.Max, problem, fix)
	} else if s.Max <= s.Min {
		e.add(field+".max", s.Max, fmt.Sprintf("is not above min, %d", s.Min), fmt.Sprintf("write %d to %d", s.Min+1, pathmtu.GreatestSize))
	}
}

// CheckPacketSize says what is wrong with a size as bound of a search of the path
// MTU, and what to write instead.
func CheckPacketSize(size int) (problem, fix string) {
	if size < pathmtu.LeastSize || size > pathmtu.GreatestSize {
		return "is not a possible size of a packet", fmt.Sprintf("write %d to %d bytes, IP header included", pathmtu.LeastSize, pathmtu.GreatestSize)
	}
	return "", ""
}

// search fills in what was left out.
func (p *PathMTU) search() pathmtu.Plan {
	s := pathmtu.Plan{Interval: time.Duration(p.Interval), Limits: pathmtu.Limits{Min: p.Min, Max: p.Max}}
	if p.Interval == 0 {
		s.Interval = defaultSearchInterval
	}
	if p.Min == 0 {
		s.Min = pathmtu.DefaultMin
	}
	if p.Max == 0 {
		s.Max = pathmtu.DefaultMax
	}
	return s
}

// searches returns what is searched, by class.
func (f *File) searches() (out map[string]pathmtu.Plan) {
	for i := range f.Classes {
		if c := &f.Classes[i]; c.PathMTU != nil {
			if out == nil {
				out = make(map[string]pathmtu.Plan)
			}
			out[c.Name] = c.PathMTU.search()
		}
	}
	return out
}
