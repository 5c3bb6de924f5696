package testutil

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// OVSDBServer is a real ovsdb-server with an empty Open_vSwitch database.
type OVSDBServer struct {
	t      testing.TB
	dir    string
	cmd    *exec.Cmd
	args   []string
	Socket string // path of the unix socket
}

// NewOVSDBServer starts an ovsdb-server that ends with the test, with further
// arguments.
func NewOVSDBServer(t testing.TB, args ...string) *OVSDBServer {
	t.Helper()
	if _, err := exec.LookPath("ovsdb-server"); err != nil {
		t.Fatal("ovsdb-server is missing; apt-get install openvswitch-switch")
	}
	dir := t.TempDir()
	s := &OVSDBServer{t: t, dir: dir, args: args, Socket: filepath.Join(dir, "db.sock")}
	Run(t, "ovsdb-tool", "create", filepath.Join(dir, "conf.db"), "/usr/share/openvswitch/vswitch.ovsschema")
	s.Start()
	t.Cleanup(s.Stop)
	s.VSCtl("--no-wait", "init")
	return s
}

// Start starts the server, after Stop again on the same database.
func (s *OVSDBServer) Start() {
	s.t.Helper()
	s.cmd = exec.Command("ovsdb-server", append([]string{
		filepath.Join(s.dir, "conf.db"), "--remote=punix:" + s.Socket,
		"--unixctl=" + filepath.Join(s.dir, "ctl"), "--log-file=" + filepath.Join(s.dir, "log"),
	}, s.args...)...)
	s.cmd.Env = append(os.Environ(), "OVS_RUNDIR="+s.dir)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start ovsdb-server: %v", err)
	}
	WaitFor(s.t, "ovsdb-server to open its socket", func() bool { return listens(s.Socket) })
}

// listens tells whether somebody accepts connections at a unix socket, which is there a
// moment before that.
func listens(path string) bool {
	c, err := net.Dial("unix", path)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// Stop kills the server, as a crash would.
func (s *OVSDBServer) Stop() {
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Kill(); err == nil {
		_ = s.cmd.Wait()
	}
	s.cmd = nil
	_ = os.Remove(s.Socket)
}

// VSCtl runs ovs-vsctl against the server.
func (s *OVSDBServer) VSCtl(args ...string) string {
	s.t.Helper()
	return strings.TrimSpace(Run(s.t, "ovs-vsctl", append([]string{"--db=unix:" + s.Socket, "--no-wait"}, args...)...))
}

// PID returns the server's process.
func (s *OVSDBServer) PID() int { return s.cmd.Process.Pid }

// AppCtl runs a command of the server's control socket.
func (s *OVSDBServer) AppCtl(args ...string) string {
	s.t.Helper()
	return Run(s.t, "ovs-appctl", append([]string{"-t", filepath.Join(s.dir, "ctl")}, args...)...)
}

// Signal sends the server a signal.
func (s *OVSDBServer) Signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("signal ovsdb-server: %v", err)
	}
}
