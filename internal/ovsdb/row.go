package ovsdb

import (
	"encoding/json"
	"fmt"
)

// UUID identifies a row.
type UUID string

// Row holds a row's columns as the server wrote them.
type Row map[string]json.RawMessage

// Table is a copy of a table's monitored columns.
type Table map[UUID]Row

// String returns a string column; a missing column, an empty set or another
// type reads as "".
func (r Row) String(column string) string {
	var s string
	if json.Unmarshal(r[column], &s) == nil {
		return s
	}
	return ""
}

// Int returns an integer column. An optional integer is a set of at most one
// (RFC 7047 section 5.1): ok is false for an empty one.
func (r Row) Int(column string) (v int64, ok bool) {
	err := json.Unmarshal(r[column], &v)
	return v, err == nil && len(r[column]) > 0
}

// Map returns a column of strings by strings.
func (r Row) Map(column string) map[string]string {
	var pair [2]json.RawMessage
	var tag string
	if json.Unmarshal(r[column], &pair) != nil || json.Unmarshal(pair[0], &tag) != nil || tag != "map" {
		return nil
	}
	var entries [][2]string
	if json.Unmarshal(pair[1], &entries) != nil {
		return nil
	}
	out := make(map[string]string, len(entries))
	for _, e := range entries {
		out[e[0]] = e[1]
	}
	return out
}

// UUIDs returns a column of references. A set of one is written bare.
func (r Row) UUIDs(column string) []UUID {
	var pair [2]json.RawMessage
	var tag string
	if json.Unmarshal(r[column], &pair) != nil || json.Unmarshal(pair[0], &tag) != nil {
		return nil
	}
	switch tag {
	case "uuid":
		var id UUID
		if json.Unmarshal(pair[1], &id) == nil {
			return []UUID{id}
		}
	case "set":
		var refs [][2]string
		if json.Unmarshal(pair[1], &refs) != nil {
			return nil
		}
		out := make([]UUID, 0, len(refs))
		for _, ref := range refs {
			out = append(out, UUID(ref[1]))
		}
		return out
	}
	return nil
}

// ByNumber returns a column of references by integers.
func (r Row) ByNumber(column string) map[int64]UUID {
	var pair [2]json.RawMessage
	var tag string
	if json.Unmarshal(r[column], &pair) != nil || json.Unmarshal(pair[0], &tag) != nil || tag != "map" {
		return nil
	}
	var entries [][2]json.RawMessage
	if json.Unmarshal(pair[1], &entries) != nil {
		return nil
	}
	out := make(map[int64]UUID, len(entries))
	for _, e := range entries {
		var number int64
		var ref [2]string
		if json.Unmarshal(e[0], &number) == nil && json.Unmarshal(e[1], &ref) == nil {
			out[number] = UUID(ref[1])
		}
	}
	return out
}

// tableUpdates is the <table-updates> of RFC 7047 section 4.1.6.
type tableUpdates map[string]map[UUID]struct {
	Old Row `json:"old"`
	New Row `json:"new"`
}

// apply changes the copy. A row update without "new" is a deletion.
func (u tableUpdates) apply(tables map[string]Table) error {
	for name, rows := range u {
		t, ok := tables[name]
		if !ok {
			return fmt.Errorf("update of table %q, which is not monitored", name)
		}
		for id, change := range rows {
			if change.New == nil {
				delete(t, id)
				continue
			}
			t[id] = change.New
		}
	}
	return nil
}
