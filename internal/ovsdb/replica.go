package ovsdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// Columns names the columns to copy, by table.
type Columns map[string][]string

// Replica is a live copy of some tables. It reconnects by itself.
type Replica struct {
	remote   string
	database string
	columns  Columns
	tls      TLS
	logger   *slog.Logger
	probe    time.Duration // silence after which the server is asked for an echo

	// Of the session conditions: where monitor_cond_since goes on, and with what request.
	transaction string
	asked       []byte

	conditionsChanged chan struct{} // has a value after conditions have changed

	mu          sync.Mutex
	conditions  map[string]condition // by table; tables that are not in it are copied whole
	method      string               // of the monitor in use
	tables      map[string]Table     // nil until the first copy has come
	generation  uint64               // of tables
	err         error                // why there is no session now
	lastMessage time.Time            // when the server last sent something
	changes     chan struct{}
}

// Reconnection delays: the first is short, since ovsdb-server restarts in well
// under a second.
const (
	retryFirst = 200 * time.Millisecond
	retryMost  = 2 * time.Second
)

// NewReplica returns a copy of the columns that exists once Run is called.
// For remote see CheckRemote.
func NewReplica(remote, database string, columns Columns, logger *slog.Logger, options ...Option) (*Replica, error) {
	r := &Replica{
		remote: remote, database: database, columns: columns, logger: logger, probe: probeInterval,
		err: errors.New("not connected yet"), changes: make(chan struct{}, 1), conditionsChanged: make(chan struct{}, 1), conditions: make(map[string]condition),
	}
	for _, o := range options {
		o(r)
	}
	if err := CheckRemote(remote, r.tls); err != nil {
		return nil, err
	}
	return r, nil
}

// Run keeps the copy until ctx ends.
func (r *Replica) Run(ctx context.Context) {
	delay := retryFirst
	for ctx.Err() == nil {
		had := r.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if had {
			delay = retryFirst
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
		delay = longer(delay)
	}
}

// longer returns the delay that follows one.
func longer(delay time.Duration) time.Duration { return min(2*delay, retryMost) }

// session runs one connection to its end and tells whether it brought a copy.
func (r *Replica) session(ctx context.Context) (had bool) {
	err := r.follow(ctx, &had)
	r.mu.Lock()
	first := r.err == nil || r.err.Error() != err.Error()
	r.err = err
	r.mu.Unlock()
	if first && ctx.Err() == nil {
		r.logger.Warn("cannot follow OVSDB, reconnecting", "remote", r.remote, "err", err)
	}
	return had
}

func (r *Replica) follow(ctx context.Context, had *bool) error {
	c, err := connect(ctx, r.remote, r.tls)
	if err != nil {
		return err
	}
	defer c.close()
	stop := context.AfterFunc(ctx, func() { c.close() })
	defer stop()

	tables, kinds, err := r.begin(c)
	if err != nil {
		return err
	}
	r.publish(tables)
	*had = true
	r.logger.Info("OVSDB copy is complete", "remote", r.remote, "by", r.Method())
	return r.updates(c, tables, kinds)
}

// monitorRequests asks only for columns that this server's schema has, and tells
// how their changes are written.
func (r *Replica) monitorRequests(c *conn) (map[string]any, schema, error) {
	var whole struct {
		Tables map[string]struct {
			Columns map[string]struct {
				Type json.RawMessage `json:"type"`
			} `json:"columns"`
		} `json:"tables"`
	}
	if err := c.call(&whole, "get_schema", r.database); err != nil {
		return nil, nil, err
	}
	requests, kinds := make(map[string]any, len(r.columns)), make(schema, len(r.columns))
	for table, columns := range r.columns {
		have := make([]string, 0, len(columns))
		kinds[table] = make(map[string]columnKind, len(columns))
		for _, column := range columns {
			if declared, ok := whole.Tables[table].Columns[column]; ok {
				have = append(have, column)
				kinds[table][column] = kindOf(declared.Type)
			}
		}
		if len(have) == 0 {
			return nil, nil, fmt.Errorf("database %s has no table %s with any of the columns %v", r.database, table, columns)
		}
		requests[table] = map[string]any{"columns": have}
	}
	for table, where := range r.wheres() {
		if request, ok := requests[table].(map[string]any); ok {
			request["where"] = where
		}
	}
	return requests, kinds, nil
}

// kindOf reads a column's <type> (RFC 7047 section 3.2).
func kindOf(declared json.RawMessage) columnKind {
	var t struct {
		Value json.RawMessage `json:"value"`
		Max   any             `json:"max"` // a number or "unlimited"
	}
	if json.Unmarshal(declared, &t) != nil {
		return scalar // an atomic type, written as a string
	}
	if t.Value != nil {
		return mapped
	}
	if n, ok := t.Max.(float64); t.Max == nil || ok && n <= 1 {
		return scalar
	}
	return set
}

// updates applies what the server pushes until the session breaks.
func (r *Replica) updates(c *conn, tables map[string]Table, kinds schema) error {
	received := make(chan message)
	broken := make(chan error, 1)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			m, err := c.receive(time.Time{})
			if err != nil {
				broken <- err
				return
			}
			select {
			case received <- m:
			case <-done:
				return
			}
		}
	}()
	silence := time.NewTicker(r.probe)
	defer silence.Stop()
	probing := false
	var sent []byte
	for {
		select {
		case <-r.conditionsChanged:
			next, err := r.changeConditions(c, sent)
			if err != nil {
				return err
			}
			sent = next
		case err := <-broken:
			return err
		case m := <-received:
			silence.Reset(r.probe)
			probing = false
			next, err := r.handle(c, m, tables, kinds)
			if err != nil {
				return err
			}
			tables = next
		case <-silence.C:
			if probing {
				return fmt.Errorf("ovsdb-server has been silent for %s", 2*r.probe)
			}
			probing = true
			if _, err := c.request("echo"); err != nil {
				return err
			}
		}
	}
}

// handle takes one message of the server and returns the copy as it is then.
func (r *Replica) handle(c *conn, m message, tables map[string]Table, kinds schema) (map[string]Table, error) {
	if err := refusal(m); err != nil {
		return nil, err
	}
	switch m.Method {
	case "echo":
		if err := c.answerEcho(m); err != nil {
			return nil, err
		}
	case "update", "update2", "update3":
		next, err := r.change(m, tables, kinds)
		if err != nil {
			return nil, err
		}
		tables = next
		r.publish(tables)
	}
	r.touch()
	return tables, nil
}

// copyTables copies what apply changes; rows are replaced, never altered.
func copyTables(tables map[string]Table) map[string]Table {
	out := make(map[string]Table, len(tables))
	for name, t := range tables {
		out[name] = maps.Clone(t)
	}
	return out
}

func (r *Replica) publish(tables map[string]Table) {
	r.mu.Lock()
	r.tables, r.err, r.lastMessage = tables, nil, time.Now()
	r.generation++
	r.mu.Unlock()
	select {
	case r.changes <- struct{}{}:
	default:
	}
}

func (r *Replica) touch() {
	r.mu.Lock()
	r.lastMessage = time.Now()
	r.mu.Unlock()
}

func (r *Replica) setMethod(method string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.method = method
}

// Method returns how the server is followed: monitor_cond_since, monitor_cond or
// monitor.
func (r *Replica) Method() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.method
}

// Changes delivers a value after the copy has changed.
func (r *Replica) Changes() <-chan struct{} { return r.changes }

// Tables returns the copy, which must not be altered. While the server is away
// it returns the last copy and why the server is away; before the first copy
// the tables are nil.
func (r *Replica) Tables() (map[string]Table, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tables, r.err
}

// Generation is another number whenever the copy is another one. Asked for before
// Tables it is never that of a later copy.
func (r *Replica) Generation() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.generation
}

// Age returns the time since the server last said anything; the copy is at most
// that old. It is false before the first copy.
func (r *Replica) Age() (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.lastMessage), r.tables != nil
}
