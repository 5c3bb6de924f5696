package ovsdb

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vigia/internal/testutil"
)

// withoutMethods is a way to a real server that does not know some methods, as
// older ones do not.
func withoutMethods(t *testing.T, server string, unknown ...string) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("unix", server)
			if err != nil {
				here.Close()
				continue
			}
			go func() { _, _ = io.Copy(here, there); here.Close() }()
			go func() {
				defer there.Close()
				for dec := json.NewDecoder(here); ; {
					var raw json.RawMessage
					var m message
					if dec.Decode(&raw) != nil || json.Unmarshal(raw, &m) != nil {
						return
					}
					if slices.Contains(unknown, m.Method) {
						fmt.Fprintf(here, `{"id":%s,"result":null,"error":{"error":"unknown method"}}`, m.ID)
						continue
					}
					if _, err := there.Write(raw); err != nil {
						return
					}
				}
			}()
		}
	}()
	return socket
}

// picture is what a replica knows, in a form that can be compared.
func picture(r *Replica) map[string]string {
	tables, _ := r.Tables()
	out := make(map[string]string)
	for name, table := range tables {
		for id, row := range table {
			ports, interfaces := row.UUIDs("ports"), row.UUIDs("interfaces")
			slices.Sort(ports)
			slices.Sort(interfaces)
			number, has := row.Int("ofport")
			out[name+" "+string(id)] = fmt.Sprint(row.String("name"), row.String("type"), row.String("datapath_type"),
				row.Map("external_ids"), ports, interfaces, number, has)
		}
	}
	return out
}

func TestEveryKindOfMonitorTellsTheSame(t *testing.T) {
	s := testutil.NewOVSDBServer(t)
	s.VSCtl("add-br", "br-int", "--", "add-port", "br-int", "tap0", "--", "set", "interface", "tap0", "external_ids:iface-id=a", "external_ids:x=1")
	replicas := map[string]*Replica{
		"monitor_cond_since": start(t, s.Socket, nil),
		"monitor_cond":       start(t, withoutMethods(t, s.Socket, "monitor_cond_since"), nil),
		"monitor":            start(t, withoutMethods(t, s.Socket, "monitor_cond_since", "monitor_cond"), nil),
	}
	for method, r := range replicas {
		testutil.WaitFor(t, "a session by "+method, func() bool { return r.Method() == method && len(picture(r)) > 0 })
	}
	for i, step := range [][]string{
		{"show"},
		{"set", "interface", "tap0", "external_ids:iface-id=b", "type=internal"},
		{"remove", "interface", "tap0", "external_ids", "x"},
		{"add-port", "br-int", "tap1", "--", "set", "interface", "tap1", "ofport_request=7", "external_ids:iface-id=\"q\\\"uote\""},
		{"add-port", "br-int", "tap2"},
		{"set", "interface", "tap1", "ofport=7"},
		{"clear", "interface", "tap1", "ofport", "--", "clear", "interface", "tap0", "external_ids"},
		{"del-port", "tap0"},
		{"add-bond", "br-int", "bond0", "e0", "e1", "--", "set", "bridge", "br-int", "datapath_type=netdev"},
		{"del-br", "br-int"},
	} {
		s.VSCtl(step...)
		testutil.WaitFor(t, fmt.Sprintf("three copies to agree after step %d, %v", i, step), func() bool {
			first := picture(replicas["monitor"])
			return cmp.Equal(first, picture(replicas["monitor_cond"])) && cmp.Equal(first, picture(replicas["monitor_cond_since"])) &&
				strings.Contains(fmt.Sprint(first), "tap1") == (i >= 3 && i < 9) && strings.Contains(fmt.Sprint(first), "tap0") == (i < 7)
		})
	}
}

// TestACopyGoesOnWhereTheSessionBroke needs a clustered database, which keeps the
// history that monitor_cond_since asks for.
func TestACopyGoesOnWhereTheSessionBroke(t *testing.T) {
	dir := t.TempDir()
	db, socket, ctl := filepath.Join(dir, "db"), filepath.Join(dir, "s"), filepath.Join(dir, "ctl")
	testutil.Run(t, "ovsdb-tool", "create-cluster", db, "/usr/share/openvswitch/vswitch.ovsschema", "unix:"+filepath.Join(dir, "raft"))
	cmd := exec.Command("ovsdb-server", db, "--remote=punix:"+socket, "--unixctl="+ctl, "--log-file="+filepath.Join(dir, "log"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	vsctl := func(args ...string) {
		testutil.Run(t, "ovs-vsctl", append([]string{"--db=unix:" + socket, "--no-wait", "--retry", "--timeout=60"}, args...)...)
	}
	// The server keeps no more history than the database is large.
	vsctl("init", "--", "add-br", "br-int", "--", "add-br", "br-big")
	big := []string{"set", "bridge", "br-big"}
	for i := range 200 {
		big = append(big, fmt.Sprintf("external_ids:key%d=value", i))
	}
	vsctl(big...)
	found := new(atomic.Int32)
	r := start(t, counting(t, socket, found), nil)
	testutil.WaitFor(t, "the first copy", func() bool { return len(interfaces(r)) == 2 })
	vsctl("add-port", "br-int", "tap0")
	testutil.WaitFor(t, "the port", func() bool { return len(interfaces(r)) == 3 })
	testutil.Run(t, "ovs-appctl", "-t", ctl, "ovsdb-server/reconnect")
	vsctl("add-port", "br-int", "tap1", "--", "del-port", "tap0")
	testutil.WaitFor(t, "the copy to catch up", func() bool {
		names := interfaces(r)
		return len(names) == 3 && names["tap1"] != nil && found.Load() > 0
	})
}

// counting passes a session on and counts answers of monitor_cond_since that
// found the transaction.
func counting(t *testing.T, server string, found *atomic.Int32) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("unix", server)
			if err != nil {
				here.Close()
				continue
			}
			go func() { _, _ = io.Copy(there, here); there.Close() }()
			go func() {
				defer here.Close()
				for dec := json.NewDecoder(there); ; {
					var raw json.RawMessage
					if dec.Decode(&raw) != nil {
						there.Close()
						return
					}
					if strings.Contains(string(raw), `"result":[true,`) {
						found.Add(1)
					}
					if _, err := here.Write(raw); err != nil {
						return
					}
				}
			}()
		}
	}()
	return socket
}

func TestDiffs(t *testing.T) {
	for _, tc := range []struct {
		name, old, diff, want string
		kind                  columnKind
	}{
		{"a scalar is replaced", `"a"`, `"b"`, `"b"`, scalar},
		{"an optional value is emptied", `7`, `["set",[]]`, `["set",[]]`, scalar},
		{"into an empty set", ``, `"a"`, `["set",["a"]]`, set},
		{"a bare member goes", `"a"`, `"a"`, `["set",[]]`, set},
		{"one comes, one goes", `["set",["a","b"]]`, `["set",["c","a"]]`, `["set",["b","c"]]`, set},
		{"references", `["uuid","1"]`, `["set",[["uuid","2"],["uuid", "1"]]]`, `["set",[["uuid","2"]]]`, set},
		{"a pair comes", ``, `["map",[["k","v"]]]`, `["map",[["k","v"]]]`, mapped},
		{"a pair goes", `["map",[["k","v"],["l","w"]]]`, `["map",[["k","v"]]]`, `["map",[["l","w"]]]`, mapped},
		{"a pair changes", `["map",[["k","v"],["l","w"]]]`, `["map",[["k","x"]]]`, `["map",[["k","x"],["l","w"]]]`, mapped},
	} {
		got, err := applyDiff(json.RawMessage(tc.old), json.RawMessage(tc.diff), tc.kind)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %s, %v; want %s", tc.name, got, err, tc.want)
		}
	}
	for _, bad := range []struct {
		old, diff string
		kind      columnKind
	}{
		{`["map",[["k","v"]]]`, `7`, mapped},
		{`7`, `["map",[]]`, mapped},
		{``, `["set",7]`, set},
		{``, `["map",[7]]`, mapped},
	} {
		if got, err := applyDiff(json.RawMessage(bad.old), json.RawMessage(bad.diff), bad.kind); err == nil {
			t.Errorf("%s and %s give %s", bad.old, bad.diff, got)
		}
	}
}

func TestRowOperations(t *testing.T) {
	for change, want := range map[string]string{
		`{"T":{"u":{"modify":{"c":"x"}}}}`:  "not there",
		`{"T":{"u":{"explode":{"c":"x"}}}}`: `unknown operation "explode"`,
		`{"T":{"u":{"insert":7}}}`:          "insert",
		`{"X":{}}`:                          "which is not monitored",
	} {
		var u tableUpdates2
		if err := json.Unmarshal([]byte(change), &u); err != nil {
			t.Fatal(err)
		}
		if err := u.apply(map[string]Table{"T": {}}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", change, err, want)
		}
	}
	tables := map[string]Table{"T": {"u": {"c": json.RawMessage(`"x"`)}}}
	var u tableUpdates2
	if err := json.Unmarshal([]byte(`{"T":{"u":{"delete":null}}}`), &u); err != nil {
		t.Fatal(err)
	}
	if err := u.apply(tables, nil); err != nil || len(tables["T"]) != 0 {
		t.Errorf("after a deletion: %v, %v", tables, err)
	}
}

func FuzzUpdates(f *testing.F) {
	f.Add("update", `[null,{"Interface":{"u":{"new":{"name":"x","ofport":["set",[]]}}}}]`)
	f.Add("update2", `[null,{"Interface":{"u":{"insert":{"name":"x"}}}}]`)
	f.Add("update2", `[null,{"Interface":{"i":{"modify":{"external_ids":["map",[["a","b"]]],"ports":["set",[["uuid","1"]]]}}}}]`)
	f.Add("update3", `[null,"t",{"Interface":{"i":{"delete":null}}}]`)
	f.Fuzz(func(t *testing.T, method, params string) {
		r := &Replica{}
		tables := map[string]Table{"Interface": {"i": {
			"name": json.RawMessage(`"n"`), "external_ids": json.RawMessage(`["map",[["a","b"],["c","d"]]]`), "ports": json.RawMessage(`["uuid","1"]`),
		}}}
		kinds := schema{"Interface": {"external_ids": mapped, "ports": set}}
		m := message{Method: method}
		if json.Unmarshal([]byte(params), &m.Params) != nil || !strings.HasPrefix(method, "update") {
			return
		}
		after, err := r.change(m, tables, kinds)
		if len(tables["Interface"]) != 1 || string(tables["Interface"]["i"]["name"]) != `"n"` {
			t.Error("the copy that others read was altered")
		}
		if err != nil {
			return
		}
		for _, row := range after["Interface"] {
			_, _ = row.String("name"), row.Map("external_ids")
			_ = row.UUIDs("ports")
			_, _ = row.Int("ofport")
			for column, raw := range row {
				if len(raw) > 0 && !json.Valid(raw) {
					t.Errorf("column %q holds %q", column, raw)
				}
			}
		}
	})
}
