package ovsdb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// A condition keeps rows out of a copy: only rows whose column has one of the
// values are copied. Servers without conditional monitors (before Open vSwitch
// 2.6) send all rows.
type condition struct {
	column string
	values []string
}

// where writes the condition as ovsdb-server(7) wants it: clauses of which one
// must hold, or false, which never does.
func (c *condition) where() []any {
	if len(c.values) == 0 {
		return []any{false}
	}
	out := make([]any, len(c.values))
	for i, v := range c.values {
		out[i] = []any{c.column, "==", v}
	}
	return out
}

// WithCondition copies no row of a table until SetCondition says which.
func WithCondition(table, column string) Option {
	return func(r *Replica) { r.conditions[table] = condition{column: column} }
}

// SetCondition changes which rows of a table are copied: those whose column, as named
// by WithCondition, has one of the values. Rows come and go as the server tells.
func (r *Replica) SetCondition(table string, values []string) {
	values = slices.Sorted(slices.Values(values))
	r.mu.Lock()
	c, ok := r.conditions[table]
	changed := ok && !slices.Equal(c.values, values)
	if changed {
		c.values = values
		r.conditions[table] = c
	}
	r.mu.Unlock()
	if !changed {
		return
	}
	select {
	case r.conditionsChanged <- struct{}{}:
	default:
	}
}

// wheres returns the conditions in force, by table.
func (r *Replica) wheres() map[string][]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string][]any, len(r.conditions))
	for table, c := range r.conditions {
		out[table] = c.where()
	}
	return out
}

// changeConditions tells the server of conditions that differ from those sent last, and returns
// those that are in force then.
func (r *Replica) changeConditions(c *conn, sent []byte) ([]byte, error) {
	if r.Method() == plainMonitor {
		return sent, nil
	}
	change := make(map[string]any)
	for table, where := range r.wheres() {
		change[table] = []any{map[string]any{"where": where}}
	}
	now, err := json.Marshal(change)
	if err != nil || bytes.Equal(now, sent) {
		return sent, err
	}
	if _, err := c.request("monitor_cond_change", nil, nil, change); err != nil {
		return sent, err
	}
	return now, nil
}

// refusal returns the error that an answer carries, if it is one.
func refusal(m message) error {
	if m.Method != "" || len(m.Error) == 0 || string(m.Error) == "null" {
		return nil
	}
	return fmt.Errorf("%w a change of the monitor: %s", errRefused, clip(m.Error))
}
