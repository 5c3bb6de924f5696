package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vigia/internal/netns"
	"vigia/internal/testutil"
	"vigia/probes/pages"
)

// inside returns what connects from within a network namespace.
func inside(ns string) http.RoundTripper {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
			err = netns.Do(ns, func() (err error) {
				c, err = net.DialTimeout(network, address, patience)
				return err
			})
			return c, err
		},
	}
}

// pod is a node's prober in a network namespace of its own, as in a pod: without any right.
const pod = `node: %[1]s
reflector: {listeners: [{address: "10.244.0.%[2]d:8620"}], allow: [10.0.0.0/8]}
health: {schedule_lag: 1m}
clock: {error_bound: 10us}
paths:
  - {name: pods, dataplane: auto, encap: auto, mode: normal, security: none, layer: underlay, placement: remote}
  - {name: net, dataplane: auto, encap: none, mode: normal, security: none, layer: overlay, placement: remote, further: true}
classes:
  - {name: stamp-84, protocol: stamp, size: 84, interval: 20ms, deadline: 10s}
discovery:
  - files: [%[3]s]
    refresh: 1s
    targets:
      - {path: pods, tenant: _infra, probe: stamp-84, port: 8620}
      - {path: net, tenant: _infra, probe: stamp-84, port: 8620, twin: pods}
`

// startPod runs the program in a namespace.
func startPod(t *testing.T, program, ns, config string) *running {
	t.Helper()
	d := &running{t: t, config: filepath.Join(t.TempDir(), "probe.yaml"), stderr: &syncBuffer{}, netns: ns, url: "http://127.0.0.1:9871"}
	d.write(config)
	testutil.Run(t, "chmod", "-R", "a+rX", filepath.Dir(filepath.Dir(d.config)))
	plain := unprivileged(program, d.config, "127.0.0.1:9871")
	cmd := exec.Command("ip", append([]string{"netns", "exec", ns}, plain.Args...)...)
	cmd.Stderr = d.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	d.waitFor("the daemon to answer", func() bool { code, _ := d.get("/-/healthy"); return code == http.StatusOK })
	return d
}

// inFlight returns how many probes of a path are under way.
func (d *running) inFlight(path string) (n uint64) {
	d.t.Helper()
	var views struct {
		Targets []pages.TargetView `json:"targets"`
	}
	code, body := d.get("/debug/targets")
	if err := json.Unmarshal([]byte(body), &views); code != http.StatusOK || err != nil {
		d.t.Fatalf("%d %v %.300s", code, err, body)
	}
	for _, v := range views.Targets {
		if v.Path == path {
			n += v.InFlight
		}
	}
	return n
}

// TestFurtherNetworksOfPods: two pods with a second interface each find it, tell each other, and probe there beside
// the usual network; it is named by what it is, and what is lost there is lost there alone.
func TestFurtherNetworksOfPods(t *testing.T) {
	testutil.RequireRoot(t)
	a, b, fabric := testutil.NewNetNS(t), testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, a, "eth0", b, "eth0")
	for _, line := range []string{"link add br0 type bridge", "link set br0 up"} {
		testutil.IP(t, append([]string{"-n", fabric}, strings.Fields(line)...)...)
	}
	for i, ns := range []string{a, b} {
		port := fmt.Sprintf("port%d", i)
		testutil.NewVethPair(t, ns, "wire", fabric, port)
		testutil.IP(t, "-n", fabric, "link", "set", port, "master", "br0")
		for _, line := range []string{
			"link set lo up", fmt.Sprintf("addr add 10.244.0.%d/24 dev eth0", i+1),
			"link add link wire name net1 type macvlan mode bridge", fmt.Sprintf("addr add 10.88.0.%d/24 dev net1", i+1), "link set net1 up",
		} {
			testutil.IP(t, append([]string{"-n", ns}, strings.Fields(line)...)...)
		}
	}
	nodes := filepath.Join(t.TempDir(), "pods.json")
	text := `[{"targets": ["10.244.0.1"], "labels": {"node": "a", "zone": "z1"}}, {"targets": ["10.244.0.2"], "labels": {"node": "b", "zone": "z2"}}]`
	if err := os.WriteFile(nodes, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	testutil.Run(t, "chmod", "a+rX", filepath.Dir(nodes), filepath.Dir(filepath.Dir(nodes)))
	program := filepath.Join(t.TempDir(), "vigia-probe")
	testutil.Run(t, "go", "build", "-o", program, "vigia/probes")
	testutil.Run(t, "chmod", "-R", "a+rX", filepath.Dir(filepath.Dir(program)))
	both := map[string]*running{"a": startPod(t, program, a, fmt.Sprintf(pod, "a", 1, nodes)), "b": startPod(t, program, b, fmt.Sprintf(pod, "b", 2, nodes))}
	for name, d := range both {
		for what, series := range map[string][]string{
			"probes of the mesh on the second network": {"vigia_probe_mesh_sent_total", "path", "net-net1"},
			"delays there":                {"vigia_probe_mesh_rtt_seconds", "path", "net-net1"},
			"delays on the usual network": {"vigia_probe_mesh_rtt_seconds", "path", "pods"},
			"what it costs":               {"vigia_probe_mesh_overlay_tax_seconds", "path", "net-net1"},
		} {
			d.waitFor(name+": "+what, func() bool { v, ok := d.scrape().value(series[0], series[1:]...); return ok && v > 20 })
		}
		s := d.scrape()
		if v := s.must(t, "vigia_path_info", "path", "net-net1", "dataplane", "macvlan", "encap", "none", "layer", "overlay"); v != 1 {
			t.Errorf("%s: the path is described by %v", name, v)
		}
		if _, ok := s.value("vigia_path_info", "path", "net"); ok {
			t.Errorf("%s: what stands for networks is described as a path", name)
		}
	}
	for name, d := range both {
		d.waitFor(name+" to answer in both networks under one name", func() bool {
			v, ok := d.scrape().value("vigia_reflector_reflected_total", "listener", "_host")
			return ok && v > 100
		})
	}
	d := both["a"]
	// Before the other was there some were lost on the usual network as well.
	lost := func(path string) (sum float64) {
		for _, cause := range []string{"network", "host"} {
			v, _ := d.scrape().value("vigia_probe_mesh_lost_total", "path", path, "cause", cause)
			sum += v
		}
		return sum
	}
	d.waitFor("what was sent before the other was there to be given up", func() bool { return d.inFlight("pods") == 0 })
	testutil.IP(t, "-n", fabric, "link", "set", "port1", "down")
	before, usual := lost("net-net1"), lost("pods")
	d.waitFor("losses on the second network", func() bool {
		_, own := d.scrape().value("vigia_probe_sent_total", "dst", "b", "path", "net-net1")
		return own && lost("net-net1") > before+20
	})
	if now := lost("pods"); now > usual {
		t.Errorf("the usual network lost %v with it", now-usual)
	}
	testutil.IP(t, "-n", fabric, "link", "set", "port1", "up")
	before, _ = d.scrape().value("vigia_probe_received_total", "dst", "b", "path", "net-net1")
	d.waitFor("answers there again", func() bool {
		v, ok := d.scrape().value("vigia_probe_received_total", "dst", "b", "path", "net-net1")
		return ok && v > before+20
	})
	testutil.IP(t, "-n", a, "link", "del", "net1")
	d.waitFor("the path to go with the interface", func() bool {
		s := d.scrape()
		_, probed := s.value("vigia_probe_mesh_sent_total", "path", "net-net1")
		_, described := s.value("vigia_path_info", "path", "net-net1")
		return !probed && !described
	})
	if _, ok := d.scrape().value("vigia_probe_mesh_rtt_seconds", "path", "pods"); !ok {
		t.Error("the usual path went with it")
	}
}
