package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vigia/internal/testutil"
)

// answers are all that this package asks of a switch.
type answers struct {
	Ports  []PortStats
	Tables []TableStats
	Queues []QueueStats
	Meters []MeterStats
	Flows  []FlowStats
}

func ask(ctx context.Context, path string) (a answers, err error) {
	c, err := Dial(ctx, path)
	if err != nil {
		return a, err
	}
	defer c.Close()
	var errs [5]error
	a.Ports, errs[0] = c.Ports(ctx)
	a.Tables, errs[1] = c.Tables(ctx)
	a.Queues, errs[2] = c.Queues(ctx)
	if a.Meters, errs[3] = c.Meters(ctx); errors.Is(errs[3], ErrUnsupported) {
		errs[3] = nil
	}
	errs[4] = c.Flows(ctx, FlowFilter{}, func(f FlowStats) {
		f.Match = append([]byte(nil), f.Match...)
		a.Flows = append(a.Flows, f)
	})
	return a, errors.Join(errs[:]...)
}

// recording is a way to a real switch that keeps what it answers.
func recording(t *testing.T, mgmt string) (path string, answered func() []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var mu sync.Mutex
	var bytes []byte
	go func() {
		here, err := l.Accept()
		if err != nil {
			return
		}
		defer here.Close()
		there, err := net.Dial("unix", mgmt)
		if err != nil {
			return
		}
		defer there.Close()
		go func() { _, _ = io.Copy(there, here); there.Close() }()
		_, _ = io.Copy(here, io.TeeReader(there, writer(func(p []byte) {
			mu.Lock()
			defer mu.Unlock()
			bytes = append(bytes, p...)
		})))
	}()
	return path, func() []byte {
		mu.Lock()
		defer mu.Unlock()
		return append([]byte(nil), bytes...)
	}
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

// replay says what a switch once said, and then breaks off. Questions are swallowed.
func replay(t *testing.T, said []byte) string {
	return fake(t, func(nc net.Conn) {
		done := make(chan struct{})
		go func() { _, _ = io.Copy(io.Discard, nc); close(done) }()
		if _, err := nc.Write(said); err != nil {
			return
		}
		_ = nc.(*net.UnixConn).CloseWrite()
		<-done
	})
}

// TestARealSessionCutAnywhereIsAnError records a session with a real switch in every
// version, and plays it back cut at many places: half an answer is never taken for one.
func TestARealSessionCutAnywhereIsAnError(t *testing.T) {
	r := newRig(t)
	for version := V10; version <= V14; version++ {
		r.Set("set", "bridge", "br-int", "protocols=OpenFlow1"+fmt.Sprint(int(version)-1))
		path, answered := recording(t, r.Mgmt("br-int"))
		want, err := ask(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		said := answered()
		if again, err := ask(t.Context(), replay(t, said)); err != nil || !cmp.Equal(want, again) {
			t.Fatalf("%s: the same session once more: %v\n%s", version, err, cmp.Diff(want, again))
		}
		step := max(1, len(said)/150)
		for n := 0; n < len(said); n += step {
			if _, err := ask(t.Context(), replay(t, said[:n])); err == nil {
				t.Errorf("%s: %d of %d bytes are taken for a whole session", version, n, len(said))
			}
		}
	}
}

// TestASessionWithOneByteWrongEnds plays it back with bytes changed.
func TestASessionWithOneByteWrongEnds(t *testing.T) {
	r := newRig(t)
	path, answered := recording(t, r.Mgmt("br-int"))
	if _, err := ask(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	said := answered()
	step := max(1, len(said)/300)
	for n := 0; n < len(said); n += step {
		wrong := append([]byte(nil), said...)
		wrong[n] ^= 0xff
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := ask(ctx, replay(t, wrong)) // may be an error or another number
		if ctx.Err() != nil {
			t.Errorf("with byte %d changed it waits for ever: %v", n, err)
		}
		cancel()
	}
}

// TestARefusalIsOfOneQuestionAlone asks for what the switch refuses, in turns with what
// it answers, on one session.
func TestARefusalIsOfOneQuestionAlone(t *testing.T) {
	s := testutil.NewVSwitch(t, testutil.NewNetNS(t))
	s.Set("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "protocols=OpenFlow13")
	c, err := Dial(t.Context(), s.Mgmt("br0"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 5 {
		// Queues of a port that is not there: the switch refuses the question.
		request := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 4242), allQueues)
		err := c.statistics(t.Context(), statsQueue, request, func([]byte) error { return nil })
		var refused *Error
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "error type") {
			t.Errorf("queues of no port: %v", err)
		}
		if ports, err := c.Ports(t.Context()); err != nil || len(ports) == 0 {
			t.Fatalf("the session is of no use after a refusal: %v, %v", ports, err)
		}
	}
}

// TestAnswersWithoutAnEnd bounds what a hostile switch makes this side keep and wait for.
func TestAnswersWithoutAnEnd(t *testing.T) {
	part := func(xid uint32, more byte, entries int) []byte {
		body := []byte{0, statsTable, 0, more, 0, 0, 0, 0}
		return msg(V13, typeMultipartReply, xid, append(body, make([]byte, 24*entries)...)...)
	}
	flood := func(what []byte) string {
		return fake(t, func(nc net.Conn) {
			hello, err := readMessage(nc)
			if err != nil {
				return
			}
			_, _ = nc.Write(msg(V13, typeHello, hello.xid))
			question, err := readMessage(nc)
			if err != nil {
				return
			}
			if len(what) >= 8 && binary.BigEndian.Uint32(what[4:]) == 0 {
				binary.BigEndian.PutUint32(what[4:], question.xid)
			}
			for {
				if _, err := nc.Write(what); err != nil {
					return
				}
			}
		})
	}
	for name, tc := range map[string]struct {
		what []byte
		want string
	}{
		"parts without an end":        {part(0, flagMore, 2700), "larger than"},
		"empty parts without an end":  {part(0, flagMore, 0), "has no end"},
		"messages that nobody wanted": {msg(V13, 10, 7, make([]byte, 100)...), "has no end"},
	} {
		c, err := Dial(t.Context(), flood(tc.what))
		if err != nil {
			t.Fatal(err)
		}
		// The same bounds, but reached before a slow machine's time is up.
		if c.bounds != (bounds{maxReply, maxForeign}) {
			t.Errorf("%s: bounds %v", name, c.bounds)
		}
		c.bounds = bounds{1 << 20, 1000}
		if tables, err := c.Tables(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %d tables, %v; want %q", name, len(tables), err, tc.want)
		}
		c.Close()
	}
}
