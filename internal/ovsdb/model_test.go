package ovsdb

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vigia/internal/testutil"
)

// dumped is what ovsdb-client says of the interfaces: another reader of the same server.
func dumped(t *testing.T, s *testutil.OVSDBServer) map[string]string {
	t.Helper()
	text := testutil.Run(t, "ovsdb-client", "--format=json", "dump", "unix:"+s.Socket, "Open_vSwitch", "Interface", "name", "external_ids", "type", "ofport")
	var table struct {
		Headings []string
		Data     [][]json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &table); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	out := make(map[string]string)
	for _, cells := range table.Data {
		row := make(Row)
		for i, heading := range table.Headings {
			row[heading] = cells[i]
		}
		out[row.String("name")] = describe(row)
	}
	return out
}

// describe writes what a row says in one form, whoever wrote its cells.
func describe(row Row) string {
	ids := row.Map("external_ids")
	keys := slices.Sorted(maps.Keys(ids))
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%q=%q", k, ids[k])
	}
	number, ok := row.Int("ofport")
	return fmt.Sprint(row.String("type"), " ", number, ok, " ", keys)
}

func described(r *Replica) map[string]string {
	out := make(map[string]string)
	for name, row := range interfaces(r) {
		out[name] = describe(row)
	}
	return out
}

// change makes some random changes of interfaces in one transaction.
func change(r *rand.Rand, s *testutil.OVSDBServer, there map[string]bool) {
	var args []string
	touched := make(map[string]bool)
	for range 1 + r.IntN(4) {
		name := fmt.Sprintf("p%d", r.IntN(6))
		if touched[name] {
			continue
		}
		touched[name] = true
		values := []string{"a", "", `\"q\"`, "ü", "x=y", "[1]"}
		value := fmt.Sprintf("\"%s\"", values[r.IntN(len(values))])
		var step []string
		switch {
		case !there[name]:
			step = []string{"add-port", "br-int", name, "--", "set", "interface", name, "external_ids:k0=" + value}
			there[name] = true
		case r.IntN(4) == 0:
			step = []string{"del-port", name}
			delete(there, name)
		case r.IntN(3) == 0:
			step = []string{"clear", "interface", name, []string{"external_ids", "ofport"}[r.IntN(2)]}
		case r.IntN(3) == 0:
			step = []string{"set", "interface", name, fmt.Sprintf("ofport=%d", r.IntN(100)), "type=" + []string{"internal", "system"}[r.IntN(2)]}
		default:
			step = []string{"set", "interface", name, fmt.Sprintf("external_ids:k%d=%s", r.IntN(4), value), fmt.Sprintf("external_ids:k%d=%s", r.IntN(4), value)}
		}
		args = append(append(args, "--"), step...)
	}
	s.VSCtl(args...)
}

// TestACopyIsWhatTheServerHasWhateverHappens makes random changes and compares copies of
// every kind with what ovsdb-client says, while the server is killed now and then.
func TestACopyIsWhatTheServerHasWhateverHappens(t *testing.T) {
	t.Parallel()
	s := testutil.NewOVSDBServer(t)
	s.VSCtl("add-br", "br-int")
	copies := map[string]*Replica{
		"monitor_cond_since": start(t, s.Socket, nil),
		"monitor_cond":       start(t, withoutMethods(t, s.Socket, "monitor_cond_since"), nil),
		"monitor":            start(t, withoutMethods(t, s.Socket, "monitor_cond_since", "monitor_cond"), nil),
	}
	r, there := rand.New(rand.NewPCG(1, 2)), make(map[string]bool)
	for step := range 30 {
		if step%10 == 9 {
			s.Stop()
			s.Start()
		}
		change(r, s, there)
		want := dumped(t, s)
		for method, replica := range copies {
			testutil.WaitFor(t, fmt.Sprintf("the copy by %s to agree after step %d", method, step), func() bool {
				_, err := replica.Tables()
				return err == nil && cmp.Equal(want, described(replica))
			})
		}
	}
}

// TestAConditionThatChangesCopiesTheRightRows moves the condition about while rows come
// and go.
func TestAConditionThatChangesCopiesTheRightRows(t *testing.T) {
	t.Parallel()
	s := testutil.NewOVSDBServer(t)
	s.VSCtl("add-br", "br-int")
	replica := start(t, s.Socket, func(r *Replica) { WithCondition("Interface", "name")(r) })
	r, there := rand.New(rand.NewPCG(3, 4)), make(map[string]bool)
	for step := range 25 {
		var wanted []string
		for i := range 6 {
			if r.IntN(2) == 0 {
				wanted = append(wanted, fmt.Sprintf("p%d", i))
			}
		}
		if step%3 != 0 {
			replica.SetCondition("Interface", wanted)
		} else {
			wanted = replica.conditions["Interface"].values
		}
		if step%8 == 7 {
			s.Stop()
			s.Start()
		}
		change(r, s, there)
		want := dumped(t, s)
		maps.DeleteFunc(want, func(name, _ string) bool { return !slices.Contains(wanted, name) })
		testutil.WaitFor(t, fmt.Sprintf("the rows of %v after step %d", wanted, step), func() bool {
			_, err := replica.Tables()
			return err == nil && cmp.Equal(want, described(replica))
		})
	}
}

// cutting is a way to a real server that breaks off after so many bytes, each time a few
// more, and never after the last cut.
func cutting(t *testing.T, server string, cuts int, more int64) (socket string, left *atomic.Int64) {
	t.Helper()
	socket, left = filepath.Join(t.TempDir(), "s"), new(atomic.Int64)
	left.Store(int64(cuts))
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for bytes := int64(1); ; bytes += more {
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
				defer there.Close()
				if left.Add(-1) < 0 {
					_, _ = io.Copy(here, there)
					return
				}
				_, _ = io.CopyN(here, there, bytes)
			}()
		}
	}()
	return socket, left
}

// TestSessionsThatBreakAnywhereLeaveAWholeCopy cuts sessions at many places: in the schema,
// in the copy, in changes. What a copy has is at no time half of something.
func TestSessionsThatBreakAnywhereLeaveAWholeCopy(t *testing.T) {
	t.Parallel()
	s := testutil.NewOVSDBServer(t)
	s.VSCtl("add-br", "br-int", "--", "add-port", "br-int", "p0", "--", "set", "interface", "p0", "external_ids:k0=a")
	const cuts = 7
	socket, left := cutting(t, s.Socket, cuts, 7001)
	replica := start(t, socket, nil)
	r, there := rand.New(rand.NewPCG(5, 6)), map[string]bool{"p0": true}
	testutil.WaitFor(t, "the last cut", func() bool {
		change(r, s, there)
		for name, row := range interfaces(replica) { // which has no other columns than it has values
			if !strings.HasPrefix(name, "p") && name != "br-int" {
				t.Fatalf("half a row: %s %v", name, row)
			}
		}
		return left.Load() < 0
	})
	want := dumped(t, s)
	testutil.WaitFor(t, "the whole copy", func() bool {
		_, err := replica.Tables()
		return err == nil && cmp.Equal(want, described(replica))
	})
}

// TestDiffsAreWhatTheirDefinitionSays applies random differences of sets and maps and
// compares with sets and maps of Go.
func TestDiffsAreWhatTheirDefinitionSays(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	letters := []string{"a", "b", "c", "d", "e"}
	pick := func() map[string]string {
		out := make(map[string]string)
		for _, k := range letters {
			if r.IntN(2) == 0 {
				out[k] = letters[r.IntN(len(letters))]
			}
		}
		return out
	}
	asSet := func(m map[string]string) json.RawMessage {
		keys := slices.Collect(maps.Keys(m))
		if len(keys) == 1 && r.IntN(2) == 0 {
			return must(t, keys[0]) // a set of one is written bare
		}
		return must(t, []any{"set", append([]string{}, keys...)})
	}
	asMap := func(m map[string]string) json.RawMessage {
		pairs := [][2]string{}
		for k, v := range m {
			pairs = append(pairs, [2]string{k, v})
		}
		return must(t, []any{"map", pairs})
	}
	for range 3000 {
		before, diff := pick(), pick()
		got, err := diffSet(asSet(before), asSet(diff))
		if err != nil {
			t.Fatal(err)
		}
		members, err := elements(got)
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, m := range members {
			have = append(have, strings.Trim(string(m), `"`))
		}
		slices.Sort(have)
		var want []string
		for _, k := range letters { // in one, but not in both
			if _, a := before[k]; a != func() bool { _, b := diff[k]; return b }() {
				want = append(want, k)
			}
		}
		if !slices.Equal(have, want) {
			t.Fatalf("%v with the difference %v is %v, want %v", before, diff, have, want)
		}
		after := maps.Clone(before)
		for k, v := range diff { // came, went with its old value, or changed to a new one
			if old, ok := before[k]; ok && old == v {
				delete(after, k)
			} else {
				after[k] = v
			}
		}
		mapped, err := diffMap(asMap(before), asMap(diff))
		if err != nil {
			t.Fatal(err)
		}
		if now := (Row{"m": mapped}).Map("m"); !maps.Equal(now, after) {
			t.Fatalf("%v with the difference %v is %v, want %v", before, diff, now, after)
		}
	}
}

func must(t *testing.T, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func FuzzRow(f *testing.F) {
	for _, cell := range []string{`"x"`, `7`, `["set",[]]`, `["uuid","u"]`, `["set",[["uuid","u"],["uuid","v"]]]`, `["map",[["a","b"]]]`, `["map",[[3,["uuid","u"]]]]`, `null`, `{`} {
		f.Add([]byte(cell))
	}
	f.Fuzz(func(t *testing.T, cell []byte) {
		row := Row{"c": cell}
		if ids := row.UUIDs("c"); len(ids) > len(cell) {
			t.Errorf("%d references in %d bytes", len(ids), len(cell))
		}
		if m := row.Map("c"); len(m) > len(cell) {
			t.Errorf("%d entries in %d bytes", len(m), len(cell))
		}
		_, _ = row.String("c"), row.ByNumber("c")
		if n, ok := row.Int("c"); !ok && n != 0 {
			t.Errorf("%q is no number, and yet %d", cell, n)
		}
		_, _ = diffSet(cell, cell)
		_, _ = diffMap(cell, cell)
	})
}
