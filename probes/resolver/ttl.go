package resolver

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// The time to live of an answer is kept within these bounds: a change is noticed within the
// hour, and the name servers of a cluster, which often say five seconds, are not asked all the
// time: by every node, and several times for each name where resolv.conf has a search list.
const (
	minTTL = 15 * time.Second
	maxTTL = time.Hour
)

// ttlKey is the key of a *lifetime in a context.
type ttlKey struct{}

// lifetime is the shortest time to live of the answers seen.
type lifetime struct {
	mu    sync.Mutex
	value time.Duration
	known bool
}

func (l *lifetime) add(ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known || ttl < l.value {
		l.value, l.known = ttl, true
	}
}

// SetTTL is for a Lookup to say how long its result may be used. Without it the
// name is looked up again after the resolver's interval.
func SetTTL(ctx context.Context, ttl time.Duration) {
	if l, ok := ctx.Value(ttlKey{}).(*lifetime); ok {
		l.add(ttl)
	}
}

// next returns the time until the next look-up.
func (l *lifetime) next(otherwise time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known {
		return otherwise
	}
	return min(max(l.value, minTTL), maxTTL)
}

// System looks names up as the system does, by hosts(5) and resolv.conf(5), and
// tells the time to live of what name servers answer, which the standard library
// keeps to itself: it is read from the messages as they pass.
func System(ctx context.Context, network, host string) ([]netip.Addr, error) {
	r := &net.Resolver{PreferGo: true, Dial: func(dialCtx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(dialCtx, network, address)
		if err != nil {
			return nil, err
		}
		if udp, ok := conn.(*net.UDPConn); ok {
			return &datagramReader{UDPConn: udp, ctx: ctx}, nil
		}
		return &streamReader{Conn: conn, ctx: ctx}, nil
	}}
	return r.LookupNetIP(ctx, network, host)
}

// datagramReader and streamReader look at the answers that are read.
type datagramReader struct {
	*net.UDPConn
	ctx context.Context
}

func (r *datagramReader) Read(b []byte) (int, error) {
	n, err := r.UDPConn.Read(b)
	if err == nil {
		note(r.ctx, b[:n])
	}
	return n, err
}

type streamReader struct {
	net.Conn
	ctx  context.Context
	seen []byte
}

func (r *streamReader) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	// Messages are preceded by their size in 16 bits (RFC 1035 section 4.2.2).
	r.seen = append(r.seen, b[:n]...)
	for len(r.seen) >= 2 {
		size := 2 + int(binary.BigEndian.Uint16(r.seen))
		if len(r.seen) < size {
			break
		}
		note(r.ctx, r.seen[2:size])
		r.seen = r.seen[size:]
	}
	return n, err
}

// note takes the times to live of an answer's addresses and aliases. That there is
// no answer holds as long as the SOA record says (RFC 2308 section 5).
func note(ctx context.Context, message []byte) {
	var p dnsmessage.Parser
	if _, err := p.Start(message); err != nil || p.SkipAllQuestions() != nil {
		return
	}
	found := false
	for {
		h, err := p.AnswerHeader()
		if err != nil {
			break
		}
		switch h.Type {
		case dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeCNAME:
			found = true
			SetTTL(ctx, time.Duration(h.TTL)*time.Second)
		}
		if p.SkipAnswer() != nil {
			return
		}
	}
	for !found {
		h, err := p.AuthorityHeader()
		if err != nil || h.Type != dnsmessage.TypeSOA {
			return
		}
		soa, err := p.SOAResource()
		if err != nil {
			return
		}
		SetTTL(ctx, time.Duration(min(h.TTL, soa.MinTTL))*time.Second)
		found = true
	}
}
