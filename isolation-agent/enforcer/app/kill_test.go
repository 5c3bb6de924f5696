package app

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vigia/internal/bpf/vport"
	"vigia/internal/daemon"
	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// childEnv makes the test binary be the program, so that it can be killed.
const childEnv = "VIGIA_TEST_ENFORCER_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(daemon.Main(Program()))
	}
	os.Exit(m.Run())
}

// kills is how often the process is killed; VIGIA_KILLS asks for more.
func kills(t *testing.T) int {
	t.Helper()
	given := os.Getenv("VIGIA_KILLS")
	if given == "" {
		return 8
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 {
		t.Fatalf("VIGIA_KILLS=%q is no number of kills", given)
	}
	return n
}

// child is the program as a process of its own.
func (r *rig) child() (*exec.Cmd, string) {
	r.t.Helper()
	address := testutil.FreeAddress(r.t)
	cmd := exec.Command(os.Args[0], "--config", r.config, "--web.listen-address", address, "--log.level", "error")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = &testutil.Output{}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	url := "http://" + address
	testutil.WaitFor(r.t, "the process to be ready", func() bool {
		resp, err := http.Get(url + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return cmd, url
}

// hammer sets, renews and removes the limit until stop is closed.
func hammer(url string, stop <-chan struct{}) {
	call := func(method, path, body string) {
		req, err := http.NewRequest(method, url+path, strings.NewReader(body))
		if err != nil {
			return
		}
		req.Header.Set("Authorization", "Bearer "+token)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		call("PUT", "/v1/ports/p-red/limit", body(actionA, "red", "udp", guarantee+uint64(i%7)*1000, 0, 1))
		if i%3 == 2 {
			call("DELETE", "/v1/ports/p-red/limit", "")
		}
	}
}

// TestKillingAtAnyPointLeavesNothingAfterItsTime kills the enforcer while it
// applies, renews and removes limits of one second.
func TestKillingAtAnyPointLeavesNothingAfterItsTime(t *testing.T) {
	r := newScheduledRig(t)
	if code := r.d.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	testutil.IP(t, "-n", r.node, "link", "add", "foreign", "type", "veth", "peer", "name", "foreignp")
	testutil.Run(t, "tc", "-n", r.node, "qdisc", "add", "dev", "foreign", "root", "handle", "77:", "tbf", "rate", "1mbit", "burst", "10k", "limit", "30k")
	show := func(device string) string {
		return testutil.Run(t, "tc", "-n", r.node, "class", "show", "dev", device) + testutil.Run(t, "tc", "-n", r.node, "qdisc", "show", "dev", device)
	}
	guarantees, foreign := show("up0"), show("foreign")
	kernel, err := vport.Open(vport.Options{PinDir: r.pins, NetNS: r.node, MaxPorts: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	index := r.index("tap-red")
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	left := 0
	for range kills(t) {
		cmd, url := r.child()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { hammer(url, stop) })
		time.Sleep(time.Duration(random.IntN(60_000)) * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed, as it should be
		close(stop)
		wg.Wait()
		limit, err := kernel.Limit(index)
		switch {
		case err == nil:
			left++
			if limit.Expires > time.Second {
				t.Fatalf("a limit outlives its time: %+v", limit)
			}
		case !errors.Is(err, vport.ErrNoLimit):
			t.Fatal(err)
		}
		if got := show("foreign"); got != foreign {
			t.Fatalf("the foreign qdisc was %q and is %q", foreign, got)
		}
	}
	t.Logf("%d of %d kills left a limit in force, none for more than its time", left, kills(t))
	testutil.WaitFor(t, "the last limit to end by itself", func() bool {
		_, err := kernel.Limit(index)
		return errors.Is(err, vport.ErrNoLimit)
	})
	if got := r.udp(300); got != 300 {
		t.Errorf("%d of 300 datagrams arrived after the limit's time", got)
	}
	if pairs, err := kernel.Pairs(); err != nil || len(pairs) != 0 {
		t.Errorf("limits to destinations: %v %v", pairs, err)
	}
	if got := show("up0"); got != guarantees {
		t.Errorf("guarantees were\n%s\nand are\n%s", guarantees, got)
	}
}

// index returns the interface index of a device of the node.
func (r *rig) index(device string) int {
	r.t.Helper()
	var found *net.Interface
	err := netns.Do(r.node, func() (err error) { found, err = net.InterfaceByName(device); return err })
	if err != nil {
		r.t.Fatal(err)
	}
	return found.Index
}
