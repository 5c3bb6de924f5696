// Package settings reads and checks the configuration of vigia-probe.
package settings

import (
	"vigia/internal/config"
	"vigia/probes/stamp"
)

// File is the configuration file as it is written.
type File struct {
	Node      string     `yaml:"node"`
	Reflector *Reflector `yaml:"reflector"`
	Paths     []Path     `yaml:"paths"`
	Classes   []Class    `yaml:"classes"`
	Targets   []Target   `yaml:"targets"`
	Clock     Clock      `yaml:"clock"`
	Health    Health     `yaml:"health"`

	Timestamps Timestamps `yaml:"timestamps"`

	Discovery  []Discovery `yaml:"discovery"`
	Bulk       *Bulk       `yaml:"bulk"`
	Objectives []Objective `yaml:"objectives"`

	keys map[string]stamp.Keys // by path, read by Validate
}

// Clock says what is known of this node's clock, for one-way delays.
type Clock struct {
	ErrorBound     config.Duration `yaml:"error_bound"`      // against UTC; absent, the source is asked
	Source         string          `yaml:"source"`           // auto, chrony, ptp4l or kernel
	Chrony         string          `yaml:"chrony"`           // IP:port or path
	PTP4L          string          `yaml:"ptp4l"`            // path
	MaxOnewayError config.Duration `yaml:"max_oneway_error"` // of both clocks together
}

// Timestamps says who stamps packets.
type Timestamps struct {
	Hardware string `yaml:"hardware"` // auto, off or enable
}

// Health says from where on this host is not fit to measure.
type Health struct {
	CPUPressure *float64        `yaml:"cpu_pressure"` // ratio
	Steal       *float64        `yaml:"steal"`        // ratio
	ScheduleLag config.Duration `yaml:"schedule_lag"`
}

// Reflector says where test packets are answered, and whose.
type Reflector struct {
	Listeners []Listener `yaml:"listeners"`
	Allow     []string   `yaml:"allow"`
	MaxRate   int        `yaml:"max_rate"` // packets per second and source
}

// Listener is a socket of the reflector.
type Listener struct {
	Netns   string `yaml:"netns"`
	Address string `yaml:"address"`
	KeyFile string `yaml:"key_file"` // makes it answer in authenticated mode alone
}

// Path describes one configuration under comparison.
type Path struct {
	Name      string `yaml:"name"`
	Dataplane string `yaml:"dataplane"`
	Encap     string `yaml:"encap"`
	Mode      string `yaml:"mode"`
	Security  string `yaml:"security"`
	Layer     string `yaml:"layer"`
	Placement string `yaml:"placement"`
}

// Class is a kind of probe.
type Class struct {
	Name     string          `yaml:"name"`
	Protocol string          `yaml:"protocol"`
	Size     int             `yaml:"size"` // UDP or ICMP payload in bytes
	Interval config.Duration `yaml:"interval"`
	Deadline config.Duration `yaml:"deadline"`
	DSCP     int             `yaml:"dscp"`
	Priority int             `yaml:"priority"` // SO_PRIORITY, mapped to the VLAN's code point
	Mark     int64           `yaml:"mark"`

	DontFragment bool   `yaml:"dont_fragment"`
	SourcePorts  int    `yaml:"source_ports"` // used in turn
	Flow         string `yaml:"flow"`         // warm or cold
	ECMPPaths    int    `yaml:"ecmp_paths"`   // assumed number of equal-cost paths

	PathMTU *PathMTU `yaml:"path_mtu"`
}

// Target is what is probed.
type Target struct {
	Dst     string `yaml:"dst"`
	Path    string `yaml:"path"`
	Tenant  string `yaml:"tenant"`
	Probe   string `yaml:"probe"`
	Netns   string `yaml:"netns"`
	Source  string `yaml:"source"`
	Device  string `yaml:"device"`
	Twin    string `yaml:"twin"` // path of the target to be probed at the same moment
	Address string `yaml:"address"`
	KeyFile string `yaml:"key_file"` // makes it authenticated
}
