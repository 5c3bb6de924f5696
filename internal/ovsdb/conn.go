package ovsdb

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// maxMessage bounds one JSON value of the server, in bytes. A full copy
	// of 5 000 interfaces without statistics takes about 5 MB.
	maxMessage     = 64 << 20
	dialTimeout    = 2 * time.Second
	requestTimeout = 10 * time.Second
	// probeInterval is how long the server may be silent before it is asked
	// for an echo (RFC 7047 section 4.1.11); twice that is a dead server.
	probeInterval = 5 * time.Second
)

// conn is one JSON-RPC 1.0 session. The protocol has no framing: JSON values
// follow each other on the stream.
type conn struct {
	nc     net.Conn
	limit  *io.LimitedReader
	dec    *json.Decoder
	nextID int
}

type message struct {
	Method string            `json:"method,omitempty"`
	Params []json.RawMessage `json:"params,omitempty"`
	ID     json.RawMessage   `json:"id"`
	Result json.RawMessage   `json:"result,omitempty"`
	Error  json.RawMessage   `json:"error,omitempty"`
}

func connect(ctx context.Context, remote string, t TLS) (*conn, error) {
	nc, err := dialRemote(ctx, remote, t)
	if err != nil {
		return nil, fmt.Errorf("connect to ovsdb-server: %w", err)
	}
	limit := &io.LimitedReader{R: nc, N: maxMessage}
	return &conn{nc: nc, limit: limit, dec: json.NewDecoder(limit)}, nil
}

func (c *conn) close() error { return c.nc.Close() }

func (c *conn) send(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := c.nc.SetWriteDeadline(time.Now().Add(requestTimeout)); err != nil {
		return err
	}
	if _, err = c.nc.Write(raw); err != nil {
		return fmt.Errorf("send to ovsdb-server: %w", err)
	}
	return nil
}

// receive waits for one message; a zero deadline waits for ever.
func (c *conn) receive(deadline time.Time) (message, error) {
	var m message
	if err := c.nc.SetReadDeadline(deadline); err != nil {
		return m, err
	}
	c.limit.N = maxMessage
	err := c.dec.Decode(&m)
	if err == nil {
		return m, nil
	}
	if c.limit.N == 0 {
		return m, fmt.Errorf("ovsdb-server sent a message of more than %d bytes", maxMessage)
	}
	return m, fmt.Errorf("receive from ovsdb-server: %w", err)
}

func (c *conn) request(method string, params ...any) (json.RawMessage, error) {
	c.nextID++
	id := c.nextID
	if params == nil {
		params = []any{}
	}
	return json.RawMessage(fmt.Sprint(id)), c.send(map[string]any{"method": method, "params": params, "id": id})
}

// call sends a request and waits for its answer. It serves before any
// notification can come, that is before a monitor is set up.
func (c *conn) call(result any, method string, params ...any) error {
	id, err := c.request(method, params...)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(requestTimeout)
	for {
		m, err := c.receive(deadline)
		if err != nil {
			return err
		}
		switch {
		case m.Method == "echo":
			if err := c.answerEcho(m); err != nil {
				return err
			}
		case m.Method == "" && string(m.ID) == string(id):
			if len(m.Error) > 0 && string(m.Error) != "null" {
				return fmt.Errorf("%w %s: %s", errRefused, method, clip(m.Error))
			}
			if err := json.Unmarshal(m.Result, result); err != nil {
				return fmt.Errorf("answer to %s: %w", method, err)
			}
			return nil
		}
	}
}

func (c *conn) answerEcho(m message) error {
	return c.send(map[string]any{"result": m.Params, "error": nil, "id": m.ID})
}

func clip(b []byte) string {
	if len(b) > 200 {
		return string(b[:200]) + "..."
	}
	return string(b)
}
