package ovsdb

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigia/internal/testutil"
)

func insertBridge(name string) []Operation {
	return []Operation{
		{"op": "insert", "table": "Bridge", "uuid-name": "b", "row": map[string]any{"name": name, "external_ids": MapOf(map[string]string{"who": "test", "odd": `"\`})}},
		{"op": "mutate", "table": "Open_vSwitch", "where": []any{}, "mutations": []any{[]any{"bridges", "insert", []any{"set", []any{[]any{"named-uuid", "b"}}}}}},
	}
}

func selectBridge(name string) Operation {
	return Operation{"op": "select", "table": "Bridge", "where": []any{[]any{"name", "==", name}}, "columns": []string{"_uuid", "name", "external_ids", "ports"}}
}

func TestTransactionsChangeAndRead(t *testing.T) {
	s := testutil.NewOVSDBServer(t)
	remote := "unix:" + s.Socket
	done, err := Transact(context.Background(), remote, TLS{}, "Open_vSwitch", insertBridge("br0")...)
	if err != nil || len(done) != 2 || done[1].Count != 1 {
		t.Fatalf("%+v %v", done, err)
	}
	if got := s.VSCtl("list-br"); got != "br0" {
		t.Errorf("ovs-vsctl sees %q", got)
	}
	done, err = Transact(context.Background(), remote, TLS{}, "Open_vSwitch", selectBridge("br0"), selectBridge("br1"))
	if err != nil || len(done) != 2 || len(done[0].Rows) != 1 || len(done[1].Rows) != 0 {
		t.Fatalf("%+v %v", done, err)
	}
	row := done[0].Rows[0]
	if row.String("name") != "br0" || row.Map("external_ids")["odd"] != `"\` || len(row.Map("external_ids")) != 2 {
		t.Errorf("%s", row)
	}
	if row.UUID("_uuid") == "" || row.UUID("ports") != "" || row.UUID("none") != "" {
		t.Errorf("references of %s", row)
	}
	if string(row.UUID("_uuid")) != s.VSCtl("get", "Bridge", "br0", "_uuid") {
		t.Errorf("%s is not its reference", row.UUID("_uuid"))
	}
}

func TestTransactionsThatFailChangeNothing(t *testing.T) {
	s := testutil.NewOVSDBServer(t)
	remote := "unix:" + s.Socket
	for name, tc := range map[string]struct {
		more Operation
		want string
	}{
		"an operation fails":     {Operation{"op": "insert", "table": "Bridge", "row": map[string]any{"nothing": 1}}, "nothing"},
		"a table is not there":   {Operation{"op": "select", "table": "Nothing", "where": []any{}}, "Nothing"},
		"it cannot be committed": {Operation{"op": "insert", "table": "Bridge", "row": map[string]any{"name": "br0"}}, ""},
		"it is aborted":          {Operation{"op": "abort"}, "abort"},
	} {
		operations := append(insertBridge("br0"), tc.more)
		if name == "it cannot be committed" { // two rows of one name, which is an index
			operations = append(operations, Operation{"op": "mutate", "table": "Open_vSwitch", "where": []any{}, "mutations": []any{[]any{"next_cfg", "+=", "x"}}})
		}
		_, err := Transact(context.Background(), remote, TLS{}, "Open_vSwitch", operations...)
		if err == nil || !strings.Contains(err.Error(), "refuses") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		if got := s.VSCtl("list-br"); got != "" {
			t.Errorf("%s: %q is there", name, got)
		}
	}
}

func TestTransactionsNeedAServerAndItsDatabase(t *testing.T) {
	s := testutil.NewOVSDBServer(t)
	if _, err := Transact(context.Background(), "unix:"+s.Socket, TLS{}, "Nothing", selectBridge("br0")); err == nil {
		t.Error("a database that is not there was read")
	}
	absent := "unix:" + filepath.Join(t.TempDir(), "db.sock")
	if _, err := Transact(context.Background(), absent, TLS{}, "Open_vSwitch", selectBridge("br0")); err == nil || !strings.Contains(err.Error(), "connect to ovsdb-server") {
		t.Errorf("%v", err)
	}
}

// TestATransactionEndsWithItsContext has a server that takes connections and answers nothing.
func TestATransactionEndsWithItsContext(t *testing.T) {
	s := testutil.NewOVSDBServer(t)
	s.Signal(syscall.SIGSTOP)
	defer s.Signal(syscall.SIGCONT)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := Transact(ctx, "unix:"+s.Socket, TLS{}, "Open_vSwitch", selectBridge("br0"))
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("it ended before: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
