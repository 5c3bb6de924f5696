package networks

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"vigia/internal/testutil"
	"vigia/probes/reflector"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
)

const patience = time.Minute

type ignored struct{}

func (ignored) Received()                 {}
func (ignored) Reflected()                {}
func (ignored) Rejected(reflector.Reason) {}
func (ignored) Overflowed(uint32)         {}

// reflect runs a reflector that tells of networks, and returns where.
func reflect(t *testing.T, keys stamp.Keys, here []stamp.Network) Peer {
	t.Helper()
	r, err := reflector.New(reflector.Options{
		Logger: slog.New(slog.DiscardHandler), RemoveCounters: func(sockets.Key) {},
		NewCounters: func(sockets.Key) reflector.Counters { return ignored{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	at := testutil.FreePort(t, "udp4", "127.0.0.1")
	key := sockets.Key{Local: at}
	c := reflector.Config{Listeners: []sockets.Key{key}, MaxRate: 1000, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Networks: here}
	if keys != "" {
		c.Keys = map[sockets.Key]stamp.Keys{key: keys}
	}
	if err := r.Apply(c); err != nil {
		t.Fatal(err)
	}
	testutil.Running(t, r)
	return Peer{Node: "b", Host: "127.0.0.1", Port: at.Port(), Keys: keys}
}

func newKeys(t *testing.T) stamp.Keys {
	t.Helper()
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	keys, err := stamp.ParseKeys([]byte(hex.EncodeToString(key)))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestAReflectorAnswers(t *testing.T) {
	here := told("net1", "10.88.1.10", "net2", "fd00:88::1")
	for _, keys := range []stamp.Keys{"", newKeys(t)} {
		p := reflect(t, keys, here)
		if got, err := ask(t.Context(), &p, patience); err != nil || !slices.Equal(got, here) {
			t.Errorf("%v, %v", got, err)
		}
		p.Keys = newKeys(t)
		if got, err := ask(t.Context(), &p, 200*time.Millisecond); err == nil {
			t.Errorf("with the key of somebody else: %v", got)
		}
	}
}

// server answers each question with what respond makes of it.
func server(t *testing.T, respond func([]byte) [][]byte) Peer {
	t.Helper()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		for b := make([]byte, 2000); ; {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			for _, reply := range respond(slices.Clone(b[:n])) {
				_, _ = c.WriteTo(reply, from)
			}
		}
	}()
	return Peer{Node: "b", Host: "127.0.0.1", Port: netip.MustParseAddrPort(c.LocalAddr().String()).Port()}
}

// answer makes the answer to a question.
func answer(question []byte, here []stamp.Network) []byte {
	q, _ := stamp.ParseRequest(question)
	stamp.Reply{SenderSequence: q.Sequence, SenderTimestamp: q.Timestamp}.Put(question)
	v := stamp.TLV(question[stamp.BaseSize:])
	stamp.PutNetworks(v, here)
	v.SetFlags(0)
	return question
}

// TestForgedAnswers are not taken for the one that is awaited.
func TestForgedAnswers(t *testing.T) {
	here := told("net1", "10.88.1.10")
	p := server(t, func(q []byte) [][]byte {
		forged := answer(slices.Clone(q), told("net1", "10.66.6.6"))
		other := slices.Clone(forged)
		forged[27]++ // the sender's sequence number
		other[35]++  // the sender's time stamp
		return [][]byte{{}, []byte("x"), forged, other, answer(q, here)}
	})
	if got, err := ask(t.Context(), &p, patience); err != nil || !slices.Equal(got, here) {
		t.Errorf("%v, %v", got, err)
	}
	// Somebody else who answers is not heard at all.
	elsewhere, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		b := make([]byte, 2000)
		n, from, err := c.ReadFrom(b)
		if err == nil {
			_, _ = elsewhere.WriteTo(answer(b[:n], here), from)
		}
	}()
	p.Port = netip.MustParseAddrPort(c.LocalAddr().String()).Port()
	if got, err := ask(t.Context(), &p, 300*time.Millisecond); err == nil {
		t.Errorf("%v of somebody else", got)
	}
}

// TestWhoDoesNotTell: reflectors of others, nobody, and who gives up.
func TestWhoDoesNotTell(t *testing.T) {
	p := server(t, func(q []byte) [][]byte { // knows STAMP, and returns the TLV as one that it does not know
		r, _ := stamp.ParseRequest(q)
		stamp.Reply{SenderSequence: r.Sequence, SenderTimestamp: r.Timestamp}.Put(q)
		return [][]byte{q}
	})
	if _, err := ask(t.Context(), &p, patience); !errors.Is(err, errSilent) {
		t.Errorf("of another reflector: %v", err)
	}
	nobody := Peer{Host: "127.0.0.1", Port: testutil.FreePort(t, "udp4", "127.0.0.1").Port()}
	if _, err := ask(t.Context(), &nobody, patience); err == nil {
		t.Error("nobody answers")
	}
	absent := Peer{Host: "no-such-host.invalid", Port: 1}
	if _, err := ask(t.Context(), &absent, patience); err == nil {
		t.Error("a host without an address answers")
	}
	silent := server(t, func([]byte) [][]byte { return nil })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	begun := time.Now()
	if _, err := ask(ctx, &silent, 10*time.Minute); err == nil || time.Since(begun) > patience {
		t.Errorf("it gives up after %v: %v", time.Since(begun), err)
	}
}
