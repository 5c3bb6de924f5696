package notice

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

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

// TestDerivedKeysStay holds a key against one that another implementation derived.
func TestDerivedKeysStay(t *testing.T) {
	got, err := PairKey(bytes.Repeat([]byte{1}, 32), "b", "a", 1)
	const want = "5953706bc20b9a8c151fdfc02ca411297d6c2af1248e72dd173b54b2b533b60f" // Python's hmac, RFC 5869
	if err != nil || hex.EncodeToString(got) != want {
		t.Errorf("got %x, %v; want %s", got, err, want)
	}
	if id := ID("compute1"); id != 0xd02434e0be28279f { // the first bytes of its SHA-256
		t.Errorf("node compute1 is %x", id)
	}
}

func TestNamesThatRunTogetherHaveKeysOfTheirOwn(t *testing.T) {
	master := bytes.Repeat([]byte{1}, 32)
	seen := map[string]string{}
	for _, pair := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"a b", "c"}, {"a", "b c"}, {`a" "b`, "c"}, {"", "abc"}, {"abc", "abc"}} {
		key, err := PairKey(master, pair[0], pair[1], 1)
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := seen[string(key)]; taken {
			t.Errorf("%q has the key of %s", pair, other)
		}
		seen[string(key)] = pair[0] + "|" + pair[1]
	}
}

// model is what a window shall do, with all that it has seen.
type model struct {
	highest uint64
	seen    map[uint64]bool
}

func (m *model) accept(seq uint64) bool {
	if seq == 0 || m.seen[seq] || (m.highest >= windowSize && seq <= m.highest-windowSize) {
		return false
	}
	m.seen[seq] = true
	m.highest = max(m.highest, seq)
	return true
}

func TestAWindowIsItsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		var w Window
		m := model{seen: map[uint64]bool{}}
		at := random.Uint64N(1000)
		for step := range 2000 {
			switch random.IntN(20) {
			case 0:
				at += random.Uint64N(200) // some are lost
			default:
				at += random.Uint64N(3)
			}
			seq := at - min(at, random.Uint64N(90)) // some are late
			if got, want := w.Accept(seq), m.accept(seq); got != want {
				t.Fatalf("step %d, number %d after %d: %v, want %v", step, seq, m.highest, got, want)
			}
		}
	}
}

func TestAWindowAtTheEndOfTheNumbers(t *testing.T) {
	var w Window
	for _, step := range []struct {
		seq  uint64
		want bool
	}{{math.MaxUint64, true}, {math.MaxUint64, false}, {math.MaxUint64 - 63, true}, {math.MaxUint64 - 64, false}, {1, false}, {0, false}} {
		if got := w.Accept(step.seq); got != step.want {
			t.Errorf("%d: %v, want %v", step.seq, got, step.want)
		}
	}
}

func FuzzWindow(f *testing.F) {
	f.Add([]byte{1, 2, 3, 3, 2, 1})
	f.Add([]byte{64, 0, 64, 128, 63, 65, 64, 1})
	f.Add([]byte{255, 255, 191, 192, 190, 0})
	f.Fuzz(func(t *testing.T, steps []byte) {
		var w Window
		m := model{seen: map[uint64]bool{}}
		base := uint64(0)
		for i, b := range steps {
			if b == 0 {
				base += 1000
			}
			if got, want := w.Accept(base+uint64(b)), m.accept(base+uint64(b)); got != want {
				t.Fatalf("step %d of %v: %v, want %v", i, steps, got, want)
			}
		}
	})
}

// TestAPeersNoticesByState says what is accepted of a peer in every state that it can be in.
func TestAPeersNoticesByState(t *testing.T) {
	kinds := []Kind{Hello, HelloAck, Congest, Release, Ack, Nack}
	proven := func() *Peer {
		var p Peer
		p.Challenge(7)
		if err := p.Accept(&Notice{Kind: HelloAck, Boot: 10, Seq: 5, Nonce: 7}); err != nil {
			t.Fatal(err)
		}
		return &p
	}
	for name, tc := range map[string]struct {
		peer *Peer
		n    Notice
		want map[Kind]error // nil for what is not listed
	}{
		"a stranger": {&Peer{}, Notice{Boot: 10, Seq: 6}, map[Kind]error{
			HelloAck: ErrReplayed, Congest: ErrUnproven, Release: ErrUnproven, Ack: ErrUnproven, Nack: ErrUnproven,
		}},
		"the process that has proven itself": {proven(), Notice{Boot: 10, Seq: 6}, map[Kind]error{HelloAck: ErrReplayed}},
		"a number that was used": {proven(), Notice{Boot: 10, Seq: 5}, map[Kind]error{
			HelloAck: ErrReplayed, Congest: ErrReplayed, Release: ErrReplayed, Ack: ErrReplayed, Nack: ErrReplayed,
		}},
		"another process": {proven(), Notice{Boot: 11, Seq: 6}, map[Kind]error{
			HelloAck: ErrReplayed, Congest: ErrUnproven, Release: ErrUnproven, Ack: ErrUnproven, Nack: ErrUnproven,
		}},
		"no process": {proven(), Notice{Boot: 0, Seq: 6}, map[Kind]error{
			HelloAck: ErrReplayed, Congest: ErrUnproven, Release: ErrUnproven, Ack: ErrUnproven, Nack: ErrUnproven,
		}},
	} {
		for _, kind := range kinds {
			peer, n := *tc.peer, tc.n
			n.Kind = kind
			if err := peer.Accept(&n); !errors.Is(err, tc.want[kind]) {
				t.Errorf("%s, %s: %v, want %v", name, kind, err, tc.want[kind])
			}
			if kind == Hello && peer != *tc.peer {
				t.Errorf("%s: a greeting changed what is known", name)
			}
		}
	}
}

func TestAChallengeIsAnsweredOnceAndByALiveProcess(t *testing.T) {
	for name, n := range map[string]Notice{
		"another nonce":    {Kind: HelloAck, Boot: 10, Seq: 1, Nonce: 8},
		"no nonce":         {Kind: HelloAck, Boot: 10, Seq: 1},
		"no boot":          {Kind: HelloAck, Boot: 0, Seq: 1, Nonce: 7},
		"no number at all": {Kind: HelloAck, Boot: 10, Seq: 0, Nonce: 7},
	} {
		var p Peer
		p.Challenge(7)
		if err := p.Accept(&n); !errors.Is(err, ErrReplayed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var p Peer
	p.Challenge(0) // no nonce is no challenge
	if err := p.Accept(&Notice{Kind: HelloAck, Boot: 10, Seq: 1}); !errors.Is(err, ErrReplayed) || p.Known() {
		t.Errorf("an answer to no challenge: %v", err)
	}
	p.Challenge(7)
	p.Challenge(8) // a new one takes the old one's place
	if err := p.Accept(&Notice{Kind: HelloAck, Boot: 10, Seq: 1, Nonce: 7}); !errors.Is(err, ErrReplayed) {
		t.Errorf("an answer to the challenge before: %v", err)
	}
	if err := p.Accept(&Notice{Kind: HelloAck, Boot: 10, Seq: 2, Nonce: 8}); err != nil {
		t.Errorf("an answer to the last: %v", err)
	}
}

func TestTheSameProcessKeepsItsNumbersWhenItProvesItselfAgain(t *testing.T) {
	var p Peer
	p.Challenge(7)
	if err := p.Accept(&Notice{Kind: HelloAck, Boot: 10, Seq: 50, Nonce: 7}); err != nil {
		t.Fatal(err)
	}
	if err := p.Accept(&Notice{Kind: Congest, Boot: 10, Seq: 51}); err != nil {
		t.Fatal(err)
	}
	p.Challenge(8)
	if err := p.Accept(&Notice{Kind: HelloAck, Boot: 10, Seq: 52, Nonce: 8}); err != nil {
		t.Fatal(err)
	}
	if err := p.Accept(&Notice{Kind: Congest, Boot: 10, Seq: 51}); !errors.Is(err, ErrReplayed) {
		t.Errorf("what it said before: %v", err)
	}
}
