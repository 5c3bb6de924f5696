package ovsdb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
)

// columnKind is how a column's changes are written in <table-updates2>.
type columnKind int

const (
	scalar columnKind = iota // at most one value: the new value
	set                      // the values in one of old and new, but not in both
	mapped                   // pairs that came, went (with their old value) or changed (with the new one)
)

// schema is what a server's schema says of the columns asked for.
type schema map[string]map[string]columnKind

// errRefused is an error that the server answers.
var errRefused = errors.New("ovsdb-server refuses")

// noTransaction is the transaction id that no server knows.
const noTransaction = "00000000-0000-0000-0000-000000000000"

// plainMonitor is the monitor of RFC 7047, without conditions.
const plainMonitor = "monitor"

// monitor is one way to follow tables, newest first.
type monitor struct {
	method string
	begin  func(r *Replica, c *conn, requests map[string]any, s schema) (map[string]Table, error)
}

// monitors are monitor_cond_since and monitor_cond of ovsdb-server(7), and
// monitor of RFC 7047. With the first a copy goes on from where it was when the
// session broke.
func monitors() []monitor {
	return []monitor{
		{"monitor_cond_since", (*Replica).beginSince},
		{"monitor_cond", (*Replica).beginCond},
		{plainMonitor, (*Replica).beginPlain},
	}
}

// begin starts the newest kind of monitor that the server has.
func (r *Replica) begin(c *conn) (map[string]Table, schema, error) {
	requests, s, err := r.monitorRequests(c)
	if err != nil {
		return nil, nil, err
	}
	var tables map[string]Table
	for _, m := range monitors() {
		tables, err = m.begin(r, c, requests, s)
		if !errors.Is(err, errRefused) {
			r.setMethod(m.method)
			break
		}
	}
	return tables, s, err
}

func (r *Replica) beginSince(c *conn, requests map[string]any, s schema) (map[string]Table, error) {
	asked, err := json.Marshal(requests)
	if err != nil {
		return nil, err
	}
	since := r.transaction
	if since == "" || !bytes.Equal(asked, r.asked) {
		since = noTransaction
	}
	var answer [3]json.RawMessage
	if err := c.call(&answer, "monitor_cond_since", r.database, nil, listed(requests), since); err != nil {
		return nil, err
	}
	var found bool
	var transaction string
	var changes tableUpdates2
	for i, into := range []any{&found, &transaction, &changes} {
		if err := json.Unmarshal(answer[i], into); err != nil {
			return nil, fmt.Errorf("answer to monitor_cond_since: %w", err)
		}
	}
	tables := r.empty()
	if found {
		old, _ := r.Tables()
		tables = copyTables(old)
	}
	if err := changes.apply(tables, s); err != nil {
		r.transaction = "" // the next session starts from nothing
		return nil, err
	}
	r.transaction, r.asked = transaction, asked
	return tables, nil
}

func (r *Replica) beginCond(c *conn, requests map[string]any, s schema) (map[string]Table, error) {
	var changes tableUpdates2
	if err := c.call(&changes, "monitor_cond", r.database, nil, listed(requests)); err != nil {
		return nil, err
	}
	tables := r.empty()
	return tables, changes.apply(tables, s)
}

func (r *Replica) beginPlain(c *conn, requests map[string]any, _ schema) (map[string]Table, error) {
	for _, request := range requests {
		delete(request.(map[string]any), "where") // which RFC 7047 does not know
	}
	var changes tableUpdates
	if err := c.call(&changes, plainMonitor, r.database, nil, requests); err != nil {
		return nil, err
	}
	tables := r.empty()
	return tables, changes.apply(tables)
}

func (r *Replica) empty() map[string]Table {
	tables := make(map[string]Table, len(r.columns))
	for name := range r.columns {
		tables[name] = make(Table)
	}
	return tables
}

// listed writes each table's request as a list of one: monitor_cond takes several.
func listed(requests map[string]any) map[string]any {
	out := make(map[string]any, len(requests))
	for table, request := range requests {
		out[table] = []any{request}
	}
	return out
}

// change takes an update notification and returns the tables after it.
func (r *Replica) change(m message, tables map[string]Table, s schema) (map[string]Table, error) {
	want := map[string]int{"update": 2, "update2": 2, "update3": 3}[m.Method]
	if want == 0 || len(m.Params) != want {
		return nil, fmt.Errorf("%s notification with %d parameters, want %d", m.Method, len(m.Params), want)
	}
	last := m.Params[want-1]
	tables = copyTables(tables)
	if m.Method == "update" {
		var u tableUpdates
		if err := json.Unmarshal(last, &u); err != nil {
			return nil, fmt.Errorf("update notification: %w", err)
		}
		return tables, u.apply(tables)
	}
	var u tableUpdates2
	if err := json.Unmarshal(last, &u); err != nil {
		return nil, fmt.Errorf("%s notification: %w", m.Method, err)
	}
	if err := u.apply(tables, s); err != nil {
		r.transaction = ""
		return nil, err
	}
	if m.Method == "update3" {
		if err := json.Unmarshal(m.Params[1], &r.transaction); err != nil {
			return nil, fmt.Errorf("update3 notification: %w", err)
		}
	}
	return tables, nil
}

// tableUpdates2 is the <table-updates2> of ovsdb-server(7) section 4.1.14. A
// deletion is a null, which json.RawMessage keeps apart from nothing.
type tableUpdates2 map[string]map[UUID]map[string]json.RawMessage

func (u tableUpdates2) apply(tables map[string]Table, s schema) error {
	for name, rows := range u {
		t, ok := tables[name]
		if !ok {
			return fmt.Errorf("update of table %q, which is not monitored", name)
		}
		for id, change := range rows {
			if err := applyRow(t, id, change, s[name]); err != nil {
				return fmt.Errorf("table %s, row %.36s: %w", name, id, err)
			}
		}
	}
	return nil
}

func applyRow(t Table, id UUID, change map[string]json.RawMessage, kinds map[string]columnKind) error {
	for operation, raw := range change {
		if operation == "delete" {
			delete(t, id)
			continue
		}
		var row Row
		if err := json.Unmarshal(raw, &row); err != nil {
			return fmt.Errorf("%.20s: %w", operation, err)
		}
		switch operation {
		case "initial", "insert":
			if row == nil {
				row = Row{}
			}
			t[id] = row
		case "modify":
			old, ok := t[id]
			if !ok {
				return errors.New("a row changes that is not there")
			}
			changed := maps.Clone(old)
			for column, diff := range row {
				v, err := applyDiff(old[column], diff, kinds[column])
				if err != nil {
					return fmt.Errorf("column %.64s: %w", column, err)
				}
				changed[column] = v
			}
			t[id] = changed
		default:
			return fmt.Errorf("unknown operation %.20q", operation)
		}
	}
	return nil
}

// applyDiff returns a column's new value.
func applyDiff(old, diff json.RawMessage, kind columnKind) (json.RawMessage, error) {
	switch kind {
	case set:
		return diffSet(old, diff)
	case mapped:
		return diffMap(old, diff)
	}
	return diff, nil
}

// elements returns the members of a set, one that is written bare as well
// (RFC 7047 section 5.1).
func elements(raw json.RawMessage) ([]json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var pair []json.RawMessage
	if json.Unmarshal(raw, &pair) != nil || len(pair) != 2 || string(pair[0]) != `"set"` {
		return []json.RawMessage{raw}, nil
	}
	var members []json.RawMessage
	if err := json.Unmarshal(pair[1], &members); err != nil {
		return nil, fmt.Errorf("a set without members: %w", err)
	}
	return members, nil
}

// key makes one spelling of equal values.
func key(raw json.RawMessage) (string, error) {
	var b bytes.Buffer
	err := json.Compact(&b, raw)
	return b.String(), err
}

func diffSet(old, diff json.RawMessage) (json.RawMessage, error) {
	var out []json.RawMessage
	toggled := make(map[string]bool)
	changes, err := elements(diff)
	if err != nil {
		return nil, err
	}
	for _, m := range changes {
		k, err := key(m)
		if err != nil {
			return nil, err
		}
		toggled[k] = true
	}
	members, err := elements(old)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		k, err := key(m)
		if err != nil {
			return nil, err
		}
		if toggled[k] {
			delete(toggled, k) // it goes
			continue
		}
		out = append(out, m)
	}
	for _, m := range changes {
		if k, _ := key(m); toggled[k] {
			delete(toggled, k)
			out = append(out, m)
		}
	}
	if out == nil {
		out = []json.RawMessage{}
	}
	return json.Marshal([]any{"set", out})
}

func pairs(raw json.RawMessage) ([][2]json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var tagged []json.RawMessage
	if json.Unmarshal(raw, &tagged) != nil || len(tagged) != 2 || string(tagged[0]) != `"map"` {
		return nil, errors.New("is no map")
	}
	var out [][2]json.RawMessage
	err := json.Unmarshal(tagged[1], &out)
	return out, err
}

func diffMap(old, diff json.RawMessage) (json.RawMessage, error) {
	before, err := pairs(old)
	if err != nil {
		return nil, err
	}
	changes, err := pairs(diff)
	if err != nil {
		return nil, err
	}
	changed := make(map[string]json.RawMessage, len(changes))
	for _, p := range changes {
		k, err := key(p[0])
		if err != nil {
			return nil, err
		}
		changed[k] = p[1]
	}
	out := make([][2]json.RawMessage, 0, len(before)+len(changes))
	for _, p := range before {
		k, err := key(p[0])
		if err != nil {
			return nil, err
		}
		value, ok := changed[k]
		switch same, _ := sameValue(p[1], value); {
		case !ok:
			out = append(out, p)
		case same: // it goes
		default:
			out = append(out, [2]json.RawMessage{p[0], value})
		}
		delete(changed, k)
	}
	for _, p := range changes {
		if k, _ := key(p[0]); changed[k] != nil {
			out = append(out, p)
			delete(changed, k)
		}
	}
	return json.Marshal([]any{"map", out})
}

func sameValue(a, b json.RawMessage) (bool, error) {
	x, err := key(a)
	if err != nil || b == nil {
		return false, err
	}
	y, err := key(b)
	return x == y, err
}
