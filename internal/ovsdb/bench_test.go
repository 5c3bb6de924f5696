package ovsdb

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

// asReplica in the environment makes the test binary a process that keeps a copy of the
// server at that socket, so that what the copy takes can be told from what the test does.
const asReplica = "VIGIA_TEST_AS_REPLICA"

func TestMain(m *testing.M) {
	if socket := os.Getenv(asReplica); socket != "" {
		if err := replicate(socket); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const (
	rounds = 20
	last   = "last" // what every port says after the last change
)

// BenchmarkReplica measures a copy of a node's ports beside ovsdb-client(1), Open vSwitch's
// own client in C, on one server: the first copy, and 20 changes of every port. The copy has
// the columns of the inventory, ovsdb-client those of one table. The figures are processor
// time.
func BenchmarkReplica(b *testing.B) {
	for _, ports := range []int{200, 1000} {
		b.Run(fmt.Sprint(ports), func(b *testing.B) {
			var copies, changes, dumps, follows time.Duration
			for range max(b.N, 3) {
				c, f, d, m := oneRound(b, ports)
				if copies == 0 {
					copies, changes, dumps, follows = c, f, d, m
				}
				copies, changes, dumps, follows = min(copies, c), min(changes, f), min(dumps, d), min(follows, m)
			}
			report := func(what string, ours, theirs time.Duration) {
				b.ReportMetric(float64(ours.Microseconds())/1e3, "ours-"+what+"-ms")
				b.ReportMetric(float64(theirs.Microseconds())/1e3, "ovsdb-client-"+what+"-ms")
				b.ReportMetric(float64(theirs)/float64(ours), what+"-times")
			}
			report("copy", copies, dumps)
			report("changes", changes, follows)
			b.ReportMetric(0, "ns/op") // of all together: says nothing
		})
	}
}

// oneRound returns the processor time of our copy and changes, and of ovsdb-client's.
func oneRound(b *testing.B, ports int) (copied, changed, dumped, followed time.Duration) {
	s := testutil.NewOVSDBServer(b)
	defer s.Stop()
	addPorts(s, ports)
	dump := client(s, "dump", "name", "external_ids", "type", "ofport")
	if out, err := dump.Output(); err != nil || len(out) < ports*100 {
		b.Fatalf("%d bytes, %v", len(out), err)
	}
	dumped = used(dump)

	written, err := os.Create(filepath.Join(b.TempDir(), "monitor"))
	if err != nil {
		b.Fatal(err)
	}
	defer written.Close()
	monitor := client(s, "monitor", "name,external_ids,type,ofport")
	monitor.Stdout = written
	if err := monitor.Start(); err != nil {
		b.Fatal(err)
	}
	replica := exec.Command(os.Args[0])
	replica.Env = append(os.Environ(), asReplica+"="+s.Socket)
	replica.Stderr = os.Stderr
	out, err := replica.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := replica.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	told := func(what string) (took time.Duration) {
		if !lines.Scan() {
			b.Fatalf("the replica ended before it had a %s", what)
		}
		if _, err := fmt.Sscanf(lines.Text(), what+" %d", &took); err != nil {
			b.Fatalf("the replica says %q", lines.Text())
		}
		return took
	}
	copied = told("copy")
	for round := range rounds {
		state := fmt.Sprintf("round-%d", round)
		if round == rounds-1 {
			state = last
		}
		perPort(s, ports, func(port int) []string {
			return []string{"set", "interface", fmt.Sprintf("tap%d", port), "external_ids:iface-status=" + state}
		})
	}
	changed = told("changes")
	if err := replica.Wait(); err != nil {
		b.Fatal(err)
	}
	testutil.WaitFor(b, "ovsdb-client to have written all", func() bool {
		raw, err := os.ReadFile(written.Name())
		return err == nil && strings.Count(string(raw), last) >= ports
	})
	_ = monitor.Process.Kill()
	_ = monitor.Wait()
	return copied, changed, dumped, max(used(monitor)-dumped, 0) // its first copy is that of a dump
}

// replicate keeps a copy until the ports have had their last change, and says what each took.
func replicate(socket string) error {
	r, err := NewReplica("unix:"+socket, "Open_vSwitch", Columns{
		"Bridge": {"name", "ports", "datapath_type", "external_ids"}, "Port": {"interfaces", "external_ids", "other_config"},
		"Interface": {"name", "external_ids", "type", "ofport"},
	}, promslog.NewNopLogger())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	start := own()
	go r.Run(ctx)
	<-r.Changes()
	copied := own()
	fmt.Println("copy", int64(copied-start))
	for range r.Changes() {
		if tables, _ := r.Tables(); changedLast(tables["Interface"]) {
			fmt.Println("changes", int64(own()-copied))
			return nil
		}
	}
	return nil
}

// changedLast tells whether every port has had its last change. Most often the first that
// is looked at has not.
func changedLast(interfaces Table) bool {
	for _, row := range interfaces {
		if ids := string(row["external_ids"]); strings.Contains(ids, "iface-status") && !strings.Contains(ids, last) {
			return false
		}
	}
	return true
}

// own returns the processor time of this process.
func own() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		panic(err) // the arguments are fine
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func used(cmd *exec.Cmd) time.Duration {
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

func client(s *testutil.OVSDBServer, command string, columns ...string) *exec.Cmd {
	return exec.Command("ovsdb-client", append([]string{"--format=json", command, "unix:" + s.Socket, "Open_vSwitch", "Interface"}, columns...)...)
}

func addPorts(s *testutil.OVSDBServer, ports int) {
	s.VSCtl("add-br", "br-int")
	perPort(s, ports, func(port int) []string {
		name, id := fmt.Sprintf("tap%d", port), fmt.Sprintf("6d5a5c3e-0000-4000-8000-%012d", port)
		return []string{
			"add-port", "br-int", name, "--", "set", "interface", name, "external_ids:iface-id=" + id,
			"external_ids:attached-mac=02:00:00:00:00:01", "external_ids:vm-uuid=" + id, "external_ids:iface-status=active",
		}
	})
}

// perPort runs ovs-vsctl with a command for each port, some hundred at a time.
func perPort(s *testutil.OVSDBServer, ports int, command func(port int) []string) {
	const batch = 250
	for from := 0; from < ports; from += batch {
		var args []string
		for port := from; port < min(ports, from+batch); port++ {
			args = append(append(args, "--"), command(port)...)
		}
		s.VSCtl(args...)
	}
}
