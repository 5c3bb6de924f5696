package records

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"github.com/google/go-cmp/cmp"

	"vigia/internal/daemon"
	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
)

// anyProbe returns a probe of any outcome, with stamps that may be true.
func anyProbe(chance *rand.Rand, sequence uint64, sent int64) *protocol.Probe {
	if chance.IntN(3) == 0 {
		p := lost(sequence, sent)
		p.Cause = accounting.Cause(chance.IntN(accounting.NumCauses))
		return p
	}
	t1 := sent + chance.Int64N(1e6)
	t2 := t1 + chance.Int64N(1e9) - 5e8
	t3 := t2 + chance.Int64N(1e6)
	return &protocol.Probe{
		Sequence: sequence, Sent: sent, State: protocol.Answered, Application: chance.Int64N(1e9) + 1, Verdict: delay.Good,
		Stamps: delay.Stamps{T1: t1, T2: t2, T3: t3, T4: t1 + chance.Int64N(1e9), Kernel: delay.Points(chance.IntN(16))},
	}
}

// TestRingAgreesWithAList compares the chunks of a ring with a plain list, over bursts
// and silences of any length, copies among them.
func TestRingAgreesWithAList(t *testing.T) {
	for seed := range uint64(10) {
		chance := rand.New(rand.NewPCG(seed, 2))
		var r Ring
		var kept []*protocol.Probe
		now := start
		for i := range uint64(3000) {
			now += chance.Int64N(2e8)
			if chance.IntN(500) == 0 {
				now += chance.Int64N(2 * Horizon)
			}
			p := anyProbe(chance, i, now)
			r.Add(p, now)
			kept = append(slices.DeleteFunc(kept, func(old *protocol.Probe) bool { return now-old.Sent > Horizon }), p)
			if r.Len() != len(kept) {
				t.Fatalf("seed %d: %d records, want %d", seed, r.Len(), len(kept))
			}
			if i%500 != 499 {
				continue
			}
			got := lines(t, r.Clone())
			if diff := cmp.Diff(lines(t, &r), got); diff != "" {
				t.Fatalf("seed %d: the copy differs:\n%s", seed, diff)
			}
			for n, p := range kept {
				checkLine(t, p, &got[n])
			}
		}
	}
}

// checkLine compares a line with the probe that it tells of.
func checkLine(t *testing.T, p *protocol.Probe, l *Line) {
	t.Helper()
	if uint64(l.Sequence) != p.Sequence || (l.Outcome == "lost") != (p.State == protocol.Lost) {
		t.Fatalf("%+v of %+v", l, p)
	}
	if p.State == protocol.Lost {
		if l.Cause != p.Cause.String() || l.RTT != nil || l.T1 != 0 || l.Application != 0 {
			t.Fatalf("%+v of %+v", l, p)
		}
		return
	}
	s := &p.Stamps
	if l.T1 != s.T1 || l.T2 != s.T2 || l.T3 != s.T3 || l.T4 != s.T4 || l.Application != p.Application || *l.RTT != s.RTT() {
		t.Fatalf("%+v of %+v", l, p)
	}
	if (l.Source == "") != (s.Kernel == 0) {
		t.Fatalf("%+v of %+v", l, p)
	}
}

// TestRecentAreTheLast of a ring, however many are asked for.
func TestRecentAreTheLast(t *testing.T) {
	var r Ring
	if got := r.Recent(5, labels); len(got) != 0 {
		t.Errorf("an empty ring has %v", got)
	}
	for i := range uint64(300) {
		r.Add(lost(i, start), start)
	}
	for _, n := range []int{0, 1, 127, 128, 129, 300, 1000} {
		got := r.Recent(n, labels)
		if len(got) != min(n, 300) {
			t.Fatalf("%d of %d", len(got), n)
		}
		for i, l := range got {
			if int(l.Sequence) != 300-len(got)+i || l.Dst != labels.Dst {
				t.Fatalf("%d: record %d is %+v", n, i, l)
			}
		}
	}
}

// TestWhatDoesNotFitIsCutAtItsBound: a record has 32 bits for what is mostly small.
func TestWhatDoesNotFitIsCutAtItsBound(t *testing.T) {
	for _, tc := range []struct {
		name                         string
		tx, residence, application   int64
		wantTX, wantResidence, wantA int64
	}{
		{"as it is", -7, 5, 9, -7, 5, 9},
		{"too large", math.MaxInt32 + 1, math.MaxUint32 + 1, math.MaxUint32 + 1, math.MaxInt32, math.MaxUint32, math.MaxUint32},
		{"too small", math.MinInt32 - 1, -1, -1, math.MinInt32, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r Ring
			t1 := start + tc.tx
			r.Add(&protocol.Probe{
				Sent: start, State: protocol.Answered, Application: tc.application, Verdict: delay.Good,
				Stamps: delay.Stamps{T1: t1, T2: t1 + 10, T3: t1 + 10 + tc.residence, T4: t1 + 30 + tc.residence, Kernel: 15},
			}, start)
			l := lines(t, &r)[0]
			if l.T1-start != tc.wantTX || l.T3-l.T2 != tc.wantResidence || l.Application != tc.wantA {
				t.Errorf("%+v", l)
			}
			if *l.RTT != 30 { // out 10, back 20: what the reflector took is no part of it
				t.Errorf("round trip %d", *l.RTT)
			}
		})
	}
}

// full takes some bytes and then no more.
type full struct{ left int }

var errFull = errors.New("no space left")

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWritingStopsAtTheFirstError(t *testing.T) {
	var r Ring
	for i := range uint64(10) {
		r.Add(lost(i, start), start)
	}
	if err := r.Write(&full{left: 300}, labels); !errors.Is(err, errFull) {
		t.Error(err)
	}
}

// run carries out the command with a command line.
func run(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	command := Command("127.0.0.1:1")
	app := kingpin.New("test", "").Terminate(nil)
	do := command.Register(app.Command(command.Name, command.Help))
	if _, err := app.Parse(append([]string{command.Name}, arguments...)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := do(context.Background(), &out, &out)
	return out.String(), err
}

func TestCommandSelectsByLabels(t *testing.T) {
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		if r.URL.Query().Get("tenant") == "none" {
			http.Error(w, strings.Repeat("long ", 1000), http.StatusNotFound)
		}
	}))
	defer server.Close()
	if _, err := run(t, "--url", server.URL+"/prefix/", "--tenant", "a&b", "--probe", "stamp-64"); err != nil {
		t.Error(err)
	}
	if want := "/prefix" + Path + "?probe=stamp-64&tenant=a%26b"; asked != want {
		t.Errorf("asked for %s, want %s", asked, want)
	}
	if _, err := run(t, "--url", server.URL, "--tenant", "none"); err == nil || len(err.Error()) > maxError+100 {
		t.Errorf("an error page is not cut: %v", err)
	}
	var usage *daemon.UsageError
	if _, err := run(t); err == nil || errors.As(err, &usage) {
		t.Errorf("nobody listens at the usual address: %v", err)
	}
}
