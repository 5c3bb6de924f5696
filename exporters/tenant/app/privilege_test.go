package app

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"vigia/internal/daemon"
	"vigia/internal/testutil"
)

// asProgram in the environment makes the test binary the program itself, so that
// it can be started with fewer capabilities.
const asProgram = "VIGIA_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(daemon.Main(Program()))
	}
	os.Exit(m.Run())
}

// process is the program as a process of its own.
type process struct {
	stderr *testutil.Output
	cmd    *exec.Cmd
	ended  chan struct{}
}

// startProcess runs a command that, in the end, is this test binary as the program.
func startProcess(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{stderr: &testutil.Output{}, cmd: exec.Command(name, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	t.Cleanup(p.kill)
	return p
}

// kill ends it as SIGKILL does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// TestListedCapabilitiesAreEnough runs every collector with what the README asks
// for and nothing else.
func TestListedCapabilitiesAreEnough(t *testing.T) {
	r := newRig(t, "")
	server := testutil.NewVSwitch(t, r.node)
	server.Set("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	content, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(string(content), "netns: "+r.node, `netns: ""`, 1) + "ovsdb: unix:" + server.Socket + "\n"
	r.write("exporter.yaml", config)
	for _, round := range []string{"first start", "restart, beside what is pinned"} {
		p := startProcess(t, "nsenter", "--net=/run/netns/"+r.node,
			"setpriv", "--bounding-set=-all,+bpf,+net_admin,+perfmon", "--inh-caps=-all", "--no-new-privs",
			os.Args[0], "--config", r.config, "--tier=detail", "--web.listen-address", restrictedAddress)
		if failing := waitForAll(r, p); failing != "" {
			t.Fatalf("%s: not every collector works:\n%s\n%s", round, failing, p.stderr)
		}
		p.kill()
	}
}

const restrictedAddress = "127.0.0.1:9872"

// waitForAll waits until every collector works; it returns those that do not within two minutes, or before the end.
func waitForAll(r *rig, p *process) (failing string) {
	var page string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		if page, _ = curl(r.node, "http://"+restrictedAddress+"/metrics"); allWork(page) {
			return ""
		}
		select {
		case <-p.ended:
			deadline = time.Now()
		case <-time.After(100 * time.Millisecond):
		}
	}
	failing = "no port is attached\n"
	for line := range strings.SplitSeq(page, "\n") {
		if strings.HasPrefix(line, "vigia_exporter_collector_success") {
			failing += line + "\n"
		}
	}
	return failing
}

// allWork tells whether every collector has succeeded and a port is attached. There is no
// kubelet to ask for pods' devices.
func allWork(page string) bool {
	names := []string{"ovsdb"}
	for _, c := range collectors() {
		if c.name != "podresources" {
			names = append(names, c.name)
		}
	}
	for _, name := range names {
		if !strings.Contains(page, `vigia_exporter_collector_success{collector="`+name+`"} 1`+"\n") {
			return false
		}
	}
	return strings.Contains(page, `vigia_port_created_timestamp_seconds{port="p1"`)
}

// curl fetches a page from inside a namespace.
func curl(ns, url string) (string, error) {
	out, err := exec.Command("nsenter", "--net=/run/netns/"+ns, "curl", "-sf", url).Output()
	return string(out), err
}
