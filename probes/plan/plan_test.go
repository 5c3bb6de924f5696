package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"vigia/internal/daemon"
	"vigia/probes/protocol"
)

func always(n int) func(protocol.Protocol) (int, error) {
	return func(protocol.Protocol) (int, error) { return n, nil }
}

func command() *options {
	return &options{
		nodes: 100, perRack: 20, perNode: 8, paths: 1, classes: 1, interval: time.Second, size: 64, sourcePorts: 1,
		json: true, pairSeries: 1000, zones: 1, within: "rack",
		series: Series{Target: always(30), AtMost: always(40), Node: func(_ protocol.Protocol, groups int) (int, error) { return 5 + 9*groups, nil }},
	}
}

func plan(t *testing.T, change func(*options)) (*Report, error) {
	t.Helper()
	o := command()
	change(o)
	var out bytes.Buffer
	if err := o.run(&out); err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return &r, nil
}

func must(t *testing.T, change func(*options)) *Report {
	t.Helper()
	r, err := plan(t, change)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTenThousandNodes(t *testing.T) {
	r := must(t, func(o *options) { o.nodes, o.perRack, o.paths, o.classes = 10_000, 40, 3, 2 })
	const peers = 39 + 8
	if r.Pairs != 10_000*peers || r.PeersPerNode != (Range{peers, peers, peers}) {
		t.Errorf("%+v", r)
	}
	// Nine series for each path and class, and five for the node; twenty-five pairs of forty.
	const rest = 5 + 6*9
	if r.Series != 10_000*rest || r.SeriesAtRest != (Range{rest, rest, rest}) || r.FullMeshSeries != 10_000*9999*6*30 {
		t.Errorf("%+v", r)
	}
	if r.PairsInBudget != 25 || r.SeriesAtWorst.Max != rest+1000 || r.WorstSeries != 10_000*(rest+1000) {
		t.Errorf("%+v", r)
	}
	if r.ProbesPerNode != peers*6 || r.Packets != 2*10_000*peers*6 {
		t.Errorf("%+v", r)
	}
	// Everybody is probed by its rack at least, and nobody by very many.
	if r.ProbedBy.Min < 39 || r.ProbedBy.Max > 39+32 || r.ProbedBy.Mean != peers {
		t.Errorf("%+v", r.ProbedBy)
	}
}

// Each zone that a node probes is a group of series, and few pairs have fewer series than the
// budget allows.
func TestZones(t *testing.T) {
	r := must(t, func(o *options) {
		o.nodes, o.perRack, o.zones, o.perNode, o.perZone, o.pairSeries = 400, 10, 4, 3, 2, 10_000
	})
	const peers, rest = 9 + 3 + 3*2, 5 + 4*9
	if r.PeersPerNode != (Range{peers, peers, peers}) || r.SeriesAtRest.Max != rest || r.SeriesAtWorst.Max != rest+peers*40 {
		t.Errorf("%+v", r)
	}
	if r = must(t, func(o *options) { o.nodes, o.zones, o.within, o.perNode = 400, 4, "zone", 3 }); r.PeersPerNode.Max != 99+3 {
		t.Errorf("within zones: %+v", r.PeersPerNode)
	}
}

func TestSmallSite(t *testing.T) {
	r := must(t, func(o *options) { o.nodes, o.perNode, o.show, o.ecmpPaths, o.sourcePorts = 3, 0, "node1", 2, 2 })
	if r.Pairs != 6 || strings.Join(r.Peers, " ") != "node0 node2" || *r.CoverageRatio != 0.75 {
		t.Errorf("%+v", r)
	}
	// Two nodes probed and two that probe us: four packets out, four in.
	if r.PacketsPerNode != 8 || r.BitsPerNode != 4*(64+66)*8 {
		t.Errorf("%+v", r)
	}
}

// Searches of the path MTU are series and packets, too.
func TestPathMTU(t *testing.T) {
	r := must(t, func(o *options) { o.nodes, o.perRack, o.perNode, o.classes, o.pathMTU = 3, 0, 0, 2, 10*time.Minute })
	if r.SeriesPerTarget != 30+5 || r.Searches != 2*2*6 || math.Abs(r.SearchPackets-2*1000*8/600.0) > 1e-9 {
		t.Errorf("%+v", r)
	}
	if r := must(t, func(*options) {}); r.Searches != 0 || r.SearchPackets != 0 || r.SeriesPerTarget != 30 {
		t.Errorf("without: %+v", r)
	}
}

func TestNodesOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodes.json")
	content := `[{"targets":["10.0.0.1"],"labels":{"node":"a","rack":"r"}},{"targets":["10.0.0.2"],"labels":{"node":"b","rack":"r"}}]`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	r := must(t, func(o *options) { o.file, o.show = path, "a" })
	if r.Nodes != 2 || strings.Join(r.Peers, " ") != "b" {
		t.Errorf("%+v", r)
	}
}

func TestMistakes(t *testing.T) {
	for want, change := range map[string]func(*options){
		"--nodes 50001 is out of bounds; write 1 to 50000":                      func(o *options) { o.nodes = 50_001 },
		"--interval 0s is out of bounds":                                        func(o *options) { o.interval = 0 },
		"--path-mtu 1s is out of bounds":                                        func(o *options) { o.pathMTU = time.Second },
		"--size 43 is not a possible size of a STAMP packet; write 44 to 65507": func(o *options) { o.size = 43 },
		`--show "x" is none of the nodes`:                                       func(o *options) { o.show = "x" },
		"--file: open /does/not/exist":                                          func(o *options) { o.file = "/does/not/exist" },
	} {
		_, err := plan(t, change)
		var mistake *daemon.UsageError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestTable(t *testing.T) {
	o := command()
	o.nodes, o.perRack, o.perNode, o.ecmpPaths, o.show, o.json = 3, 0, 1, 1, "node0", false
	var out bytes.Buffer
	if err := o.run(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 directed pairs", "30 series each", "series for every pair of a full mesh 180", "node0 probes node", "100.00 %"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// carryOut runs the command with a command line, as the program does.
func carryOut(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	c := Command(command().series)
	app := kingpin.New("test", "").Terminate(nil)
	do := c.Register(app.Command(c.Name, c.Help))
	if _, err := app.Parse(append([]string{c.Name}, arguments...)); err != nil {
		return "", err
	}
	var out bytes.Buffer
	err := do(t.Context(), &out, &out)
	return out.String(), err
}

// TestCommandLine: every option reaches the plan.
func TestCommandLine(t *testing.T) {
	plain, err := carryOut(t, "--json")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{plain: "no option"}
	for _, option := range []string{
		"--nodes=50", "--per-rack=10", "--per-node=4", "--zones=2", "--zones=2 --per-zone=3", "--within=zone", "--pair-series=80", "--paths=2", "--classes=3", "--interval=2s", "--protocol=icmp",
		"--size=200", "--ecmp-paths=4", "--path-mtu=1h", "--show=node7",
	} {
		text, err := carryOut(t, append([]string{"--json"}, strings.Fields(option)...)...)
		if err != nil {
			t.Errorf("%s: %v", option, err)
		} else if same, twice := seen[text]; twice {
			t.Errorf("%s changes nothing beside %s", option, same)
		}
		seen[text] = option
	}
	for _, bad := range [][]string{{"--protocol=tcp-connect"}, {"--nodes=many"}, {"--interval=5"}, {"--nodes=0"}, {"extra"}} {
		if text, err := carryOut(t, bad...); err == nil {
			t.Errorf("%v: %s", bad, text)
		}
	}
}
