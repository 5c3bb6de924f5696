package resolver

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// message is an answer with an alias and an address.
func message(t testing.TB, alias, address uint32) []byte {
	t.Helper()
	name := dnsmessage.MustNewName("reflector.example.net.")
	target := dnsmessage.MustNewName("r1.example.net.")
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{Response: true},
		Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
		Answers: []dnsmessage.Resource{
			{Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: alias}, Body: &dnsmessage.CNAMEResource{CNAME: target}},
			{Header: dnsmessage.ResourceHeader{Name: target, Class: dnsmessage.ClassINET, TTL: address}, Body: &dnsmessage.AResource{A: [4]byte{10, 0, 0, 1}}},
		},
	}
	raw, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func ttlOf(messages ...[]byte) time.Duration {
	l := &lifetime{}
	ctx := context.WithValue(context.Background(), ttlKey{}, l)
	for _, m := range messages {
		note(ctx, m)
	}
	return l.next(time.Minute + time.Millisecond)
}

// The shortest time to live of all that led to the address counts, in bounds.
func TestTTL(t *testing.T) {
	for _, c := range []struct {
		alias, address uint32
		want           time.Duration
	}{{300, 60, time.Minute}, {20, 60, 20 * time.Second}, {0, 60, minTTL}, {1 << 30, 1 << 31, maxTTL}} {
		if got := ttlOf(message(t, c.alias, c.address)); got != c.want {
			t.Errorf("%d and %d: %v, want %v", c.alias, c.address, got, c.want)
		}
	}
	if got := ttlOf(message(t, 300, 300), message(t, 30, 300)); got != 30*time.Second {
		t.Errorf("of two messages: %v", got)
	}
	if got := ttlOf(nil, []byte("nonsense")); got != time.Minute+time.Millisecond {
		t.Errorf("without an answer: %v", got)
	}
	soa := dnsmessage.Message{
		Header: dnsmessage.Header{Response: true, RCode: dnsmessage.RCodeNameError},
		Authorities: []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("example.net."), Class: dnsmessage.ClassINET, TTL: 900},
			Body:   &dnsmessage.SOAResource{NS: dnsmessage.MustNewName("a."), MBox: dnsmessage.MustNewName("b."), MinTTL: 45},
		}},
	}
	raw, err := soa.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if got := ttlOf(raw); got != 45*time.Second {
		t.Errorf("of a name that does not exist: %v", got)
	}
}

// Over TCP a message may arrive in any pieces.
func TestTTLFromAStream(t *testing.T) {
	raw := message(t, 300, 17)
	here, there := net.Pipe()
	go func() {
		framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(raw))), raw...)
		for _, b := range framed {
			if _, err := there.Write([]byte{b}); err != nil {
				return
			}
		}
		there.Close()
	}()
	l := &lifetime{}
	r := &streamReader{Conn: here, ctx: context.WithValue(context.Background(), ttlKey{}, l)}
	if _, err := io.ReadAll(r); err != nil {
		t.Fatal(err)
	}
	if got := l.next(0); got != 17*time.Second {
		t.Errorf("got %v", got)
	}
}

// A name is looked up again when its time to live has passed, not at the interval, but never in a loop.
func TestLookedUpAgainOnItsTTL(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{0: minTTL, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int64
			lookup := func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
				asked.Add(1)
				SetTTL(ctx, ttl)
				return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
			}
			r := New(lookup, 24*time.Hour, func(Name, Result) {})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { r.Run(ctx); close(done) }()
			defer func() { cancel(); <-done }()
			r.Set([]Name{{Host: "x"}})
			time.Sleep(want / 2)
			for i := range int64(3) {
				synctest.Wait()
				if got := asked.Load(); got != i+1 {
					t.Errorf("time to live %s: asked %d times after %s", ttl, got, want/2+want*time.Duration(i))
				}
				time.Sleep(want)
			}
		})
	}
}

// System resolves what the hosts file has, which has no time to live.
func TestSystem(t *testing.T) {
	l := &lifetime{}
	got, err := System(context.WithValue(context.Background(), ttlKey{}, l), "ip4", "localhost")
	if err != nil || len(got) == 0 || !got[0].Unmap().IsLoopback() || l.known {
		t.Errorf("%v, %v, %+v", got, err, l.value)
	}
}

func FuzzNote(f *testing.F) {
	f.Add(message(f, 300, 60))
	f.Fuzz(func(_ *testing.T, raw []byte) { ttlOf(raw) })
}
