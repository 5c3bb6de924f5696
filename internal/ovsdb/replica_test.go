package ovsdb

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/promslog"
	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

func columns() Columns {
	return Columns{
		"Interface": {"name", "external_ids", "type", "ofport", "column_of_tomorrow"},
		"Port":      {"name", "interfaces"},
		"Bridge":    {"name", "ports", "datapath_type"},
	}
}

func start(t *testing.T, socket string, change func(*Replica)) *Replica {
	t.Helper()
	r, err := NewReplica("unix:"+socket, "Open_vSwitch", columns(), promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	done := make(chan struct{})
	go func() { r.Run(t.Context()); close(done) }()
	t.Cleanup(func() { <-done })
	return r
}

func interfaces(r *Replica) map[string]Row {
	tables, _ := r.Tables()
	out := make(map[string]Row)
	for _, row := range tables["Interface"] {
		out[row.String("name")] = row
	}
	return out
}

func TestReplicaFollowsARealServer(t *testing.T) {
	s := testutil.NewOVSDBServer(t)
	s.VSCtl("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev",
		"--", "add-port", "br-int", "tap0", "--", "set", "interface", "tap0", "external_ids:iface-id=abc", "external_ids:vigia-tenant=red")
	r := start(t, s.Socket, nil)
	testutil.WaitFor(t, "the first copy", func() bool { return len(interfaces(r)) == 2 })
	want := map[string]string{"iface-id": "abc", "vigia-tenant": "red"}
	if diff := cmp.Diff(want, interfaces(r)["tap0"].Map("external_ids")); diff != "" {
		t.Errorf("external_ids (-want +got):\n%s", diff)
	}

	s.VSCtl("add-port", "br-int", "tap1")
	testutil.WaitFor(t, "an insertion", func() bool { return len(interfaces(r)) == 3 })
	s.VSCtl("set", "interface", "tap1", "external_ids:vigia-tenant=blue")
	testutil.WaitFor(t, "a change", func() bool { return interfaces(r)["tap1"].Map("external_ids")["vigia-tenant"] == "blue" })
	if got := interfaces(r)["tap1"].String("name"); got != "tap1" {
		t.Errorf("a change lost the other columns: name is %q", got)
	}
	s.VSCtl("del-port", "tap0")
	testutil.WaitFor(t, "a deletion", func() bool { return interfaces(r)["tap0"] == nil })

	tables, err := r.Tables()
	if err != nil {
		t.Fatal(err)
	}
	for _, bridge := range tables["Bridge"] {
		if bridge.String("name") != "br-int" || bridge.String("datapath_type") != "netdev" || len(bridge.UUIDs("ports")) != 2 {
			t.Errorf("bridge %v", bridge)
		}
		for _, id := range bridge.UUIDs("ports") {
			port := tables["Port"][id]
			if ifs := port.UUIDs("interfaces"); len(ifs) != 1 || tables["Interface"][ifs[0]].String("name") != port.String("name") {
				t.Errorf("port %v refers to %v", port, ifs)
			}
		}
	}
}

func TestReplicaSurvivesARestartOfTheServer(t *testing.T) {
	s := testutil.NewOVSDBServer(t)
	s.VSCtl("add-br", "br-int")
	r := start(t, s.Socket, nil)
	testutil.WaitFor(t, "the first copy", func() bool { return len(interfaces(r)) == 1 })
	s.Stop()
	testutil.WaitFor(t, "the loss to be noticed", func() bool { _, err := r.Tables(); return err != nil })
	if len(interfaces(r)) != 1 {
		t.Error("the last copy is gone while the server is away")
	}
	if _, ok := r.Age(); !ok {
		t.Error("the last copy has no age")
	}
	s.Start()
	s.VSCtl("add-port", "br-int", "tap9")
	testutil.WaitFor(t, "the reconnection", func() bool { _, err := r.Tables(); return err == nil && interfaces(r)["tap9"] != nil })
}

// TestReconnectionIsTriedOftenEnough holds what a recovery within five seconds depends
// on: however long the server was away, the next try comes soon.
func TestReconnectionIsTriedOftenEnough(t *testing.T) {
	const recovery = 5 * time.Second
	if retryFirst > retryMost || longer(retryFirst) <= retryFirst {
		t.Errorf("delays begin at %s, then come %s and at most %s", retryFirst, longer(retryFirst), retryMost)
	}
	delay := retryFirst
	for try := range 1000 {
		if delay <= 0 || delay+dialTimeout >= recovery {
			t.Fatalf("try %d comes after %s and may take %s to connect: too late for %s", try, delay, dialTimeout, recovery)
		}
		delay = longer(delay)
	}
}

func TestReplicaNoticesAFrozenServer(t *testing.T) {
	s := testutil.NewOVSDBServer(t)
	s.VSCtl("add-br", "br-int")
	r := start(t, s.Socket, func(r *Replica) { r.probe = 100 * time.Millisecond })
	testutil.WaitFor(t, "the first copy", func() bool { return len(interfaces(r)) == 1 })
	answers := make(map[time.Time]bool) // a silent server that answers echoes stays
	testutil.WaitFor(t, "five echoes to be answered", func() bool {
		if _, err := r.Tables(); err != nil { // a stalled server answers none for a while
			clear(answers)
			return false
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		answers[r.lastMessage] = true
		return len(answers) > 5
	})
	s.Signal(unix.SIGSTOP)
	testutil.WaitFor(t, "the silence to be noticed", func() bool { _, err := r.Tables(); return err != nil })
	s.Signal(unix.SIGCONT)
	testutil.WaitFor(t, "the server to come back", func() bool { _, err := r.Tables(); return err == nil })
}

func TestReplicaWithoutServer(t *testing.T) {
	r := start(t, filepath.Join(t.TempDir(), "absent.sock"), nil)
	testutil.WaitFor(t, "the failure", func() bool { _, err := r.Tables(); return errors.Is(err, fs.ErrNotExist) })
	if tables, _ := r.Tables(); tables != nil {
		t.Error("a copy came out of nowhere")
	}
	if _, ok := r.Age(); ok {
		t.Error("nothing has an age")
	}
}

func TestReplicaNamesAMissingTable(t *testing.T) {
	s := testutil.NewOVSDBServer(t)
	r := start(t, s.Socket, func(r *Replica) { r.columns = Columns{"Nothing": {"name"}} })
	testutil.WaitFor(t, "the failure", func() bool {
		_, err := r.Tables()
		return err != nil && strings.Contains(err.Error(), "no table Nothing")
	})
}

// scripted is a server that answers with whatever the test says.
func scripted(t *testing.T, answer func(c net.Conn, method string, id json.RawMessage) bool) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				dec := json.NewDecoder(c)
				for {
					var m message
					if dec.Decode(&m) != nil || !answer(c, m.Method, m.ID) {
						return
					}
				}
			}()
		}
	}()
	return socket
}

const noColumns = `{"tables":{"Interface":{"columns":{"name":{}}},"Port":{"columns":{"name":{}}},"Bridge":{"columns":{"name":{}}}}}`

func TestReplicaEndsSessionsWithHostileServers(t *testing.T) {
	for _, tc := range []struct{ name, answer, want string }{
		{"no JSON", "garbage!", "invalid character"},
		{"an error", `{"id":%s,"result":null,"error":{"error":"not allowed"}}`, "refuses get_schema"},
		{"a schema of another shape", `{"id":%s,"result":[1],"error":null}`, "answer to get_schema"},
		{"an update of an unknown table", `{"id":null,"method":"update","params":[null,{"Nope":{}}]}`, "which is not monitored"},
		{"an update without tables", `{"id":null,"method":"update","params":[null]}`, "1 parameters"},
		{"an update of another shape", `{"id":null,"method":"update","params":[null,7]}`, "update notification"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			socket := scripted(t, func(c net.Conn, method string, id json.RawMessage) bool {
				switch {
				case !strings.Contains(tc.answer, "update") && method == "get_schema":
					fmt.Fprint(c, strings.ReplaceAll(tc.answer, "%s", string(id)))
				case method == "get_schema":
					fmt.Fprintf(c, `{"id":%s,"result":%s,"error":null}`, id, noColumns)
				case strings.HasPrefix(method, "monitor_"):
					fmt.Fprintf(c, `{"id":%s,"result":null,"error":{"error":"unknown method"}}`, id)
				case method == "monitor":
					fmt.Fprintf(c, `{"id":%s,"result":{},"error":null}%s`, id, tc.answer)
				}
				return true
			})
			r := start(t, socket, nil)
			testutil.WaitFor(t, "the session to end", func() bool {
				_, err := r.Tables()
				return err != nil && strings.Contains(err.Error(), tc.want)
			})
		})
	}
}

func TestEchoIsAnswered(t *testing.T) {
	echoed := make(chan string, 1)
	socket := scripted(t, func(c net.Conn, method string, id json.RawMessage) bool {
		switch method {
		case "get_schema": // an echo may come between a request and its answer
			fmt.Fprintf(c, `{"method":"echo","params":["x"],"id":"e1"}{"id":%s,"result":%s,"error":null}`, id, noColumns)
		case "monitor_cond_since", "monitor_cond":
			fmt.Fprintf(c, `{"id":%s,"result":null,"error":"unknown method"}`, id)
		case "monitor":
			fmt.Fprintf(c, `{"id":%s,"result":{},"error":null}{"method":"echo","params":[],"id":"e2"}`, id)
		case "":
			select {
			case echoed <- string(id):
			default:
			}
		}
		return true
	})
	start(t, socket, nil)
	testutil.WaitFor(t, "an echo to be answered", func() bool { return len(echoed) > 0 })
	if id := <-echoed; id != `"e1"` {
		t.Errorf("the first answer is for %s", id)
	}
}

func TestRow(t *testing.T) {
	row := Row{
		"s": json.RawMessage(`"x"`), "n": json.RawMessage(`7`), "none": json.RawMessage(`["set",[]]`),
		"m": json.RawMessage(`["map",[["a","b"],["c","d"]]]`), "one": json.RawMessage(`["uuid","u1"]`),
		"two": json.RawMessage(`["set",[["uuid","u1"],["uuid","u2"]]]`), "bad": json.RawMessage(`["map",7]`),
	}
	if row.String("s") != "x" || row.String("n") != "" || row.String("absent") != "" {
		t.Error("String")
	}
	if v, ok := row.Int("n"); v != 7 || !ok {
		t.Error("Int of a number")
	}
	for _, column := range []string{"none", "absent", "s"} {
		if _, ok := row.Int(column); ok {
			t.Errorf("Int of %s", column)
		}
	}
	if diff := cmp.Diff(map[string]string{"a": "b", "c": "d"}, row.Map("m")); diff != "" {
		t.Error(diff)
	}
	if row.Map("bad") != nil || row.Map("s") != nil || row.Map("absent") != nil {
		t.Error("Map of no map")
	}
	if diff := cmp.Diff([]UUID{"u1"}, row.UUIDs("one")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]UUID{"u1", "u2"}, row.UUIDs("two")); diff != "" {
		t.Error(diff)
	}
	if len(row.UUIDs("none")) != 0 || row.UUIDs("bad") != nil || row.UUIDs("absent") != nil {
		t.Error("UUIDs of no references")
	}
}
