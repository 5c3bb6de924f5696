package app

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vigia/internal/testutil"
)

// unprivileged returns the program, run as nobody with these capabilities alone.
func unprivileged(program, config, address string, capabilities ...string) *exec.Cmd {
	set := "-all"
	for _, c := range capabilities {
		set += ",+" + c
	}
	return exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs",
		"--inh-caps="+set, "--ambient-caps="+set, "--bounding-set="+set,
		program, "--config", config, "--web.listen-address", address)
}

// Without root each kind of probe needs the capabilities that the README lists and
// no others; without them the program says which one is missing.
func TestWithoutRoot(t *testing.T) {
	testutil.RequireRoot(t)
	left, _ := network(t)
	program := filepath.Join(t.TempDir(), "vigia-probe")
	testutil.Run(t, "go", "build", "-o", program, "vigia/probes")
	testutil.Run(t, "chmod", "-R", "a+rX", filepath.Dir(filepath.Dir(program)))
	const classes = `paths:
  - {name: p, dataplane: none, encap: none, mode: normal, security: none, layer: underlay, placement: local}
classes:
  - {name: stamp, protocol: stamp, size: 64, interval: 50ms}
  - {name: icmp, protocol: icmp, size: 56, interval: 50ms}
  - {name: connect, protocol: tcp-connect, interval: 50ms}
`
	stamp := func(port int, netns string) string {
		return fmt.Sprintf("node: a\nreflector: {listeners: [{address: '127.0.0.1:%d'}], allow: [127.0.0.0/8]}\n%stargets:\n  - {dst: a, path: p, tenant: t, probe: stamp, netns: %q, address: '127.0.0.1:%d'}\n", port, classes, netns, port)
	}
	free := func() int { return int(testutil.FreePort(t, "udp", "127.0.0.1").Port()) }
	icmp := "node: a\n" + classes + "targets:\n  - {dst: a, path: p, tenant: t, probe: icmp, address: 127.0.0.1}\n"
	if testutil.Run(t, "sysctl", "-n", "net.ipv4.ping_group_range") != "1\t0\n" {
		t.Fatal("net.ipv4.ping_group_range lets everybody ping; the test needs its default, 1 0")
	}
	for _, tc := range []struct {
		name, config string
		capabilities []string
		missing      string // what the program says when it refuses to start
	}{
		{"stamp without any", stamp(free(), ""), nil, ""},
		{"reflector on a low port", stamp(862, ""), nil, "CAP_NET_BIND_SERVICE"},
		{"reflector on a low port, allowed", stamp(862, ""), []string{"net_bind_service"}, ""},
		{"echo", icmp, nil, "CAP_NET_RAW"},
		{"echo, allowed", icmp, []string{"net_raw"}, ""},
		{"namespace", stamp(free(), left), nil, "CAP_SYS_ADMIN"},
		{"mark", strings.Replace(stamp(free(), ""), "size: 64,", "size: 64, mark: 7,", 1), nil, "CAP_NET_ADMIN"},
		{"mark, allowed", strings.Replace(stamp(free(), ""), "size: 64,", "size: 64, mark: 7,", 1), []string{"net_admin"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &running{t: t, config: filepath.Join(t.TempDir(), "probe.yaml"), stderr: &syncBuffer{}}
			d.write(tc.config)
			testutil.Run(t, "chmod", "-R", "a+rX", filepath.Dir(filepath.Dir(d.config)))
			address := testutil.FreeAddress(t)
			d.url = "http://" + address
			cmd := unprivileged(program, d.config, address, tc.capabilities...)
			cmd.Stderr = d.stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			exited := make(chan error, 1)
			go func() { exited <- cmd.Wait() }()
			if tc.missing != "" {
				if err := <-exited; err == nil || !strings.Contains(d.stderr.String(), tc.missing) {
					t.Errorf("%v, want it to ask for %s\n%s", err, tc.missing, d.stderr)
				}
				return
			}
			defer func() {
				_ = cmd.Process.Kill()
				<-exited
			}()
			d.waitFor("answers", func() bool {
				select {
				case err := <-exited:
					exited <- err
					t.Fatalf("it ended: %v\n%s", err, d.stderr)
				default:
				}
				code, _ := d.get("/-/ready")
				if code != http.StatusOK {
					return false
				}
				received, _ := d.scrape().value("vigia_probe_received_total")
				return received > 3
			})
		})
	}
}
