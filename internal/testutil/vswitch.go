package testutil

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// VSwitch is a real ovs-vswitchd with the userspace datapath in a network
// namespace, beside an ovsdb-server of its own.
type VSwitch struct {
	*OVSDBServer
	Dir string // of the sockets: <bridge>.mgmt and ovs-vswitchd.<pid>.ctl
	NS  string
	cmd *exec.Cmd
}

// NewVSwitch starts a switch in the namespace; it ends with the test.
func NewVSwitch(t testing.TB, ns string) *VSwitch {
	t.Helper()
	RequireRoot(t)
	db := NewOVSDBServer(t)
	s := &VSwitch{OVSDBServer: db, Dir: db.dir, NS: ns}
	s.StartSwitch()
	t.Cleanup(s.StopSwitch)
	return s
}

// StartSwitch starts ovs-vswitchd, after StopSwitch again.
func (s *VSwitch) StartSwitch() {
	s.t.Helper()
	s.cmd = exec.Command("nsenter", "--net=/run/netns/"+s.NS, "ovs-vswitchd", "unix:"+s.Socket, "--disable-system",
		"--pidfile="+filepath.Join(s.Dir, "ovs-vswitchd.pid"), "--log-file="+filepath.Join(s.Dir, "vswitchd.log"))
	s.cmd.Env = append(os.Environ(), "OVS_RUNDIR="+s.Dir, "OVS_LOGDIR="+s.Dir)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start ovs-vswitchd: %v", err)
	}
	WaitFor(s.t, "ovs-vswitchd to listen", func() bool {
		raw, err := os.ReadFile(filepath.Join(s.Dir, "ovs-vswitchd.pid"))
		if err != nil {
			return false
		}
		// The socket is there before anybody listens on it.
		c, err := net.Dial("unix", filepath.Join(s.Dir, "ovs-vswitchd."+strings.TrimSpace(string(raw))+".ctl"))
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
}

// StopSwitch kills ovs-vswitchd, as a crash would. Its sockets and devices stay behind.
func (s *VSwitch) StopSwitch() {
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Kill(); err == nil {
		_ = s.cmd.Wait()
	}
	s.cmd = nil
	_ = os.Remove(filepath.Join(s.Dir, "ovs-vswitchd.pid"))
}

// SignalSwitch sends ovs-vswitchd a signal.
func (s *VSwitch) SignalSwitch(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("signal ovs-vswitchd: %v", err)
	}
}

// Set runs ovs-vsctl and waits until the switch has done it.
func (s *VSwitch) Set(args ...string) string {
	s.t.Helper()
	return strings.TrimSpace(Run(s.t, "ovs-vsctl", append([]string{"--db=unix:" + s.Socket, "--timeout=60"}, args...)...))
}

// OFCtl runs ovs-ofctl against a bridge.
func (s *VSwitch) OFCtl(version, command, bridge string, args ...string) string {
	s.t.Helper()
	return Run(s.t, "ovs-ofctl", append([]string{"-O", version, command, "unix:" + s.Mgmt(bridge)}, args...)...)
}

// Mgmt returns the path of a bridge's management socket.
func (s *VSwitch) Mgmt(bridge string) string { return filepath.Join(s.Dir, bridge+".mgmt") }
