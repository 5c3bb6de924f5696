package ports

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vigia/internal/rtnl"
	"vigia/internal/testutil"
)

// recorded are results as containerd 1.6.20 kept them on a node of Kubernetes 1.34.1 with
// the plugins bridge, portmap and bandwidth.
const recorded = "testdata/cni"

func recordedResult(t *testing.T, suffix string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(recorded, suffix))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	b, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestResultsOfPluginsTellWhoseADeviceIs(t *testing.T) {
	compare := identity{
		Port: "802ae99b-6d1e-4c23-ae76-6bb2f77af081/eth0", Tenant: "vigia", Network: "lab", Workload: "vigia-compare-7df9f8dcb4-j7lf4", Source: "cni",
	}
	whole := recordedResult(t, "lab-524b88*")
	for _, tc := range []struct {
		name, json string
		want       map[string]identity
		failure    string
	}{
		{"a pod on a bridge", whole, map[string]identity{"cni0": compare, "veth4399da88": compare}, ""},
		{"a pod's loopback", recordedResult(t, "cni-loopback-524b88*"), map[string]identity{}, ""},
		{"no UID", strings.Replace(whole, "K8S_POD_UID", "OTHER", 1), nil, ""},
		{"not of a pod", strings.Replace(whole, "K8S_POD_NAMESPACE", "OTHER", 1), map[string]identity{}, ""},
		{"a macvlan, which has no device on the node", `{"kind": "cniCacheV1", "ifName": "net1", "cniArgs": [["K8S_POD_NAMESPACE", "red"]],
			"result": {"interfaces": [{"name": "net1", "sandbox": "/var/run/netns/x"}]}}`, map[string]identity{}, ""},
		{"another kind", strings.Replace(whole, "cniCacheV1", "cniCacheV9", 1), nil, `its kind is "cniCacheV9"`},
		{"cut off", whole[:len(whole)/2], nil, "unexpected end of JSON"},
		{"too long", whole + strings.Repeat(" ", maxCNIResult), nil, "longer than 1048576 bytes"},
		{"another form", `{"kind": "cniCacheV1", "cniArgs": {"K8S_POD_NAMESPACE": "red"}}`, nil, "cannot unmarshal"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseCNI(strings.NewReader(tc.json))
			if tc.failure != "" {
				if err == nil || !strings.Contains(err.Error(), tc.failure) {
					t.Errorf("got %v, want %q", err, tc.failure)
				}
				return
			}
			if tc.want == nil { // the sandbox's id takes the UID's place
				if id := got["veth4399da88"]; err != nil || !strings.HasPrefix(id.Port, "524b88f6ff76") {
					t.Errorf("%v, %v", got, err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestOnlyWhatLeadsToOnePodIsAPort gives a node's devices to a single pod: the bridge and
// the tunnel that its plugin names beside its veth are not its ports.
func TestOnlyWhatLeadsToOnePodIsAPort(t *testing.T) {
	pod := identity{Port: "uid/eth0", Tenant: "shop", Workload: "web-0", Source: "cni"}
	var links []rtnl.Link
	claimed := make(map[string]identity)
	for i, kind := range []string{"bridge", "vxlan", "veth", "", "tun", "netkit"} {
		name := fmt.Sprintf("dev%d", i)
		links = append(links, rtnl.Link{Index: i + 1, Name: name, Kind: kind, Up: true})
		claimed[name] = pod
	}
	var got []string
	for _, p := range resolve(links, facts{cni: claimed}) {
		if p.Tenant != "shop" || p.Workload != "web-0" || p.Source != "cni" {
			t.Errorf("%+v", p)
		}
		got = append(got, p.Device)
	}
	if diff := cmp.Diff([]string{"dev2", "dev4", "dev5"}, got); diff != "" {
		t.Error(diff)
	}
}

// result is what libcni writes of a pod.
func result(pod int, device string) string {
	return fmt.Sprintf(`{"kind": "cniCacheV1", "containerId": "sandbox-%d", "ifName": "eth0", "networkName": "lab",
		"cniArgs": [["K8S_POD_NAMESPACE", "tenant-%d"], ["K8S_POD_NAME", "web-%d"], ["K8S_POD_UID", "uid-%d"]],
		"result": {"interfaces": [{"name": "cni0"}, {"name": %q}, {"name": "eth0", "sandbox": "/var/run/netns/x"}]}}`, pod, pod%7, pod, pod, device)
}

func TestADeviceThatTwoPodsClaimIsNobodys(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		write(t, filepath.Join(dir, fmt.Sprintf("lab-%d-eth0", i)), result(i, fmt.Sprintf("veth%d", i)))
	}
	c := cniResults(dir)
	devices, err := c.read()
	if _, shared := devices["cni0"]; err != nil || shared || len(devices) != 3 || devices["veth2"].Tenant != "tenant-2" {
		t.Errorf("%v, %v", devices, err)
	}
}

func TestAResultThatIsBeingWrittenIsNoFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lab-0-eth0")
	whole := result(0, "veth0")
	write(t, path, whole[:40])
	c := cniResults(dir)
	if devices, err := c.read(); err != nil || len(devices) != 0 {
		t.Errorf("%v, %v", devices, err)
	}
	old := time.Now().Add(-2 * c.settles)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := c.read(); err == nil || !strings.Contains(err.Error(), "CNI result lab-0-eth0: unexpected end of JSON") {
		t.Errorf("half a result that stays: %v", err)
	}
	write(t, path, whole)
	if devices, err := c.read(); err != nil || devices["veth0"].Workload != "web-0" {
		t.Errorf("%v, %v", devices, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := c.read(); err == nil || !strings.Contains(err.Error(), "cni_results_dir "+dir+" does not exist; write /var/lib/cni/results, or remove it without CNI") {
		t.Error(err)
	}
}

// TestPodsThatComeAndGoAreAttributed makes and removes pods at ten a second as a runtime
// does: the device first, then its result, and in reverse. Each is known before a scrape.
func TestPodsThatComeAndGoAreAttributed(t *testing.T) {
	pods := 250
	if testing.Short() {
		pods = 30
	}
	const scrape = 15 * time.Second
	dir := t.TempDir()
	node := testutil.NewNetNS(t)
	testutil.IP(t, "-n", node, "link", "add", "cni0", "type", "bridge")
	r := newRig(t, Sources{NetNS: node, CNI: dir})
	file := func(i int) string { return filepath.Join(dir, fmt.Sprintf("lab-%d-eth0", i)) }
	device := func(i int) string { return fmt.Sprintf("veth%d", i) }
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	before := heap()
	made := make(map[int]time.Time)
	known := func(i int) bool {
		p, ok := r.inv.Lookup(fmt.Sprintf("uid-%d/eth0", i))
		return ok && p.Tenant == fmt.Sprintf("tenant-%d", i%7) && p.Device == device(i) && p.Bridge == "cni0"
	}
	check := func() {
		for i, at := range made {
			if known(i) {
				delete(made, i)
			} else if time.Since(at) > scrape {
				t.Fatalf("pod %d is not attributed after %s", i, scrape)
			}
		}
	}
	for i := range pods {
		<-every.C
		testutil.IP(t, "-n", node, "link", "add", device(i), "type", "veth", "peer", "name", device(i)+"p")
		testutil.IP(t, "-n", node, "link", "set", device(i), "master", "cni0", "up")
		write(t, file(i), result(i, device(i)))
		made[i] = time.Now()
		check()
	}
	testutil.WaitFor(t, "all pods to be attributed", func() bool { check(); return len(made) == 0 })
	for i := range pods {
		<-every.C
		testutil.IP(t, "-n", node, "link", "del", device(i))
		if err := os.Remove(file(i)); err != nil {
			t.Fatal(err)
		}
	}
	testutil.WaitFor(t, "all pods to be gone", func() bool { return len(r.ids()) == 0 })
	var after uint64
	defer func() { t.Logf("the heap had %d bytes before %d pods came and went, and has %d", before, pods, after) }()
	testutil.WaitFor(t, "the heap to be what it was", func() bool { // it may be looking at the interfaces once more
		after = heap()
		return after <= before+1<<20
	})
	r.stop()
}

// heap returns what is reachable, in bytes.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
