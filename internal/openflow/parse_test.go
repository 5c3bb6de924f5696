package openflow

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fake serves one connection at a unix socket with a function.
func fake(t *testing.T, serve func(nc net.Conn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		serve(nc)
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return path
}

// silent accepts a connection and says nothing until the other side leaves.
func silent(t *testing.T) string {
	return fake(t, func(nc net.Conn) {
		b := make([]byte, 64)
		for {
			if _, err := nc.Read(b); err != nil {
				return
			}
		}
	})
}

// script answers each message with the given ones, {xid} of the question put in.
func script(t *testing.T, answers ...[]byte) string {
	return fake(t, func(nc net.Conn) {
		for _, a := range answers {
			m, err := readMessage(nc)
			if err != nil {
				return
			}
			a = append([]byte(nil), a...)
			for b := a; len(b) >= 8; b = b[binary.BigEndian.Uint16(b[2:]):] {
				if binary.BigEndian.Uint32(b[4:]) == 0 {
					binary.BigEndian.PutUint32(b[4:], m.xid)
				}
			}
			if _, err := nc.Write(a); err != nil {
				return
			}
		}
		_, _ = readMessage(nc) // until the client leaves
	})
}

func msg(version Version, kind uint8, xid uint32, body ...byte) []byte {
	b := []byte{uint8(version), kind}
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(body)))
	return append(binary.BigEndian.AppendUint32(b, xid), body...)
}

func TestHandshake(t *testing.T) {
	withBitmap := func(v Version, bits uint32) []byte {
		return msg(v, typeHello, 1, binary.BigEndian.AppendUint32([]byte{0, 1, 0, 8}, bits)...)
	}
	for _, tc := range []struct {
		name    string
		answers []byte
		want    Version
		err     string
	}{
		{"an old switch without a bitmap", msg(V10, typeHello, 1), V10, ""},
		{"a newer switch without a bitmap", msg(6, typeHello, 1), V14, ""},
		{"a bitmap with a gap", withBitmap(6, 1<<6|1<<V13|1<<V10), V13, ""},
		{"nothing in common", withBitmap(6, 1<<6), 0, "add one to the bridge's protocols"},
		{"an echo request first", append(msg(V14, typeEchoRequest, 9, 'x'), msg(V14, typeHello, 1)...), V14, ""},
		{"refusal", msg(V14, typeError, 1, append([]byte{0, 0, 0, 0}, "no common\nversion"...)...), 0, "no common?version"},
		{"version 0", msg(0, typeHello, 1), 0, "unknown version 0x0"},
		{"a short header", []byte{5, 0, 0, 4, 0, 0, 0, 1}, 0, "shorter than its header"},
		{"a broken element", msg(V13, typeHello, 1, 0, 1, 0, 2, 0, 0, 0, 0), V13, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Dial(t.Context(), script(t, tc.answers))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if c.Version() != tc.want {
				t.Errorf("agreed on %s, want %s", c.Version(), tc.want)
			}
		})
	}
}

func TestAnswersComeInPartsAndAmongOthers(t *testing.T) {
	table := func(id uint8, more uint8) []byte {
		body := append([]byte{0, statsTable, 0, more, 0, 0, 0, 0, id, 0, 0, 0}, make([]byte, 20)...)
		return msg(V14, typeMultipartReply, 0, body...)
	}
	var answer []byte
	answer = append(answer, msg(V14, 10, 77, 1, 2, 3)...) // PACKET_IN
	answer = append(answer, table(0, flagMore)...)
	answer = append(answer, msg(V14, typeEchoRequest, 5)...)
	answer = append(answer, table(1, 0)...)
	c, err := Dial(t.Context(), script(t, msg(V14, typeHello, 1), answer))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := c.Tables(t.Context())
	if diff := cmp.Diff([]TableStats{{ID: 0}, {ID: 1}}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestAnErrorOfTheSwitchLeavesTheSessionUsable(t *testing.T) {
	c, err := Dial(t.Context(), script(t, msg(V14, typeHello, 1), msg(V14, typeError, 0, 0, 1, 0, 2),
		msg(V14, typeMultipartReply, 0, 0, statsTable, 0, 0, 0, 0, 0, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Meters(t.Context())
	var refused *Error
	if !errors.As(err, &refused) || refused.Type != 1 || refused.Code != 2 {
		t.Errorf("got %v", err)
	}
	if _, err := c.Tables(t.Context()); err != nil {
		t.Errorf("after the error: %v", err)
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		answer     []byte
	}{
		{"another kind of answer", "with type 20", msg(V14, 20, 0)},
		{"another version", "answers in OpenFlow 1.0", msg(V10, typeMultipartReply, 0, 0, statsTable, 0, 0, 0, 0, 0, 0)},
		{"another kind of statistics", "of type 3 with type 4", msg(V14, typeMultipartReply, 0, 0, statsPort, 0, 0, 0, 0, 0, 0)},
		{"half a prefix", "too short", msg(V14, typeMultipartReply, 0, 0, statsTable)},
		{"half a table", "too short", msg(V14, typeMultipartReply, 0, 0, statsTable, 0, 0, 0, 0, 0, 0, 1, 2, 3)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Dial(t.Context(), script(t, msg(V14, typeHello, 1), tc.answer))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Tables(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// port14 is an entry of 1.4 with the properties given.
func port14(properties ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(80+len(properties)))
	b = append(b, 0, 0, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 0)
	for i := range 8 {
		b = binary.BigEndian.AppendUint64(b, uint64(i+1))
	}
	return append(b, properties...)
}

func TestPropertiesOfAPort(t *testing.T) {
	sizes, err := hex.DecodeString("ffff00b80000aa010000000100000000")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 21 {
		sizes = binary.BigEndian.AppendUint64(sizes, uint64(100+i))
	}
	custom := []byte{0xff, 0xff, 0, 16 + 1 + 21 + 8 + 1 + 1 + 8, 0, 0, 0xaa, 1, 0, 0, 0, 2, 0, 0, 0, 2, 21}
	custom = append(custom, "ovs_tx_failure_drops\x01"...)
	custom = append(custom, 0, 0, 0, 0, 0, 0, 0, 42, 1, 'x', 0, 0, 0, 0, 0, 0, 0, 43)
	for len(custom)%8 != 0 {
		custom = append(custom, 0)
	}
	ethernet := make([]byte, 40)
	ethernet[3] = 40
	got, err := parsePorts(V14, port14(append(append(ethernet, sizes...), custom...)...))
	if err != nil {
		t.Fatal(err)
	}
	p := got[0]
	if p.Port != 3 || p.DurationSec != 9 || p.RxPackets != 1 || p.TxError != 8 {
		t.Errorf("got %+v", p)
	}
	if p.Sizes == nil || p.Sizes.Rx[0] != 100 || p.Sizes.Rx[6] != 106 || p.Sizes.Tx[0] != 107 || p.Sizes.Tx[6] != 113 || p.Sizes.RxJabber != 120 {
		t.Errorf("sizes %+v", p.Sizes)
	}
	if diff := cmp.Diff(map[string]uint64{"ovs_tx_failure_drops?": 42, "x": 43}, p.Custom); diff != "" {
		t.Errorf("custom (-want +got):\n%s", diff)
	}
	for name, bad := range map[string][]byte{
		"a property longer than the entry": port14(0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0),
		"a property of nothing":            port14(0, 0, 0, 0, 0, 0, 0, 0),
		"half of the sizes":                port14(sizes[0], sizes[1], 0, 24, 0, 0, 0xaa, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
		"too many counters":                port14(0xff, 0xff, 0, 16, 0, 0, 0xaa, 1, 0, 0, 0, 2, 0, 0, 0xff, 0xff),
		"a short entry":                    {0, 8, 0, 0, 0, 0, 0, 0},
	} {
		if got, err := parsePorts(V14, bad); err == nil {
			t.Errorf("%s gives %+v", name, got)
		}
	}
}

func TestQueuesAndMetersAreParsed(t *testing.T) {
	counters := func(n int) (b []byte) {
		for i := range n {
			b = binary.BigEndian.AppendUint64(b, uint64(i+1))
		}
		return b
	}
	want := []QueueStats{{Port: 5, Queue: 6, TxBytes: 1, TxPackets: 2, TxErrors: 3}}
	for v, raw := range map[Version][]byte{
		V10: append([]byte{0, 5, 0, 0, 0, 0, 0, 6}, counters(3)...),
		V12: append([]byte{0, 0, 0, 5, 0, 0, 0, 6}, counters(3)...),
		V13: append([]byte{0, 0, 0, 5, 0, 0, 0, 6}, counters(4)...),
		V14: append([]byte{0, 48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6}, counters(4)...),
	} {
		got, err := parseQueues(v, raw)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", v, err, diff)
		}
		if _, err := parseQueues(v, raw[:len(raw)-1]); err == nil {
			t.Errorf("%s: half a queue was taken", v)
		}
	}
	meter := append([]byte{0, 0, 0, 7, 0, 72, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}, counters(7)...)
	got, err := parseMeters(meter)
	if err != nil || len(got) != 1 || got[0].Packets != 1 || got[0].BandPackets != 4+6 || got[0].BandBytes != 5+7 || got[0].Flows != 2 {
		t.Errorf("meter %+v, %v", got, err)
	}
	if _, err := parseMeters(meter[:60]); err == nil {
		t.Error("half a meter was taken")
	}
}

func FuzzStatistics(f *testing.F) {
	f.Add(uint8(5), uint8(0), port14())
	f.Add(uint8(1), uint8(1), make([]byte, 64))
	f.Add(uint8(4), uint8(2), []byte{0, 0, 0, 7, 0, 40})
	f.Add(uint8(1), uint8(3), append([]byte{0, 88}, make([]byte, 86)...))
	f.Add(uint8(5), uint8(3), append([]byte{0, 56}, make([]byte, 54)...))
	f.Add(uint8(5), uint8(4), append([]byte{0, 48}, make([]byte, 46)...))
	f.Fuzz(func(t *testing.T, version, kind uint8, b []byte) {
		v := V10 + Version(version)%5
		var entries int
		var err error
		least := 1
		switch kind % 5 {
		case 0:
			var out []PortStats
			out, err = parsePorts(v, b)
			entries, least = len(out), 80
		case 1:
			var out []TableStats
			out, err = parseTables(v, b)
			entries, least = len(out), 24
		case 2:
			var out []MeterStats
			out, err = parseMeters(b)
			entries, least = len(out), 40
		case 3:
			err = parseFlows(v, b, func(s FlowStats) {
				entries++
				if len(s.Match) > len(b) {
					t.Errorf("a match of %d bytes in %d", len(s.Match), len(b))
				}
			})
			least = 48
		case 4:
			var out []QueueStats
			out, err = parseQueues(v, b)
			entries, least = len(out), 32
		}
		if entries*least > len(b) && err == nil {
			t.Errorf("%d entries of at least %d bytes in %d bytes", entries, least, len(b))
		}
	})
}

func FuzzSession(f *testing.F) {
	f.Add(append(msg(V14, typeHello, 1), msg(V14, typeMultipartReply, 2, 0, statsTable, 0, 0, 0, 0, 0, 0)...))
	f.Add(msg(V10, typeEchoRequest, 1, 'a'))
	f.Add(msg(V14, typeError, 1, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, stream []byte) {
		here, there := net.Pipe()
		done := make(chan struct{})
		go func() { // swallows what is said
			defer close(done)
			b := make([]byte, 4096)
			for {
				if _, err := there.Read(b); err != nil {
					return
				}
			}
		}()
		go func() {
			_, _ = there.Write(stream)
			there.Close()
		}()
		c := &Conn{nc: here}
		if c.hello(t.Context()) == nil {
			_, _ = c.Tables(t.Context())
			_, _ = c.Ports(t.Context())
		}
		here.Close()
		<-done
	})
}
