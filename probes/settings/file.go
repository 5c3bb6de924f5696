package settings

import (
	"go.yaml.in/yaml/v3"

	"vigia/internal/config"
	"vigia/probes/protocol"
	"vigia/probes/stamp"
)

// File is the configuration file as it is written.
type File struct {
	Node      string     `yaml:"node" help:"label 'src' of every series of this node; required"`
	Reflector *Reflector `yaml:"reflector" help:"where test packets are answered"`
	Paths     []Path     `yaml:"paths" help:"configurations under comparison, exported as 'vigia_path_info'"`
	Classes   []Class    `yaml:"classes" help:"kinds of probes"`
	Targets   []Target   `yaml:"targets" help:"what is probed"`
	Clock     Clock      `yaml:"clock" help:"what is known of the clock, for one-way delays"`
	Health    Health     `yaml:"health" help:"from where on this host is not fit to measure"`

	Timestamps Timestamps `yaml:"timestamps" help:"who stamps packets"`

	Series string `yaml:"series" help:"what targets have series of: 'usual' (default), what rules and panels read and what has occurred; or 'all'"`

	Discovery  []Discovery `yaml:"discovery" help:"nodes from files or an HTTP endpoint"`
	Mesh       Mesh        `yaml:"mesh" help:"what is exported of discovered nodes"`
	Bulk       *Bulk       `yaml:"bulk" help:"throughput tests"`
	Objectives []Objective `yaml:"objectives" help:"what tenants were promised; one that burns stops bulk tests"`

	Moments Moments `yaml:"moments" help:"records of what happened when a path turned bad, on '/v1/moments'"`

	ObjectivesState string `yaml:"objectives_state" help:"file that remembers learned objectives of targets over a restart, default objectives.json in the state directory of systemd"`

	protocols table
	// By path, read by Validate: what listeners and what targets need.
	keys  map[string]stamp.Keys
	keyed map[keyedClass]protocol.Protocol
}

// Clock says what is known of this node's clock, for one-way delays.
type Clock struct {
	ErrorBound     config.Duration `yaml:"error_bound" help:"how far the clock may be off, where you know better; up to 1s"`
	Source         string          `yaml:"source" help:"who knows how far the clock may be off: 'auto' (default), 'chrony', 'ptp4l', 'kernel'"`
	Chrony         string          `yaml:"chrony" help:"IP:port or path of the socket of chronyd, default 127.0.0.1:323"`
	PTP4L          string          `yaml:"ptp4l" help:"path of the management socket of ptp4l, default /var/run/ptp4lro, then /var/run/ptp4l"`
	MaxOnewayError config.Duration `yaml:"max_oneway_error" help:"of both clocks together, for one-way delays; up to 1s, default 1ms"`
}

// Timestamps says who stamps packets.
type Timestamps struct {
	Hardware string `yaml:"hardware" help:"'auto' (default): where the device has its stamps switched on; 'off'; 'enable': switch them on (CAP_NET_ADMIN)"`
}

// Health says from where on this host is not fit to measure.
type Health struct {
	CPUPressure *float64        `yaml:"cpu_pressure" help:"share of time that tasks wait for a processor, above 0 and up to 1; absent: no limit"`
	Steal       *float64        `yaml:"steal" help:"share of time that the hypervisor takes, default 0.1"`
	ScheduleLag config.Duration `yaml:"schedule_lag" help:"how late a probe may leave, up to 1m, default 100ms"`
}

// Reflector says where test packets are answered, and whose.
type Reflector struct {
	Listeners []Listener `yaml:"listeners" help:"its sockets"`
	Allow     []string   `yaml:"allow" help:"prefixes of sources that are answered, default loopback"`
	MaxRate   int        `yaml:"max_rate" help:"packets per second and source, default 10000"`
}

// Listener is a socket of the reflector.
type Listener struct {
	Netns   string `yaml:"netns" help:"network namespace: a name in /run/netns, an absolute path, or absent for our own"`
	Address string `yaml:"address" help:"IP:port to listen on"`
	KeyFile string `yaml:"key_file" help:"absolute path of HMAC keys; makes it answer authenticated packets alone"`
}

// Auto stands for an attribute of a path that is to be found out.
const Auto = "auto"

// Path describes one configuration under comparison.
type Path struct {
	Name      string   `yaml:"name" help:"label 'path'; required"`
	Dataplane string   `yaml:"dataplane" help:"for example 'ovs', 'linuxbridge', 'none', or 'auto'; required"`
	Encap     string   `yaml:"encap" help:"for example 'vxlan', 'gre', 'none', or 'auto'; required"`
	FoundBy   []string `yaml:"found_by" help:"files of discovery with the nodes' addresses in this path's network: routes to them tell what is 'auto' ('linuxbridge', 'ovs', 'ebpf' or 'routed'; the tunnel's kind or 'none'); without it, another program of the node exports the path"`
	Mode      string   `yaml:"mode" help:"for example 'normal', 'openflow'; required"`
	Security  string   `yaml:"security" help:"for example 'none', 'ipsec'; required"`
	Layer     string   `yaml:"layer" help:"for example 'overlay', 'underlay'; required"`
	Placement string   `yaml:"placement" help:"for example 'remote', 'local'; required"`
	Further   bool     `yaml:"further" help:"it stands for the networks that we are in beside that of the first reflector.listeners of our own namespace, 8 at most: each is a path of its own, called by this name, '-' and its interface; 'dataplane: auto' is the interface's kind ('macvlan', 'ipvlan', 'vlan', 'veth', ...; 'sriov' for a virtual function, 'device' for other hardware)"`
}

// Class is a kind of probe.
type Class struct {
	Name     string          `yaml:"name" help:"label 'probe'; required"`
	Protocol string          `yaml:"protocol" help:"{protocols}; required"`
	Size     int             `yaml:"size" help:"payload in bytes; {sizes}"`
	Interval config.Duration `yaml:"interval" help:"between two probes of a target, 100us to 1h; required"`
	Deadline config.Duration `yaml:"deadline" help:"after which an unanswered probe is lost, 1ms to 1m, default 1s"`
	DSCP     int             `yaml:"dscp" help:"0 to 63, default 0"`
	Priority int             `yaml:"priority" help:"SO_PRIORITY, which a VLAN device maps to its priority code point, 0 to 7"`
	Mark     int64           `yaml:"mark" help:"firewall mark of the packets"`

	DontFragment bool   `yaml:"dont_fragment" help:"forbid fragments"`
	SourcePorts  int    `yaml:"source_ports" help:"so many source ports in turn, 1 to 1024, default 1"`
	Flow         string `yaml:"flow" help:"'warm' (default): the same ports all the time; 'cold': a port rests for 60 s"`
	ECMPPaths    int    `yaml:"ecmp_paths" help:"equal-cost paths that the network is taken to have, for the coverage"`

	Objectives []ClassObjective `yaml:"objectives" help:"what delay and jitter the targets must keep to"`

	PathMTU *PathMTU  `yaml:"path_mtu" help:"search the path MTU of the targets"`
	Options yaml.Node `yaml:"options" help:"keys that the protocol has of its own"`

	// Set by Validate.
	protocols table
	protocol  protocol.Protocol // nil when there is no such protocol
	traits    protocol.Traits
}

// Target is what is probed.
type Target struct {
	Dst     string `yaml:"dst" help:"label 'dst'; required"`
	Path    string `yaml:"path" help:"name of a path; required"`
	Tenant  string `yaml:"tenant" help:"label 'tenant'; required"`
	Probe   string `yaml:"probe" help:"name of a class; required"`
	Netns   string `yaml:"netns" help:"network namespace to send from: a name in /run/netns, an absolute path, neutron: and a network's id for the one that Neutron's agent has for it on this node, or absent for our own"`
	Source  string `yaml:"source" help:"IP, or IP:port, to send from"`
	Device  string `yaml:"device" help:"device to bind to"`
	Twin    string `yaml:"twin" help:"path of the target with the same dst and class to be probed at the same moment"`
	Address string `yaml:"address" help:"IP:port or name:port, without port for {portless}; required"`
	KeyFile string `yaml:"key_file" help:"absolute path of HMAC keys; makes the probes authenticated"`
}
