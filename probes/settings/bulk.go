package settings

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"vigia/internal/config"
	"vigia/probes/bulk"
	"vigia/probes/sender"
	"vigia/probes/timestamping"
)

// Bulk says which throughput tests are run and accepted.
type Bulk struct {
	Listeners   []BulkListener  `yaml:"listeners" help:"where tests of others arrive"`
	Allow       []string        `yaml:"allow" help:"prefixes of sources whose tests are accepted, default loopback"`
	HourlyBytes int64           `yaml:"hourly_bytes" help:"sent by this node in any hour at most, default 1000000000"`
	State       string          `yaml:"state" help:"file that remembers what was sent over a restart, default bulk.json in the state directory of systemd"`
	Slot        config.Duration `yaml:"slot" help:"length of a slot, 2s to 1h, default 30s"`
	Nodes       []string        `yaml:"nodes" help:"all nodes that take part, the same list on each"`
	Classes     []BulkClass     `yaml:"classes" help:"kinds of tests"`
	Targets     []BulkTarget    `yaml:"targets" help:"tests that are repeated"`
}

// BulkListener is where tests of others arrive.
type BulkListener struct {
	Netns   string `yaml:"netns" help:"network namespace"`
	Address string `yaml:"address" help:"IP:port to listen on"`
	Link    string `yaml:"link" help:"name of the link that one test at a time may use, default uplink"`
}

// BulkClass is a kind of test.
type BulkClass struct {
	Name     string          `yaml:"name" help:"label 'probe'; required"`
	Protocol string          `yaml:"protocol" help:"'tcp' or 'udp'; required"`
	Duration config.Duration `yaml:"duration" help:"of a test; required"`
	MaxBytes int64           `yaml:"max_bytes" help:"of a TCP test, default 67108864"`
	Rates    []config.Rate   `yaml:"rates" help:"of UDP tests, for example 100Mbit"`
	Size     int             `yaml:"size" help:"UDP payload in bytes, default 1400"`
	DSCP     *int            `yaml:"dscp" help:"0 to 63, default 1 (lower effort), so that tests take what others leave and no probe waits behind them; 0 is best effort"`
	Priority int             `yaml:"priority" help:"SO_PRIORITY, which a VLAN device maps to its priority code point, 0 to 7"`
	Mark     int64           `yaml:"mark" help:"firewall mark of the packets"`
}

// BulkTarget is a test that is repeated.
type BulkTarget struct {
	Dst     string `yaml:"dst" help:"label 'dst', one of the nodes; required"`
	Path    string `yaml:"path" help:"name of a path; required"`
	Tenant  string `yaml:"tenant" help:"label 'tenant'; required"`
	Probe   string `yaml:"probe" help:"name of a class of tests; required"`
	Netns   string `yaml:"netns" help:"network namespace to send from"`
	Source  string `yaml:"source" help:"IP to send from"`
	Device  string `yaml:"device" help:"device to bind to"`
	Address string `yaml:"address" help:"IP:port of the listener; required"`
	Link    string `yaml:"link" help:"name of our link, default uplink"`
	// How many take part is a factor: each number is a test of its own.
	Machines []int      `yaml:"machines" help:"numbers of machines that take part, even, 2 to 16, a test for each, default [2]; half as many connections at a time, which share bytes and rate"`
	Pairs    []BulkPair `yaml:"pairs" help:"further pairs of machines, used in this order where more than 2 machines take part"`
}

// BulkPair is a further pair of machines of a test.
type BulkPair struct {
	Netns   string `yaml:"netns" help:"network namespace to send from"`
	Source  string `yaml:"source" help:"IP to send from"`
	Address string `yaml:"address" help:"IP:port of the listener; required"`
}

// Defaults and bounds of bulk tests.
const (
	defaultHourlyBytes = 1_000_000_000
	defaultSlot        = 30 * time.Second
	defaultMaxBytes    = 64 << 20
	defaultBulkSize    = 1400
	defaultLink        = "uplink"
	minSlot            = 2 * time.Second
	maxSlot            = time.Hour
	minBulkDuration    = 100 * time.Millisecond
	maxHourlyBytes     = 1 << 50
	maxRates           = 16
)

func (b *Bulk) validate(e *faults, node string, paths map[string]bool) {
	if b == nil {
		return
	}
	for i, l := range b.Listeners {
		field := fmt.Sprintf("bulk.listeners[%d]", i)
		e.netns(field+".netns", l.Netns)
		if problem := checkListener(l.Address); problem != "" {
			e.add(field+".address", l.Address, problem, fmt.Sprintf("write IP:port, for example 10.0.0.1:%d", bulk.Port))
		}
		if slices.Contains(b.Listeners[:i], l) {
			e.add(field, nil, "is there twice", "remove one")
		}
	}
	for i, a := range b.Allow {
		if problem, fix := checkPrefix(a); problem != "" {
			e.add(fmt.Sprintf("bulk.allow[%d]", i), a, problem, fix)
		}
	}
	if b.HourlyBytes < 0 || b.HourlyBytes > maxHourlyBytes {
		e.add("bulk.hourly_bytes", b.HourlyBytes, "is out of bounds", fmt.Sprintf("write 1 to %d bytes", int64(maxHourlyBytes)))
	}
	if b.State != "" && !filepath.IsAbs(b.State) {
		e.add("bulk.state", b.State, "is not an absolute path", "write for example /var/lib/vigia-probe/"+bulkState)
	}
	if slot := b.slot(); slot < minSlot || slot > maxSlot {
		e.add("bulk.slot", slot, "is out of bounds", fmt.Sprintf("write %v to %v", minSlot, maxSlot))
	}
	for i, n := range b.Nodes {
		e.label(fmt.Sprintf("bulk.nodes[%d]", i), n, "compute1")
		if slices.Contains(b.Nodes[:i], n) {
			e.add(fmt.Sprintf("bulk.nodes[%d]", i), n, "is there twice", "remove one")
		}
	}
	if len(b.Nodes) > 0 && !slices.Contains(b.Nodes, node) {
		e.add("bulk.nodes", nil, "does not have this node", "add "+node)
	}
	classes := b.validateClasses(e)
	seen := make(map[[4]string]bool)
	for i := range b.Targets {
		t, field := &b.Targets[i], fmt.Sprintf("bulk.targets[%d]", i)
		t.validate(e, field, paths, classes)
		id := [4]string{t.Dst, t.Path, t.Tenant, t.Probe}
		if seen[id] {
			e.add(field, nil, "has the same dst, path, tenant and probe as another", "remove one, or make one of the four differ")
		}
		seen[id] = true
		if len(b.Nodes) > 0 && !slices.Contains(b.Nodes, t.Dst) {
			e.add(field+".dst", t.Dst, "is not in bulk.nodes and would never have its turn", "add it there")
		}
	}
}

func (b *Bulk) validateClasses(e *faults) map[string]*BulkClass {
	classes := make(map[string]*BulkClass)
	for i := range b.Classes {
		c, field := &b.Classes[i], fmt.Sprintf("bulk.classes[%d]", i)
		c.validate(e, field)
		if classes[c.Name] != nil {
			e.add(field+".name", c.Name, "is the name of another class", "choose another")
		}
		classes[c.Name] = c
		if need := bulk.TimeNeeded(c.tests(bulk.Target{})); need > b.slot() {
			e.add("bulk.slot", b.slot(), fmt.Sprintf("is too short for class %s", c.Name), fmt.Sprintf("write %v or more", need))
		}
	}
	return classes
}

func (c *BulkClass) validate(e *faults, field string) {
	e.label(field+".name", c.Name, "name: tcp")
	if d := time.Duration(c.Duration); d < minBulkDuration || d > bulk.MaxDuration {
		e.add(field+".duration", d, "is out of bounds", fmt.Sprintf("write %v to %v", minBulkDuration, bulk.MaxDuration))
	}
	e.channel(field, c.dscp(), c.Priority, c.Mark)
	switch bulk.Protocol(c.Protocol) {
	case bulk.TCP:
		if c.MaxBytes < 0 || c.MaxBytes > maxHourlyBytes {
			e.add(field+".max_bytes", c.MaxBytes, "is out of bounds", fmt.Sprintf("write 1 to %d", int64(maxHourlyBytes)))
		}
		if len(c.Rates) > 0 || c.Size != 0 {
			e.add(field, nil, "has rates or a size, which TCP finds itself", "remove them, or write protocol: udp")
		}
	case bulk.UDP:
		c.validateUDP(e, field)
	default:
		e.add(field+".protocol", c.Protocol, "is not a protocol of bulk tests", "write tcp or udp")
	}
}

func (c *BulkClass) validateUDP(e *faults, field string) {
	if len(c.Rates) == 0 || len(c.Rates) > maxRates {
		e.add(field+".rates", len(c.Rates), "are not 1 to 16 rates", "write for example rates: [100Mbit, 150Mbit, 200Mbit]")
	}
	if size := c.size(); size < bulk.MinSize || size > bulk.MaxSize {
		e.add(field+".size", size, "is out of bounds", fmt.Sprintf("write %d to %d bytes", bulk.MinSize, bulk.MaxSize))
		return
	}
	if c.MaxBytes != 0 {
		e.add(field+".max_bytes", c.MaxBytes, "means nothing to UDP, whose rates and duration bound it", "remove it")
	}
	for i, r := range c.Rates {
		packets := float64(r) * time.Duration(c.Duration).Seconds() / float64(c.size())
		switch {
		case r == 0 || uint64(r) > bulk.MaxRate:
			e.add(fmt.Sprintf("%s.rates[%d]", field, i), r, "is out of bounds", "write more than 0 and at most 100Gbit")
		case packets > bulk.MaxPackets:
			e.add(fmt.Sprintf("%s.rates[%d]", field, i), r, fmt.Sprintf("makes more than %d packets", bulk.MaxPackets), "write a shorter duration or a lower rate")
		}
	}
}

func (t *BulkTarget) validate(e *faults, field string, paths map[string]bool, classes map[string]*BulkClass) {
	e.label(field+".dst", t.Dst, "dst: compute2")
	e.label(field+".path", t.Path, "path: ovs-vxlan")
	e.label(field+".tenant", t.Tenant, "tenant: _infra")
	e.label(field+".probe", t.Probe, "probe: tcp")
	if t.Path != "" && !paths[t.Path] {
		e.add(field+".path", t.Path, "is not declared under paths", "declare it there or correct it")
	}
	if t.Probe != "" && classes[t.Probe] == nil {
		e.add(field+".probe", t.Probe, "is not declared under bulk.classes", "declare it there or correct it")
	}
	e.device(field+".device", t.Device)
	t.pair().validate(e, field)
	if len(t.Pairs) > bulk.MaxMachines/2-1 {
		e.add(field+".pairs", len(t.Pairs), "are too many", fmt.Sprintf("write %d at most", bulk.MaxMachines/2-1))
		return
	}
	for i := range t.Pairs {
		t.Pairs[i].validate(e, fmt.Sprintf("%s.pairs[%d]", field, i))
	}
	for i, n := range t.Machines {
		at := fmt.Sprintf("%s.machines[%d]", field, i)
		switch {
		case n < 2 || n%2 != 0 || n > bulk.MaxMachines:
			e.add(at, n, "is no number of machines of a test", fmt.Sprintf("write an even number, 2 to %d", bulk.MaxMachines))
		case n/2 > 1+len(t.Pairs):
			e.add(at, n, fmt.Sprintf("needs %d pairs of machines and has %d", n/2, 1+len(t.Pairs)), "add the others to pairs, or write a smaller number")
		case slices.Contains(t.Machines[:i], n):
			e.add(at, n, "is there twice", "remove one")
		}
	}
}

// pair returns the first pair of machines.
func (t *BulkTarget) pair() BulkPair {
	return BulkPair{Netns: t.Netns, Source: t.Source, Address: t.Address}
}

func (p BulkPair) validate(e *faults, field string) {
	e.netns(field+".netns", p.Netns)
	if problem := checkListener(p.Address); problem != "" {
		e.add(field+".address", p.Address, problem, fmt.Sprintf("write IP:port, for example 10.0.0.2:%d", bulk.Port))
		return
	}
	if p.Source == "" {
		return
	}
	source, problem := ParseSource(p.Source)
	if problem == "" {
		problem = CheckFamilies(source, netip.MustParseAddrPort(p.Address).Addr().String())
	}
	if problem == "" && source.Port() != 0 {
		problem = "has a port"
	}
	if problem != "" {
		e.add(field+".source", p.Source, problem, "write an IP address of the target's family")
	}
}

// checked converts what validate has found right.
func (p BulkPair) checked() bulk.Pair {
	source, _ := ParseSource(p.Source)
	address, _ := netip.ParseAddrPort(p.Address)
	return bulk.Pair{Netns: p.Netns, Source: source.Addr(), Address: address}
}

// tests returns a test for each number of machines.
func (t *BulkTarget) tests(node string) []bulk.Target {
	first := t.pair().checked()
	test := bulk.Target{
		Labels: sender.Labels{Src: node, Dst: t.Dst, Path: t.Path, Tenant: t.Tenant, Probe: t.Probe},
		Netns:  first.Netns, Source: first.Source, Address: first.Address, Link: link(t.Link),
		Channel: timestamping.Channel{Device: t.Device},
	}
	numbers := t.Machines
	if len(numbers) == 0 {
		numbers = []int{2}
	}
	out := make([]bulk.Target, 0, len(numbers))
	for _, n := range numbers {
		test.Others = nil
		for _, p := range t.Pairs[:n/2-1] {
			test.Others = append(test.Others, p.checked())
		}
		out = append(out, test)
	}
	return out
}

// bulkState is the name of the file that remembers what was sent.
const bulkState = "bulk.json"

// state returns the file that is configured to remember what was sent.
func (b *Bulk) state() string {
	if b == nil {
		return ""
	}
	return b.State
}

func (b *Bulk) slot() time.Duration {
	if b.Slot == 0 {
		return defaultSlot
	}
	return time.Duration(b.Slot)
}

// dscp returns the code point, by default that of lower effort (RFC 8622).
func (c *BulkClass) dscp() int {
	if c.DSCP == nil {
		return lowerEffort
	}
	return *c.DSCP
}

func (c *BulkClass) size() int {
	if c.Size == 0 {
		return defaultBulkSize
	}
	return c.Size
}

// tests returns what a target of the class is: a test for each rate.
func (c *BulkClass) tests(t bulk.Target) []bulk.Target {
	t.Protocol, t.Duration = bulk.Protocol(c.Protocol), time.Duration(c.Duration)
	t.Channel.TOS, t.Channel.Priority, t.Channel.Mark = uint8(c.dscp()<<2), uint8(c.Priority), uint32(c.Mark)
	if t.Protocol != bulk.UDP {
		t.RateName, t.MaxBytes = "unlimited", uint64(c.MaxBytes)
		if c.MaxBytes == 0 {
			t.MaxBytes = defaultMaxBytes
		}
		return []bulk.Target{t}
	}
	tests := make([]bulk.Target, 0, len(c.Rates))
	for _, r := range c.Rates {
		t.Size, t.Rate, t.RateName = c.size(), uint64(r), r.String()
		tests = append(tests, t)
	}
	return tests
}

// bulk converts what Validate has found right.
func (f *File) bulk() (server bulk.Config, plan bulk.Plan) {
	b := f.Bulk
	if b == nil {
		return server, plan
	}
	for _, l := range b.Listeners {
		address, _ := netip.ParseAddrPort(l.Address)
		server.Listeners = append(server.Listeners, bulk.Listener{Netns: l.Netns, Address: address, Link: link(l.Link)})
	}
	server.Allow = prefixes(b.Allow)
	plan = bulk.Plan{Node: f.Node, Budget: uint64(b.HourlyBytes), Slots: bulk.Slots{Nodes: b.Nodes, Length: b.slot()}}
	if b.HourlyBytes == 0 {
		plan.Budget = defaultHourlyBytes
	}
	classes := make(map[string]*BulkClass)
	for i := range b.Classes {
		classes[b.Classes[i].Name] = &b.Classes[i]
	}
	for i := range b.Targets {
		for _, test := range b.Targets[i].tests(f.Node) {
			plan.Groups = append(plan.Groups, classes[b.Targets[i].Probe].tests(test))
		}
	}
	// What is compared follows each other: the same number of machines on one path after the other.
	slices.SortStableFunc(plan.Groups, func(x, y []bulk.Target) int { return cmp.Compare(x[0].Machines(), y[0].Machines()) })
	return server, plan
}

func link(name string) string {
	if name == "" {
		return defaultLink
	}
	return name
}

// prefixes reads ranges of addresses that were checked; loopback when there are
// none.
func prefixes(texts []string) (out []netip.Prefix) {
	for _, s := range texts {
		p, _ := netip.ParsePrefix(s)
		out = append(out, p)
	}
	if len(out) == 0 {
		out = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	return out
}
