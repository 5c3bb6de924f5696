package ovsdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Operation is one operation of a transaction (RFC 7047 section 5.2), as its JSON has it.
type Operation map[string]any

// Result is what an operation did: the rows of a select, or how many rows it changed.
type Result struct {
	Rows    []Row  `json:"rows"`
	Count   int    `json:"count"`
	Problem string `json:"error"`
	Details string `json:"details"`
}

// Transact has the server carry out operations, all of them or none, over a connection of its own, until ctx ends, and
// returns what each did. For remote see CheckRemote. An operation that fails is an error that quotes the server.
func Transact(ctx context.Context, remote string, t TLS, database string, operations ...Operation) ([]Result, error) {
	c, err := connect(ctx, remote, t)
	if err != nil {
		return nil, err
	}
	params := []any{database}
	for _, o := range operations {
		params = append(params, o)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.close() }) // ends the call
	var results []*Result
	err = c.call(&results, "transact", params...)
	if stop() {
		err = errors.Join(err, c.close())
	} else if err != nil {
		err = fmt.Errorf("transaction: %w (%w)", context.Cause(ctx), err)
	}
	if err != nil {
		return nil, err
	}
	// The server answers null for what it did not come to, and one more where the whole cannot be committed.
	found := make([]Result, 0, len(operations))
	for _, r := range results {
		if r == nil {
			continue
		}
		if r.Problem != "" {
			return nil, fmt.Errorf("%w a transaction: %s: %s", errRefused, clip([]byte(r.Problem)), clip([]byte(r.Details)))
		}
		found = append(found, *r)
	}
	if len(found) != len(operations) {
		return nil, fmt.Errorf("ovsdb-server answered %d of %d operations", len(found), len(operations))
	}
	return found, nil
}

// UUID returns a column that is one reference, such as _uuid; empty for anything else.
func (r Row) UUID(column string) UUID {
	found := r.UUIDs(column)
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

// MapOf returns a map of strings as operations have it.
func MapOf(m map[string]string) json.RawMessage {
	pairs := make([][2]string, 0, len(m))
	for k, v := range m {
		pairs = append(pairs, [2]string{k, v})
	}
	raw, _ := json.Marshal([]any{"map", pairs}) // of texts: it cannot fail
	return raw
}
