package app

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"vigia/exporters/tenant/identity"
	"vigia/internal/bpf/vport"
	"vigia/internal/config"
	"vigia/internal/node"
	"vigia/internal/ports"
)

// Config is the exporter's configuration file.
type Config struct {
	Fixed `yaml:",inline"`
	Live  `yaml:",inline"`
}

// Fixed is what a running exporter cannot change.
type Fixed struct {
	Node          node.Config `yaml:",inline"`
	TenantsFile   string      `yaml:"tenants_file"`   // more names, which vigia-identity writes; read again when it changes
	KubeletSocket string      `yaml:"kubelet_socket"` // where the kubelet says which pod holds which VF; empty without it
	OVSRunDir     string      `yaml:"ovs_rundir"`     // of Open vSwitch's sockets; the folder of ovsdb if empty
	OpenFlow      OpenFlow    `yaml:"openflow"`       // what is asked of the bridges of Open vSwitch
	Limits        Limits      `yaml:"limits"`         // bounds on what is exported
}

// Live is what a reload changes.
type Live struct {
	Tenants []identity.Tenant `yaml:"tenants"` // names, for vigia_tenant_info
	Flood   Flood             `yaml:"flood"`   // when 100 ms of a port's UDP count as a flood
}

// OpenFlow says what is asked of the bridges of Open vSwitch.
type OpenFlow struct {
	Every   config.Duration `yaml:"every"`   // how often bridges and ovs-vswitchd are asked, default 10s
	Cookies []Cookie        `yaml:"cookies"` // flows to be summed
}

// Cookie says whose the flows with a cookie are.
type Cookie struct {
	Bridge string `yaml:"bridge"` // name of the bridge
	Cookie string `yaml:"cookie"` // decimal, or hexadecimal with 0x
	Tenant string `yaml:"tenant"` // whose they are
}

// Limits bound what is exported.
type Limits struct {
	Series int             `yaml:"series"` // of one collector, default 50000; a tenth as many ports have series of their own
	Gone   config.Duration `yaml:"gone"`   // how long a port's series stay when it is gone, default 30s
}

// Flood says when 100 ms of a port's UDP count as a flood.
type Flood struct {
	Packets         uint32          `yaml:"packets"`           // to one destination, default 200
	Ports           uint32          `yaml:"ports"`             // distinct destination ports, 1 to 1000, default 100
	MaxReplyPercent uint32          `yaml:"max_reply_percent"` // packets back per 100 sent, default 5
	Quiet           config.Duration `yaml:"quiet"`             // pause that ends an episode, 100ms to 1m, default 2s
}

var bridgeRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

const (
	defaultFloodPorts = 100
	defaultSeries     = 50_000
	leastSeries       = 100
	mostSeries        = 1_000_000
	defaultGone       = 30 * time.Second
	mostGone          = time.Hour
	defaultEvery      = 10 * time.Second
	leastEvery        = 5 * time.Second
	mostEvery         = 10 * time.Minute
	maxCookies        = 256
)

func defaults() Config {
	d := vport.DefaultSettings()
	return Config{
		Fixed: Fixed{
			OpenFlow: OpenFlow{Every: config.Duration(defaultEvery)},
			Limits:   Limits{Series: defaultSeries, Gone: config.Duration(defaultGone)},
		},
		Live: Live{Flood: Flood{
			Packets: d.MinPackets, Ports: defaultFloodPorts, MaxReplyPercent: d.MaxReplyPercent, Quiet: config.Duration(d.Quiet),
		}},
	}
}

func load(path string) (Config, error) {
	c := defaults()
	err := config.Load(path, &c)
	return c, err
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	var errs []error
	fault := func(field string, value any, problem, fix string) {
		errs = append(errs, &config.FieldError{Field: field, Value: value, Problem: problem, Fix: fix})
	}
	errs = append(errs, c.Node.Validate(), identity.Check(c.Tenants))
	for _, p := range []struct{ field, path string }{{"tenants_file", c.TenantsFile}, {"kubelet_socket", c.KubeletSocket}} {
		if p.path != "" && !filepath.IsAbs(p.path) {
			fault(p.field, p.path, "is not an absolute path", "begin it with /")
		}
	}
	if c.Flood.Packets == 0 {
		fault("flood.packets", c.Flood.Packets, "would call everything a flood", "write 1 or more")
	}
	if c.Flood.Ports == 0 || c.Flood.Ports > 1000 {
		fault("flood.ports", c.Flood.Ports, "is out of range", "write 1 to 1000")
	}
	if c.Flood.MaxReplyPercent > 100 {
		fault("flood.max_reply_percent", c.Flood.MaxReplyPercent, "is out of range", "write 0 to 100")
	}
	if q := time.Duration(c.Flood.Quiet); q < 100*time.Millisecond || q > time.Minute {
		fault("flood.quiet", c.Flood.Quiet, "is out of range", "write 100ms to 1m")
	}
	if c.OVSRunDir != "" && !filepath.IsAbs(c.OVSRunDir) {
		fault("ovs_rundir", c.OVSRunDir, "is not an absolute path", "write /run/openvswitch, or nothing for the folder of ovsdb")
	}
	errs = append(errs, c.OpenFlow.validate())
	if c.Limits.Series < leastSeries || c.Limits.Series > mostSeries {
		fault("limits.series", c.Limits.Series, "is out of range", fmt.Sprintf("write %d to %d", leastSeries, mostSeries))
	}
	if g := time.Duration(c.Limits.Gone); g < 0 || g > mostGone {
		fault("limits.gone", c.Limits.Gone, "is out of range", "write 0s to 1h")
	}
	return errors.Join(errs...)
}

func (o *OpenFlow) validate() error {
	var errs []error
	fault := func(field string, value any, problem, fix string) {
		errs = append(errs, &config.FieldError{Field: "openflow." + field, Value: value, Problem: problem, Fix: fix})
	}
	if e := time.Duration(o.Every); e < leastEvery || e > mostEvery {
		fault("every", o.Every, "is out of range", "write 5s to 10m")
	}
	if len(o.Cookies) > maxCookies {
		fault("cookies", len(o.Cookies), "are too many", fmt.Sprintf("list at most %d", maxCookies))
	}
	seen := make(map[[2]string]bool)
	for i, k := range o.Cookies {
		at := fmt.Sprintf("cookies[%d].", i)
		if !bridgeRE.MatchString(k.Bridge) {
			fault(at+"bridge", k.Bridge, "is not a bridge", "write its name")
		}
		number, err := k.number()
		if err != nil {
			fault(at+"cookie", k.Cookie, "is not a cookie", "write a number such as 20 or 0x14")
		}
		if !ports.ValidID(k.Tenant) {
			fault(at+"tenant", k.Tenant, "is not an id", "use letters, digits and _ . : / @ -, at most 128")
		}
		key := [2]string{k.Bridge, fmt.Sprint(number)}
		if seen[key] {
			fault(at+"cookie", k.Cookie, "is listed twice", "keep one entry")
		}
		seen[key] = true
	}
	return errors.Join(errs...)
}

func (k *Cookie) number() (uint64, error) { return strconv.ParseUint(k.Cookie, 0, 64) }

func (f Flood) settings() vport.Settings {
	return vport.Settings{
		MinPackets: f.Packets, MinPorts: vport.SpreadBits(f.Ports),
		MaxReplyPercent: f.MaxReplyPercent, Quiet: time.Duration(f.Quiet),
	}
}
