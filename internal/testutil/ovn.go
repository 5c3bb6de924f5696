package testutil

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// OVNCentral is a real OVN control plane without chassis: northbound and
// southbound databases, and ovn-northd between them.
type OVNCentral struct {
	t          testing.TB
	dir        string
	databases  *exec.Cmd
	Southbound string // path of the southbound database's unix socket
}

// NewOVNCentral starts OVN's central programs; they end with the test.
func NewOVNCentral(t testing.TB) *OVNCentral {
	t.Helper()
	if _, err := exec.LookPath("ovn-northd"); err != nil {
		t.Fatal("ovn-northd is missing; apt-get install ovn-central")
	}
	// A unix socket's path must be short: t.TempDir() holds the test's name.
	dir, err := os.MkdirTemp("", "ovn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := &OVNCentral{t: t, dir: dir, Southbound: filepath.Join(dir, "sb.sock")}
	for _, db := range []string{"nb", "sb"} {
		Run(t, "ovsdb-tool", "create", filepath.Join(dir, db+".db"), "/usr/share/ovn/ovn-"+db+".ovsschema")
	}
	o.StartDatabases()
	t.Cleanup(o.StopDatabases)
	o.NBCtl("init")
	northd := o.start("ovn-northd", "--ovnnb-db="+o.northbound(), "--ovnsb-db=unix:"+o.Southbound,
		"--unixctl="+filepath.Join(dir, "northd.ctl"), "--log-file="+filepath.Join(dir, "northd.log"))
	t.Cleanup(func() { stop(northd) })
	return o
}

func (o *OVNCentral) northboundSocket() string { return filepath.Join(o.dir, "nb.sock") }

func (o *OVNCentral) northbound() string { return "unix:" + o.northboundSocket() }

// StartDatabases starts the server of both databases, after StopDatabases again.
func (o *OVNCentral) StartDatabases() {
	o.t.Helper()
	o.databases = o.start("ovsdb-server", filepath.Join(o.dir, "nb.db"), filepath.Join(o.dir, "sb.db"),
		"--remote=p"+o.northbound(), "--remote=punix:"+o.Southbound,
		"--unixctl="+filepath.Join(o.dir, "db.ctl"), "--log-file="+filepath.Join(o.dir, "db.log"))
	// It opens the two in an order of its own.
	WaitFor(o.t, "OVN's ovsdb-server to open its sockets", func() bool { return listens(o.northboundSocket()) && listens(o.Southbound) })
}

// StopDatabases kills the server of both databases, as a crash would.
func (o *OVNCentral) StopDatabases() {
	stop(o.databases)
	_ = os.Remove(o.northboundSocket())
	_ = os.Remove(o.Southbound)
}

func (o *OVNCentral) start(name string, args ...string) *exec.Cmd {
	o.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "OVN_RUNDIR="+o.dir, "OVS_RUNDIR="+o.dir)
	if err := cmd.Start(); err != nil {
		o.t.Fatalf("start %s: %v", name, err)
	}
	return cmd
}

func stop(cmd *exec.Cmd) {
	if err := cmd.Process.Kill(); err == nil {
		_ = cmd.Wait()
	}
}

// NBCtl runs ovn-nbctl against the northbound database.
func (o *OVNCentral) NBCtl(args ...string) string {
	o.t.Helper()
	return strings.TrimSpace(Run(o.t, "ovn-nbctl", append([]string{"--db=" + o.northbound()}, args...)...))
}
