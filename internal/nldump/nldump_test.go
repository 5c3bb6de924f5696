package nldump

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

func message(kind uint16, seq uint32, body ...byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = append(append(b, 0, 0, 0, 0), body...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func number(n int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }

func TestPiecesAreCheckedBeforeTheyAreRead(t *testing.T) {
	const kind = 92
	good := message(kind, 7, 1, 2, 3, 4)
	for _, tc := range []struct {
		name    string
		bytes   []byte
		seen    int
		done    bool
		problem string
	}{
		{"one message", good, 1, false, ""},
		{"two and the end", append(append(append([]byte(nil), good...), good...), message(unix.NLMSG_DONE, 7, number(0)...)...), 2, true, ""},
		{"the end without a number", message(unix.NLMSG_DONE, 7), 0, true, ""},
		{"nothing to do", message(unix.NLMSG_NOOP, 7), 0, false, ""},
		{"of an earlier dump", message(kind, 6, 1, 2, 3, 4), 0, false, ""},
		{"its end", message(unix.NLMSG_DONE, 6, number(0)...), 0, false, ""},
		{"a refusal", message(unix.NLMSG_ERROR, 7, number(-int32(unix.EPERM))...), 0, true, "not permitted"},
		{"an end with an error", message(unix.NLMSG_DONE, 7, number(-int32(unix.EINVAL))...), 0, true, "invalid argument"},
		{"an acknowledgement", message(unix.NLMSG_ERROR, 7, number(0)...), 0, true, ""},
		{"half an error", message(unix.NLMSG_ERROR, 7)[:unix.SizeofNlMsghdr], 0, true, "cut short"},
		{"half a head", good[:10], 0, false, "cut short"},
		{"a length of nothing", make([]byte, 16), 0, false, "cut short"},
		{"a length past the end", good[:18], 0, false, "cut short"},
	} {
		seen := 0
		done, err := piece(tc.bytes, 7, func(got uint16, data []byte) error {
			seen++
			if got != kind || len(data) != 4 {
				t.Errorf("%s: kind %d, data %x", tc.name, got, data)
			}
			return nil
		})
		if seen != tc.seen || done != tc.done || (err == nil) != (tc.problem == "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
			t.Errorf("%s: %d messages, done %v, %v", tc.name, seen, done, err)
		}
	}
}

func TestAttributesAreChecked(t *testing.T) {
	seen := make(map[uint16]string)
	note := func(kind uint16, value []byte) { seen[kind] = string(value) }
	if err := Attributes([]byte{5, 0, 1, 0, 'a', 0, 0, 0, 8, 0, 2, 0x80, 'b', 'c', 'd', 'e'}, note); err != nil || seen[1] != "a" || seen[2] != "bcde" {
		t.Errorf("%v, %v", seen, err)
	}
	for name, bad := range map[string][]byte{"of nothing": {1, 0, 0, 0}, "past the end": {9, 0, 1, 0, 0}} {
		if err := Attributes(bad, note); !errors.Is(err, ErrShort) {
			t.Errorf("an attribute %s: %v", name, err)
		}
	}
}

// links lists the names of a namespace's interfaces.
func links(s *Socket) (names []string, err error) {
	err = s.Dump(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg), func(_ uint16, data []byte) error {
		return Attributes(data[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) {
			if kind == unix.IFLA_IFNAME {
				names = append(names, strings.TrimRight(string(value), "\x00"))
			}
		})
	})
	return names, err
}

func TestDumpsOfTheKernel(t *testing.T) {
	ns := testutil.NewNetNS(t)
	for i := range 60 { // more than one piece
		testutil.IP(t, "-n", ns, "link", "add", "v"+strconv.Itoa(i), "type", "veth", "peer", "name", "w"+strconv.Itoa(i))
	}
	s := New(ns, unix.NETLINK_ROUTE)
	defer s.Close()
	for range 2 {
		if names, err := links(s); err != nil || len(names) != 121 {
			t.Fatalf("%d interfaces, %v; want 121", len(names), err)
		}
	}
	// A dump that is given up does not spoil the next one.
	giveUp := errors.New("enough")
	err := s.Dump(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg), func(uint16, []byte) error { return giveUp })
	if !errors.Is(err, giveUp) {
		t.Errorf("given up: %v", err)
	}
	if names, err := links(s); err != nil || len(names) != 121 {
		t.Errorf("after that: %d interfaces, %v", len(names), err)
	}
	if err := s.Dump(0x7ff0, nil, func(uint16, []byte) error { return nil }); err == nil {
		t.Error("the kernel answers what it does not know")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := links(s); err == nil {
		t.Error("a closed socket answers")
	}
}

func TestOneThingIsAskedFor(t *testing.T) {
	ns := testutil.NewNetNS(t)
	s := New(ns, unix.NETLINK_ROUTE)
	defer s.Close()
	ask := func(index uint32) (got uint32, answers int, err error) {
		head := make([]byte, unix.SizeofIfInfomsg)
		binary.NativeEndian.PutUint32(head[4:], index)
		err = s.Ask(unix.RTM_GETLINK, 0, head, func(_ uint16, data []byte) error {
			answers++
			got = binary.NativeEndian.Uint32(data[4:])
			return nil
		})
		return got, answers, err
	}
	for range 3 {
		if got, answers, err := ask(1); got != 1 || answers != 1 || err != nil {
			t.Errorf("interface %d in %d answers, %v", got, answers, err)
		}
		if _, answers, err := ask(4242); !errors.Is(err, unix.ENODEV) || answers != 0 {
			t.Errorf("no such interface: %d answers, %v", answers, err)
		}
		if names, err := links(s); err != nil || len(names) != 1 {
			t.Errorf("a dump in between: %v, %v", names, err)
		}
	}
}

func TestNoSuchNamespace(t *testing.T) {
	s := New("vigia-test-absent", unix.NETLINK_ROUTE)
	if _, err := links(s); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func FuzzPiece(f *testing.F) {
	f.Add(message(1, 7, 1, 2, 3))
	f.Add(message(unix.NLMSG_DONE, 7, number(-1)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		_, _ = piece(b, 7, func(_ uint16, data []byte) error {
			n += unix.SizeofNlMsghdr + len(data)
			return Attributes(data, func(uint16, []byte) {})
		})
		if n > len(b) {
			t.Errorf("%d bytes give messages of %d", len(b), n)
		}
	})
}
