package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Version is the wire version of a session.
type Version uint8

// Wire versions.
const (
	V10 Version = 1 + iota
	V11
	V12
	V13
	V14
)

func (v Version) String() string { return fmt.Sprintf("OpenFlow 1.%d", v-1) }

// Message types (section 7.1.1), the same in all versions but where said.
const (
	typeHello          = 0
	typeError          = 1
	typeEchoRequest    = 2
	typeEchoReply      = 3
	typeStatsRequest10 = 16
	typeStatsReply10   = 17
	typeMultipart      = 18 // request; 1.1 and 1.2 say STATS
	typeMultipartReply = 19
)

const (
	headerSize = 8
	// maxReply bounds one answer, all its parts together.
	maxReply = 64 << 20
	// maxForeign bounds the messages between a request and its answer.
	maxForeign     = 1 << 16
	dialTimeout    = 2 * time.Second
	requestTimeout = 10 * time.Second
)

// ErrUnsupported means that the session's version has no such statistics.
var ErrUnsupported = errors.New("not in this version of OpenFlow")

// Error is an error message of the switch (section 7.5.4).
type Error struct {
	Type, Code uint16
	Text       string // of a failed HELLO
}

func (e *Error) Error() string {
	if e.Text != "" {
		return fmt.Sprintf("the switch refuses: %s", e.Text)
	}
	return fmt.Sprintf("the switch answers with error type %d, code %d", e.Type, e.Code)
}

// Conn is a session. It must not be used by several goroutines at a time.
type Conn struct {
	nc      net.Conn
	version Version
	xid     uint32
	broken  error
	bounds  bounds
}

// bounds is what one answer may take.
type bounds struct {
	bytes    int // of all its parts
	messages int // until its last part has come
}

// Dial connects to the unix socket and agrees on the highest version that both
// sides speak (section 6.3.1).
func Dial(ctx context.Context, path string) (*Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	nc, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to the switch: %w", err)
	}
	c := &Conn{nc: nc, bounds: bounds{maxReply, maxForeign}}
	if err := c.hello(ctx); err != nil {
		nc.Close()
		return nil, fmt.Errorf("OpenFlow handshake at %s: %w", path, err)
	}
	return c, nil
}

// Close ends the session.
func (c *Conn) Close() error { return c.nc.Close() }

// Version returns what the two sides agreed on.
func (c *Conn) Version() Version { return c.version }

// bitmap holds the versions that this package speaks, bit n for wire version n.
const bitmap = 1<<V10 | 1<<V11 | 1<<V12 | 1<<V13 | 1<<V14

func (c *Conn) hello(ctx context.Context) error {
	defer c.deadline(ctx)()
	// One element: OFPHET_VERSIONBITMAP, 8 bytes long.
	element := binary.BigEndian.AppendUint32([]byte{0, 1, 0, 8}, bitmap)
	c.version = V14
	if _, err := c.send(typeHello, element); err != nil {
		return err
	}
	for range maxForeign {
		m, err := c.receive()
		if err != nil {
			return err
		}
		switch m.kind {
		case typeHello:
			v, err := agree(m)
			if err != nil {
				return err
			}
			c.version = v
			return nil
		case typeError:
			return parseError(m.body)
		}
	}
	return errors.New("the switch says everything but HELLO")
}

// agree finds the highest common version. Without a bitmap it is the smaller of
// the two headers' versions.
func agree(m message) (Version, error) {
	theirs := uint32(0)
	for b := m.body; len(b) >= 4; {
		length := int(binary.BigEndian.Uint16(b[2:]))
		if length < 4 || length > len(b) {
			break
		}
		if binary.BigEndian.Uint16(b) == 1 && length >= 8 {
			theirs = binary.BigEndian.Uint32(b[4:])
		}
		b = b[min(len(b), (length+7)/8*8):]
	}
	if theirs != 0 {
		for v := V14; v >= V10; v-- {
			if theirs&(1<<v) != 0 {
				return v, nil
			}
		}
		return 0, fmt.Errorf("the switch allows none of OpenFlow 1.0 to 1.4 (bitmap %#x); add one to the bridge's protocols", theirs)
	}
	if m.version < V10 {
		return 0, fmt.Errorf("the switch speaks the unknown version %#x", uint8(m.version))
	}
	return min(m.version, V14), nil
}

type message struct {
	version Version
	kind    uint8
	xid     uint32
	body    []byte
}

func (c *Conn) send(kind uint8, body []byte) (xid uint32, err error) {
	c.xid++
	return c.xid, c.sendAs(kind, c.xid, body)
}

func (c *Conn) sendAs(kind uint8, xid uint32, body []byte) error {
	b := make([]byte, headerSize, headerSize+len(body))
	b[0], b[1] = uint8(c.version), kind
	binary.BigEndian.PutUint16(b[2:], uint16(headerSize+len(body)))
	binary.BigEndian.PutUint32(b[4:], xid)
	if _, err := c.nc.Write(append(b, body...)); err != nil {
		return fmt.Errorf("send to the switch: %w", err)
	}
	return nil
}

// receive returns the next message that is not an echo request; those it answers.
func (c *Conn) receive() (message, error) {
	for {
		m, err := readMessage(c.nc)
		if err != nil {
			return m, fmt.Errorf("receive from the switch: %w", err)
		}
		if m.kind != typeEchoRequest {
			return m, nil
		}
		if err := c.sendAs(typeEchoReply, m.xid, m.body); err != nil {
			return m, err
		}
	}
}

func readMessage(r io.Reader) (message, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return message{}, err
	}
	m := message{version: Version(h[0]), kind: h[1], xid: binary.BigEndian.Uint32(h[4:])}
	length := int(binary.BigEndian.Uint16(h[2:]))
	if length < headerSize {
		return m, fmt.Errorf("a message of %d bytes is shorter than its header", length)
	}
	m.body = make([]byte, length-headerSize)
	_, err := io.ReadFull(r, m.body)
	return m, err
}

func parseError(body []byte) error {
	if len(body) < 4 {
		return errors.New("the switch sent an error message without an error")
	}
	e := &Error{Type: binary.BigEndian.Uint16(body), Code: binary.BigEndian.Uint16(body[2:])}
	if e.Type == 0 { // OFPET_HELLO_FAILED carries text
		e.Text = clean(body[4:])
	}
	return e
}

// clean makes printable text of what the switch sent, 200 bytes at most.
func clean(b []byte) string {
	out := make([]byte, 0, min(len(b), 200))
	for _, c := range b[:cap(out)] {
		if c == 0 {
			break
		}
		if c < ' ' || c > '~' {
			c = '?'
		}
		out = append(out, c)
	}
	return string(out)
}

// deadline lets reads and writes end with ctx, after requestTimeout at most. The
// function it returns lifts the deadline.
func (c *Conn) deadline(ctx context.Context) (lift func()) {
	at := time.Now().Add(requestTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(at) {
		at = d
	}
	// A socket that refuses a deadline fails at the next read.
	_ = c.nc.SetDeadline(at)
	stop := context.AfterFunc(ctx, func() { _ = c.nc.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

// exchange sends a request and hands over the body of each part of the answer.
// After an error other than the switch's own the session is of no use any more.
func (c *Conn) exchange(ctx context.Context, kind, answer uint8, body []byte, part func(b []byte) (more bool, err error)) error {
	if c.broken != nil {
		return fmt.Errorf("the session has ended: %w", c.broken)
	}
	err := c.tryExchange(ctx, kind, answer, body, part)
	var refused *Error
	if err != nil && !errors.As(err, &refused) {
		c.broken = err
	}
	return err
}

func (c *Conn) tryExchange(ctx context.Context, kind, answer uint8, body []byte, part func(b []byte) (bool, error)) error {
	defer c.deadline(ctx)()
	xid, err := c.send(kind, body)
	if err != nil {
		return err
	}
	total := 0
	for range c.bounds.messages {
		m, err := c.receive()
		switch {
		case err != nil:
			return err
		case m.xid != xid:
			continue // asynchronous messages, late answers
		case m.kind == typeError:
			return parseError(m.body)
		case m.kind != answer:
			return fmt.Errorf("the switch answers type %d with type %d", kind, m.kind)
		case m.version != c.version:
			return fmt.Errorf("the switch answers in %s, not in %s", m.version, c.version)
		}
		if total += len(m.body); total > c.bounds.bytes {
			return fmt.Errorf("the answer is larger than %d bytes", c.bounds.bytes)
		}
		if more, err := part(m.body); err != nil || !more {
			return err
		}
	}
	return errors.New("the answer has no end")
}

// Statistics types (section 7.3.5).
const (
	statsFlow      = 1
	statsAggregate = 2
	statsTable     = 3
	statsPort      = 4
	statsQueue     = 5
	statsMeter     = 9
)

const flagMore = 1 // OFPMPF_REPLY_MORE

// statistics requests one kind of statistics and hands over each part's entries.
func (c *Conn) statistics(ctx context.Context, kind uint16, request []byte, part func(entries []byte) error) error {
	head := binary.BigEndian.AppendUint16(nil, kind)
	head = append(head, 0, 0) // flags
	ask, answer, prefix := uint8(typeMultipart), uint8(typeMultipartReply), 8
	if c.version == V10 {
		ask, answer, prefix = typeStatsRequest10, typeStatsReply10, 4
	} else {
		head = append(head, 0, 0, 0, 0)
	}
	return c.exchange(ctx, ask, answer, append(head, request...), func(b []byte) (bool, error) {
		if len(b) < prefix {
			return false, errShort
		}
		if got := binary.BigEndian.Uint16(b); got != kind {
			return false, fmt.Errorf("the switch answers statistics of type %d with type %d", kind, got)
		}
		return binary.BigEndian.Uint16(b[2:])&flagMore != 0, part(b[prefix:])
	})
}

var errShort = errors.New("the message is too short")
