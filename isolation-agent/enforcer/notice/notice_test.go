package notice

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var key = bytes.Repeat([]byte{7}, MinKey)

func keys(uint64, uint16) []byte { return key }

func full() Notice {
	return Notice{
		Kind: Congest, KeyID: 2, From: 3, To: 4, Boot: 5, Seq: 6, Nonce: 7, Source: [6]byte{8, 9, 10, 11, 12, 13},
		Destination: [4]byte{14, 15, 16, 17}, Tenant: 18, Measured: 19, Dropped: 20, Rate: 21, Lease: 2 * time.Second,
		Severity: 22, Flags: AtFloor | Plain, Reason: NotYours, Sources: 23,
	}
}

func TestANoticeSurvivesTheWire(t *testing.T) {
	n := full()
	b := n.Append(nil, key)
	if len(b) != Size {
		t.Fatalf("%d bytes", len(b))
	}
	got, err := Parse(b, keys)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(n, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEveryFlippedBitIsRefused(t *testing.T) {
	n := full()
	b := n.Append(nil, key)
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		if _, err := Parse(b, keys); err == nil {
			t.Fatalf("accepted with bit %d flipped", i)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}

func TestForgeriesAreRefused(t *testing.T) {
	n := full()
	good := n.Append(nil, key)
	for name, tc := range map[string]struct {
		datagram []byte
		keys     Keys
		want     error
	}{
		"another key":     {n.Append(nil, bytes.Repeat([]byte{8}, MinKey)), keys, ErrForged},
		"a key not known": {good, func(uint64, uint16) []byte { return nil }, ErrForged},
		"a retired key": {good, func(_ uint64, id uint16) []byte {
			if id == 2 {
				return nil
			}
			return key
		}, ErrForged},
		"too short":       {good[:Size-1], keys, ErrMalformed},
		"too long":        {append(bytes.Clone(good), 0), keys, ErrMalformed},
		"nothing":         {nil, keys, ErrMalformed},
		"another version": {append([]byte{good[0], good[1], 9}, good[3:]...), keys, ErrMalformed},
	} {
		if _, err := Parse(tc.datagram, tc.keys); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func TestAWindowTakesEveryNumberOnce(t *testing.T) {
	var w Window
	for _, step := range []struct {
		seq  uint64
		want bool
	}{{0, false}, {5, true}, {5, false}, {3, true}, {3, false}, {4, true}, {70, true}, {7, true}, {7, false}, {6, false}, {1000, true}, {936, false}, {937, true}, {1000, false}} {
		if got := w.Accept(step.seq); got != step.want {
			t.Errorf("%d: %v, want %v", step.seq, got, step.want)
		}
	}
	// Whatever the order, no number passes twice, and within reach each passes once.
	r := rand.New(rand.NewPCG(1, 2))
	w = Window{}
	passed := map[uint64]int{}
	for base := uint64(1); base < 5000; base += 30 {
		for range 200 {
			seq := base + r.Uint64N(60)
			if w.Accept(seq) {
				passed[seq]++
			}
		}
	}
	for seq, n := range passed {
		if n != 1 {
			t.Fatalf("%d passed %d times", seq, n)
		}
	}
	if len(passed) < 4900 {
		t.Errorf("only %d numbers passed", len(passed))
	}
}

func TestOnlyALiveProcessIsHeard(t *testing.T) {
	var p Peer
	congest := Notice{Kind: Congest, Boot: 10, Seq: 1}
	if err := p.Accept(&congest); !errors.Is(err, ErrUnproven) {
		t.Errorf("before the hello: %v", err)
	}
	if err := p.Accept(&Notice{Kind: HelloAck, Boot: 10, Seq: 1, Nonce: 99}); !errors.Is(err, ErrReplayed) {
		t.Errorf("an answer to no challenge: %v", err)
	}
	p.Challenge(99)
	if err := p.Accept(&Notice{Kind: HelloAck, Boot: 10, Seq: 2, Nonce: 98}); err == nil || p.Known() {
		t.Errorf("a wrong answer: %v", err)
	}
	answer := Notice{Kind: HelloAck, Boot: 10, Seq: 2, Nonce: 99}
	if err := p.Accept(&answer); err != nil || !p.Known() {
		t.Fatal(err)
	}
	if err := p.Accept(&answer); !errors.Is(err, ErrReplayed) {
		t.Errorf("the answer again: %v", err)
	}
	if err := p.Accept(&congest); err != nil {
		t.Errorf("after the hello: %v", err)
	}
	if err := p.Accept(&congest); !errors.Is(err, ErrReplayed) {
		t.Errorf("again: %v", err)
	}
	// A recording of an earlier process is of no use after the restart.
	p.Challenge(100)
	if err := p.Accept(&Notice{Kind: HelloAck, Boot: 11, Seq: 1, Nonce: 100}); err != nil {
		t.Fatal(err)
	}
	if err := p.Accept(&Notice{Kind: Congest, Boot: 10, Seq: 500}); !errors.Is(err, ErrUnproven) {
		t.Errorf("of the old process: %v", err)
	}
	if p.Forget(); p.Known() {
		t.Error("not forgotten")
	}
}

func TestBothNodesDeriveTheSameKeyAndNoOthersDo(t *testing.T) {
	master := bytes.Repeat([]byte{1}, 32)
	derive := func(a, b string, id uint16) string {
		k, err := PairKey(master, a, b, id)
		if err != nil || len(k) != MinKey {
			t.Fatalf("%d bytes, %v", len(k), err)
		}
		return string(k)
	}
	ab := derive("a", "b", 1)
	if ab != derive("b", "a", 1) || ab == derive("a", "c", 1) || ab == derive("a", "b", 2) {
		t.Error("keys are mixed up")
	}
}

func FuzzParse(f *testing.F) {
	n := full()
	f.Add(n.Append(nil, key))
	f.Add([]byte{0x76, 0x69, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Parse(b, keys)
		if err == nil && !bytes.Equal(got.Append(nil, key)[:body-10], b[:body-10]) { // the rest is padding
			t.Errorf("%+v does not stem from %x", got, b)
		}
	})
}
