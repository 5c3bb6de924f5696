package settings

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"

	"vigia/internal/config"
	"vigia/probes/moment"
)

// Moments says how often it is recorded what happened when a path turned bad.
type Moments struct {
	Disabled     bool            `yaml:"disabled" help:"record nothing"`
	Interval     config.Duration `yaml:"interval" help:"least time between two records of a bad target, 10s to 24h, default 5m"`
	GoodInterval config.Duration `yaml:"good_interval" help:"time between two records of a good target, to compare with, 1m to 24h, default 15m"`
	Keep         int             `yaml:"keep" help:"records of bad targets that are kept, 1 to 1000, default 100"`
	State        string          `yaml:"state" help:"file that keeps records over a restart, 4 MiB at most, default moments.json in the state directory of systemd"`
}

// momentsState is the name of the file that keeps records.
const momentsState = "moments.json"

// Bounds of records.
const (
	minMomentInterval     = 10 * time.Second
	minGoodMomentInterval = time.Minute
	maxMomentInterval     = 24 * time.Hour
	maxMoments            = 1000
)

func (m *Moments) validate(e *faults) {
	c := m.config()
	for _, v := range []struct {
		key          string
		value, least time.Duration
	}{{"interval", c.Interval, minMomentInterval}, {"good_interval", c.GoodInterval, minGoodMomentInterval}} {
		if v.value < v.least || v.value > maxMomentInterval {
			e.add("moments."+v.key, v.value, "is out of bounds", fmt.Sprintf("write %v to %v", v.least, maxMomentInterval))
		}
	}
	if m.State != "" && !filepath.IsAbs(m.State) {
		e.add("moments.state", m.State, "is not an absolute path", "write for example /var/lib/vigia-probe/"+momentsState)
	}
	if c.Keep < 1 || c.Keep > maxMoments {
		e.add("moments.keep", c.Keep, "is out of bounds", fmt.Sprintf("write 1 to %d", maxMoments))
	}
}

// config fills in what was left out.
func (m *Moments) config() moment.Config {
	return moment.Config{
		Disabled:     m.Disabled,
		Interval:     cmp.Or(time.Duration(m.Interval), moment.DefaultInterval),
		GoodInterval: cmp.Or(time.Duration(m.GoodInterval), moment.DefaultGoodInterval),
		Keep:         cmp.Or(m.Keep, moment.DefaultKeep),
	}
}
