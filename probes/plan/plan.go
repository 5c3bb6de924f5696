// Package plan computes what a mesh of probes costs before it is rolled out: who
// probes whom, how many series that makes, and how many packets.
package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"vigia/internal/daemon"
	"vigia/probes/coverage"
	"vigia/probes/discovery"
	"vigia/probes/mesh"
	"vigia/probes/pathmtu"
	"vigia/probes/protocol"
	"vigia/probes/protocol/registry"
)

// Bounds of the flags.
const (
	maxNodes      = 50_000
	maxPerNode    = 10_000
	maxPairSeries = 1_000_000
	maxPaths      = 64
	// headers are what a probe has beside its payload on the wire: Ethernet with
	// frame check sequence, preamble and gap, IPv4, UDP.
	headers = 38 + 20 + 8
)

type options struct {
	nodes, perRack, zones, perNode, perZone int
	paths, classes, pairSeries              int
	interval, pathMTU                       time.Duration
	size, sourcePorts, ecmpPaths            int
	file, show, within                      string
	json                                    bool
	series                                  Series
	protocol                                string
}

// Series counts the series that probes of a protocol make.
type Series struct {
	// Target counts those of a target, AtMost those that it can have.
	Target, AtMost func(protocol.Protocol) (int, error)
	// Node counts those that are exported for all pairs of a node together, which are of
	// so many zones, paths and classes.
	Node func(p protocol.Protocol, groups int) (int, error)
}

// Report is what the command prints.
type Report struct {
	Nodes           int      `json:"nodes"`
	Pairs           int      `json:"pairs"` // directed
	PeersPerNode    Range    `json:"peers_per_node"`
	ProbedBy        Range    `json:"probed_by"` // how many nodes probe a node
	TargetsPerNode  Range    `json:"targets_per_node"`
	SeriesPerTarget int      `json:"series_per_target"`       // of a pair that is bad or asked for
	SeriesAtRest    Range    `json:"series_per_node_at_rest"` // while no pair is
	SeriesAtWorst   Range    `json:"series_per_node_at_most"` // the budget, or all that the pairs can have
	PairsInBudget   int      `json:"pairs_in_budget"`         // that have series of their own at once
	Series          int      `json:"series_at_rest"`
	WorstSeries     int      `json:"series_at_most"`
	FullMeshSeries  int      `json:"full_mesh_series"`                                       // of all pairs, for comparison
	ProbesPerNode   float64  `json:"probes_per_second_per_node"`                             // of the busiest
	PacketsPerNode  float64  `json:"packets_per_second_per_node"`                            // sent and answered, both roles
	BitsPerNode     float64  `json:"bits_per_second_per_node"`                               // on the wire, each way
	Packets         float64  `json:"packets_per_second"`                                     // of the whole site
	Searches        float64  `json:"path_mtu_searches_per_hour_per_node,omitempty"`          // of the busiest
	SearchPackets   float64  `json:"path_mtu_packets_per_second_per_node_at_most,omitempty"` // and answers
	CoverageRatio   *float64 `json:"ecmp_coverage_ratio,omitempty"`                          // of equal-cost paths
	Shown           string   `json:"node,omitempty"`
	Peers           []string `json:"peers,omitempty"`
}

// Range is the least, mean and greatest of a number.
type Range struct {
	Min  int     `json:"min"`
	Mean float64 `json:"mean"`
	Max  int     `json:"max"`
}

// Command returns the command.
func Command(series Series) daemon.Command {
	return daemon.Command{
		Name: "plan",
		Help: "Print who probes whom, and how many series and packets that makes, for a number of nodes.",
		Register: func(cmd *kingpin.CmdClause) func(context.Context, io.Writer, io.Writer) error {
			o := &options{series: series}
			cmd.Flag("nodes", "Number of nodes, called node0, node1 and so on.").Default("100").IntVar(&o.nodes)
			cmd.Flag("per-rack", "Nodes of a rack, all of which probe each other; 0: no racks.").Default("20").IntVar(&o.perRack)
			cmd.Flag("file", "Take the nodes from a file in the format of file_sd instead, with labels node, rack and zone.").PlaceHolder("FILE").StringVar(&o.file)
			cmd.Flag("zones", "Zones of the site, with as many racks each.").Default("1").IntVar(&o.zones)
			cmd.Flag("within", "The part of the site of which every node is probed: rack or zone.").Default("rack").EnumVar(&o.within, "rack", "zone")
			cmd.Flag("per-node", "Of the other nodes, so many are probed by each; 0: all.").Default("8").IntVar(&o.perNode)
			cmd.Flag("per-zone", "Nodes of each other zone that each node probes, beside --per-node of its own; 0: --per-node counts those of all zones.").Default("0").IntVar(&o.perZone)
			cmd.Flag("pair-series", "Series, at most, of a node's pairs that are bad or asked for, as mesh.pair_series.").Default("1000").IntVar(&o.pairSeries)
			cmd.Flag("paths", "Paths measured between two nodes.").Default("1").IntVar(&o.paths)
			cmd.Flag("classes", "Classes of probes on each path.").Default("1").IntVar(&o.classes)
			cmd.Flag("interval", "Time between two probes of a target.").Default("1s").DurationVar(&o.interval)
			cmd.Flag("protocol", "Protocol of the probes: "+strings.Join(names(), ", ")+".").Default(names()[0]).EnumVar(&o.protocol, names()...)
			cmd.Flag("size", "Payload of a probe in bytes; by default what is usual with the protocol.").PlaceHolder("BYTES").IntVar(&o.size)
			cmd.Flag("source-ports", "Source ports that a target uses in turn.").Default("1").IntVar(&o.sourcePorts)
			cmd.Flag("ecmp-paths", "Equal-cost paths of the network; 0: not known.").Default("0").IntVar(&o.ecmpPaths)
			cmd.Flag("path-mtu", "Time between two searches of a target's path MTU; 0: none.").Default("0s").DurationVar(&o.pathMTU)
			cmd.Flag("show", "Print the nodes that this one probes.").PlaceHolder("NODE").StringVar(&o.show)
			cmd.Flag("json", "Print one JSON document instead.").BoolVar(&o.json)
			return func(_ context.Context, stdout, _ io.Writer) error { return o.run(stdout) }
		},
	}
}

func usage(format string, args ...any) error {
	return &daemon.UsageError{Err: fmt.Errorf(format, args...)}
}

// packets are the protocols whose probes are single packets, which can be counted in advance.
func packets() (found []protocol.Protocol) {
	for _, p := range registry.All() {
		if _, ok := p.(protocol.Packets); ok {
			found = append(found, p)
		}
	}
	return found
}

func names() (names []string) {
	for _, p := range packets() {
		names = append(names, p.Traits().Name)
	}
	return names
}

// probes returns the protocol.
func (o *options) probes() protocol.Protocol {
	return packets()[max(slices.Index(names(), o.protocol), 0)]
}

func (o *options) check() error {
	for _, f := range []struct {
		name            string
		value, min, max int
	}{
		{"nodes", o.nodes, 1, maxNodes},
		{"per-rack", o.perRack, 0, maxNodes},
		{"zones", o.zones, 1, maxNodes},
		{"per-node", o.perNode, 0, maxPerNode},
		{"per-zone", o.perZone, 0, maxPerNode},
		{"pair-series", o.pairSeries, 0, maxPairSeries},
		{"paths", o.paths, 1, maxPaths},
		{"classes", o.classes, 1, maxPaths},
		{"source-ports", o.sourcePorts, 1, 1024},
		{"ecmp-paths", o.ecmpPaths, 0, 1024},
	} {
		if f.value < f.min || f.value > f.max {
			return usage("--%s %d is out of bounds; write %d to %d", f.name, f.value, f.min, f.max)
		}
	}
	p := o.probes()
	o.size = cmp.Or(o.size, p.Traits().Size)
	if problem, fix := p.CheckSize(o.size); problem != "" {
		return usage("--size %d %s; %s", o.size, problem, fix)
	}
	if o.interval < 100*time.Microsecond || o.interval > time.Hour {
		return usage("--interval %v is out of bounds; write 100us to 1h", o.interval)
	}
	if o.pathMTU != 0 && (o.pathMTU < 10*time.Second || o.pathMTU > 24*time.Hour) {
		return usage("--path-mtu %v is out of bounds; write 10s to 24h, or 0", o.pathMTU)
	}
	return nil
}

func (o *options) run(stdout io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	nodes, err := o.site()
	if err != nil {
		return err
	}
	r, err := o.report(nodes)
	if err != nil {
		return err
	}
	if o.json {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	return r.print(stdout)
}

// site returns the nodes.
func (o *options) site() (nodes []mesh.Node, err error) {
	if o.file == "" {
		perRack := max(o.perRack, 1)
		racks := (o.nodes + perRack - 1) / perRack
		for i := range o.nodes {
			n, rack := mesh.Node{Name: fmt.Sprintf("node%d", i)}, i/perRack
			if o.perRack > 0 {
				n.Rack = fmt.Sprintf("rack%d", rack)
			}
			if o.zones > 1 {
				n.Zone = fmt.Sprintf("zone%d", rack*o.zones/racks)
			}
			nodes = append(nodes, n)
		}
		return nodes, nil
	}
	f, err := os.Open(o.file)
	if err != nil {
		return nil, usage("--file: %v", err)
	}
	defer f.Close()
	peers, err := discovery.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.file, err)
	}
	for _, p := range peers {
		nodes = append(nodes, mesh.Node{Name: p.Name, Rack: p.Rack, Zone: p.Zone})
	}
	return nodes, nil
}

func (o *options) report(nodes []mesh.Node) (*Report, error) {
	r := &Report{Nodes: len(nodes), Shown: o.show}
	targets := o.paths * o.classes
	site := mesh.New(nodes, mesh.Rule{Within: mesh.Area(o.within), PerNode: o.perNode, PerZone: o.perZone})
	probes, probed, groups := make([]int, len(nodes)), make(map[string]int, len(nodes)), make([]int, len(nodes))
	shown := o.show == ""
	for i, n := range nodes {
		peers := site.Peers(n)
		probes[i] = len(peers)
		r.Pairs += len(peers)
		zones := make(map[string]bool)
		for _, p := range peers {
			probed[p.Name]++
			zones[p.Zone] = true
			if n.Name == o.show {
				r.Peers = append(r.Peers, p.Name)
			}
		}
		groups[i] = len(zones) * targets
		shown = shown || n.Name == o.show
	}
	if !shown {
		return nil, usage("--show %q is none of the nodes", o.show)
	}
	answered, busiest := make([]int, len(nodes)), 0
	for i, n := range nodes {
		answered[i] = probed[n.Name]
		busiest = max(busiest, probes[i]+answered[i])
	}
	r.PeersPerNode, r.ProbedBy = span(probes, 1), span(answered, 1)
	r.TargetsPerNode = span(probes, targets)
	if err := o.count(r, probes, groups); err != nil {
		return nil, err
	}
	perSecond := float64(targets) / o.interval.Seconds()
	r.ProbesPerNode = float64(r.PeersPerNode.Max) * perSecond
	r.PacketsPerNode = 2 * float64(busiest) * perSecond
	r.BitsPerNode = float64(busiest) * perSecond * float64(o.size+headers) * 8
	r.Packets = 2 * float64(r.Pairs) * perSecond
	if o.pathMTU > 0 {
		r.Searches = float64(r.TargetsPerNode.Max) / o.pathMTU.Hours()
		r.SearchPackets = 2 * pathmtu.MaxPackets * float64(busiest*targets) / o.pathMTU.Seconds()
	}
	if o.ecmpPaths > 0 {
		ratio := coverage.Ratio(o.sourcePorts, o.ecmpPaths)
		r.CoverageRatio = &ratio
	}
	return r, nil
}

// count counts the series, given how many nodes each node probes and into how many groups
// these are added up.
func (o *options) count(r *Report, probes, groups []int) (err error) {
	p, targets := o.probes(), o.paths*o.classes
	if r.SeriesPerTarget, err = o.series.Target(p); err != nil {
		return err
	}
	most, err := o.series.AtMost(p)
	if err != nil {
		return err
	}
	if o.pathMTU > 0 {
		searches := 1 + len(pathmtu.Outcomes()) // the value, and the searches by outcome
		r.SeriesPerTarget, most = r.SeriesPerTarget+searches, most+searches
	}
	known := make(map[int]int)
	rest, worst := make([]int, len(probes)), make([]int, len(probes))
	for i := range probes {
		n, ok := known[groups[i]]
		if !ok {
			if n, err = o.series.Node(p, groups[i]); err != nil {
				return err
			}
			known[groups[i]] = n
		}
		rest[i], worst[i] = n, n+min(o.pairSeries/most, probes[i]*targets)*most
		r.Series += rest[i]
		r.WorstSeries += worst[i]
	}
	r.SeriesAtRest, r.SeriesAtWorst, r.PairsInBudget = span(rest, 1), span(worst, 1), o.pairSeries/most
	r.FullMeshSeries = len(probes) * (len(probes) - 1) * targets * r.SeriesPerTarget
	return nil
}

func span(values []int, factor int) (r Range) {
	sum := 0
	for i, v := range values {
		if i == 0 {
			r.Min = v * factor
		}
		r.Min, r.Max = min(r.Min, v*factor), max(r.Max, v*factor)
		sum += v * factor
	}
	r.Mean = float64(sum) / float64(max(len(values), 1))
	return r
}

func (r *Report) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, s Range) { fmt.Fprintf(t, "%s\t%d to %d\tmean %.1f\n", name, s.Min, s.Max, s.Mean) }
	fmt.Fprintf(t, "nodes\t%d\t%d directed pairs\n", r.Nodes, r.Pairs)
	row("nodes that a node probes", r.PeersPerNode)
	row("nodes that probe a node", r.ProbedBy)
	row("targets per node", r.TargetsPerNode)
	row("series per node at rest", r.SeriesAtRest)
	row("series per node at most", r.SeriesAtWorst)
	fmt.Fprintf(t, "pairs with series of their own\tup to %d\t%d series each; those that are bad or asked for\n", r.PairsInBudget, r.SeriesPerTarget)
	fmt.Fprintf(t, "series of all nodes\t%d\tat most %d; with series for every pair of a full mesh %d\n", r.Series, r.WorstSeries, r.FullMeshSeries)
	fmt.Fprintf(t, "probes per second, busiest node\t%.6g\t\n", r.ProbesPerNode)
	fmt.Fprintf(t, "packets per second, busiest node\t%.6g\tprobes and answers of both roles\n", r.PacketsPerNode)
	fmt.Fprintf(t, "load each way, busiest node\t%.4g Mbit/s\ton the wire, without tunnels\n", r.BitsPerNode/1e6)
	fmt.Fprintf(t, "packets per second, all nodes\t%.6g\t\n", r.Packets)
	if r.Searches > 0 {
		fmt.Fprintf(t, "path MTU searches per hour, busiest node\t%.6g\tat most %.4g packets per second of both roles; mostly a fortieth of that\n", r.Searches, r.SearchPackets)
	}
	if r.CoverageRatio != nil {
		fmt.Fprintf(t, "equal-cost paths covered\t%.2f %%\tby the source ports of a target\n", *r.CoverageRatio*100)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range r.Peers {
		if _, err := fmt.Fprintf(w, "%s probes %s\n", r.Shown, p); err != nil {
			return err
		}
	}
	return nil
}
