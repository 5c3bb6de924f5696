package netlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

// linkName reads IFLA_IFNAME of an RTM_NEWLINK.
func linkName(data []byte) (name string, err error) {
	for kind, value := range Attributes(data, unix.SizeofIfInfomsg, &err) {
		if kind == unix.IFLA_IFNAME {
			name = Text(value)
		}
	}
	return name, err
}

// links lists the names of a namespace's interfaces.
func links(s *Socket) (names []string, err error) {
	err = s.Dump(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg), func(_ uint16, data []byte) error {
		name, err := linkName(data)
		names = append(names, name)
		return err
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

// snapshot lists the names of a namespace's interfaces as of one moment; meanwhile is called once while a try is read.
func snapshot(s *Socket, meanwhile func(try int)) (names []string, tries int, err error) {
	begin := func() { names, tries = nil, tries+1 }
	err = s.Snapshot(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg), begin, func(_ uint16, data []byte) error {
		name, err := linkName(data)
		if names = append(names, name); len(names) == 1 {
			meanwhile(tries)
		}
		return err
	})
	return names, tries, err
}

func TestAListThatChangesMeanwhileIsReadAgain(t *testing.T) {
	ns := testutil.NewNetNS(t)
	for i := range 60 { // pieces enough for one that the kernel makes after the change
		testutil.IP(t, "-n", ns, "link", "add", "v"+strconv.Itoa(i), "type", "veth", "peer", "name", "w"+strconv.Itoa(i))
	}
	s := New(ns, unix.NETLINK_ROUTE)
	defer s.Close()
	if names, tries, err := snapshot(s, func(int) {}); err != nil || len(names) != 121 || tries != 1 {
		t.Errorf("what stays as it is: %d interfaces in %d tries, %v", len(names), tries, err)
	}
	change := func(try int) {
		testutil.IP(t, "-n", ns, "link", "add", "new"+strconv.Itoa(try), "type", "veth", "peer", "name", "old"+strconv.Itoa(try))
		testutil.IP(t, "-n", ns, "link", "del", "new"+strconv.Itoa(try))
	}
	names, tries, err := snapshot(s, func(try int) {
		if try <= 2 {
			change(try)
		}
	})
	if err != nil || len(names) != 121 || tries != 3 {
		t.Errorf("changed during two tries: %d interfaces in %d tries, %v", len(names), tries, err)
	}
	if _, tries, err := snapshot(s, change); !errors.Is(err, ErrInterrupted) || tries != snapshotTries {
		t.Errorf("changed during every try: %d tries, %v", tries, err)
	}
	giveUp := errors.New("enough")
	err = s.Snapshot(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg), func() { tries = 0 }, func(uint16, []byte) error {
		tries++
		return giveUp
	})
	if !errors.Is(err, giveUp) || tries != 1 {
		t.Errorf("given up: %d messages, %v", tries, err)
	}
	if names, _, err := snapshot(s, func(int) {}); err != nil || len(names) != 121 {
		t.Errorf("after that: %d interfaces, %v", len(names), err)
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

// newIFB asks for a device that the kernel makes.
func newIFB(t testing.TB, name string) []byte {
	t.Helper()
	e := NewEncoder(make([]byte, unix.SizeofIfInfomsg))
	e.String(unix.IFLA_IFNAME, name)
	e.Nested(unix.IFLA_LINKINFO, func() { e.String(unix.IFLA_INFO_KIND, "ifb") })
	request, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return request
}

func TestChangesAreAcknowledgedOrRefused(t *testing.T) {
	ns := testutil.NewNetNS(t)
	s, err := Open(ns, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fd := s.fd
	const exclusive = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	if err := s.Change(unix.RTM_NEWLINK, exclusive, newIFB(t, "new0")); err != nil {
		t.Fatal(err)
	}
	if names, err := links(s); err != nil || len(names) != 2 || names[1] != "new0" {
		t.Errorf("after a change: %v, %v", names, err)
	}
	if err := s.Change(unix.RTM_NEWLINK, exclusive, newIFB(t, "new0")); !errors.Is(err, unix.EEXIST) {
		t.Errorf("the same once more: %v", err)
	}
	// The kernel says in words what it does not like.
	var refused *Refusal
	err = s.Change(unix.RTM_NEWLINK, exclusive, newIFB(t, "a/b"))
	if !errors.As(err, &refused) || refused.Errno != unix.EINVAL {
		t.Errorf("a name that is none: %v", err)
	}
	if err := s.Change(unix.RTM_NEWROUTE, exclusive, []byte{unix.AF_INET, 33, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}); !errors.As(err, &refused) || refused.Reason == "" {
		t.Errorf("a route with a prefix of 33 bits is refused without a reason: %v", err)
	}
	if s.fd != fd {
		t.Error("a refusal cost the socket, of whose answer nothing was left")
	}
	if names, err := links(s); err != nil || len(names) != 2 {
		t.Errorf("after refusals: %v, %v", names, err)
	}
}

// TestAnAnswerLargerThanTheBufferIsReadWhole gives an interface so many names that what
// the kernel says of it fills more than a page of a dump.
func TestAnAnswerLargerThanTheBufferIsReadWhole(t *testing.T) {
	ns := testutil.NewNetNS(t)
	testutil.IP(t, "-n", ns, "link", "add", "much0", "type", "ifb")
	const names = 300
	var batch strings.Builder
	for i := range names {
		fmt.Fprintf(&batch, "link property add dev much0 altname %s%03d\n", strings.Repeat("n", 120), i)
	}
	cmd := exec.Command("ip", "-n", ns, "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := New(ns, unix.NETLINK_ROUTE)
	defer s.Close()
	e := NewEncoder(make([]byte, unix.SizeofIfInfomsg))
	e.String(unix.IFLA_IFNAME, "much0")
	request, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time into a buffer that is large enough
		found := 0
		err := s.Ask(unix.RTM_GETLINK, 0, request, func(_ uint16, data []byte) (err error) {
			for kind, list := range Attributes(data, unix.SizeofIfInfomsg, &err) {
				if kind != unix.IFLA_PROP_LIST {
					continue
				}
				for range Attributes(list, 0, &err) {
					found++
				}
			}
			return err
		})
		if err != nil || found != names {
			t.Errorf("%d names, %v; want %d", found, err, names)
		}
	}
	// A dump has it in one piece with what goes before, if the kernel is asked to look how
	// large messages are (rtnl_calcit): else it leaves it out and says nothing.
	dumps := New(ns, unix.NETLINK_ROUTE)
	defer dumps.Close()
	e = NewEncoder(make([]byte, unix.SizeofIfInfomsg))
	e.Uint32(unix.IFLA_EXT_MASK, 1<<3) // RTEXT_FILTER_SKIP_STATS
	if request, err = e.Encode(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var listed []string
		err := dumps.Dump(unix.RTM_GETLINK, request, func(_ uint16, data []byte) error {
			name, err := linkName(data)
			listed = append(listed, name)
			return err
		})
		if err != nil || len(listed) != 2 || listed[1] != "much0" {
			t.Errorf("a dump: %v, %v", listed, err)
		}
	}
}

func TestASocketIsOpenedAtOnceOrNotAtAll(t *testing.T) {
	if _, err := Open("vigia-test-absent", unix.NETLINK_ROUTE); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a namespace that is not there: %v", err)
	}
	if _, err := Open("", 4711); err == nil {
		t.Error("a family that is none was opened")
	}
	s, err := Open("", unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Change(unix.RTM_NEWLINK, 0, nil); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after Close: %v", err)
	}
}

// TestGoroutinesShareASocket has dumps, questions and refused changes at the same time:
// nobody gets an answer that is another's.
func TestGoroutinesShareASocket(t *testing.T) {
	ns := testutil.NewNetNS(t)
	for i := range 20 {
		testutil.IP(t, "-n", ns, "link", "add", "i"+strconv.Itoa(i), "type", "ifb")
	}
	s := New(ns, unix.NETLINK_ROUTE)
	defer s.Close()
	var wg sync.WaitGroup
	for worker := range 6 {
		wg.Go(func() {
			for range 50 {
				switch worker % 3 {
				case 0:
					if names, err := links(s); err != nil || len(names) != 21 {
						t.Errorf("%d interfaces, %v", len(names), err)
					}
				case 1:
					head := make([]byte, unix.SizeofIfInfomsg)
					binary.NativeEndian.PutUint32(head[4:], 1)
					got := ""
					err := s.Ask(unix.RTM_GETLINK, 0, head, func(_ uint16, data []byte) (err error) {
						got, err = linkName(data)
						return err
					})
					if got != "lo" || err != nil {
						t.Errorf("interface 1 is %q, %v", got, err)
					}
				default:
					if err := s.Change(unix.RTM_DELLINK, 0, newIFB(t, "absent0")); !errors.Is(err, unix.ENODEV) {
						t.Errorf("the deletion of nothing: %v", err)
					}
				}
			}
		})
	}
	wg.Wait()
}

// infosOf returns how many attributes an RTM_NEWLINK has in IFLA_LINKINFO.
func infosOf(data []byte) (n int, err error) {
	for kind, info := range Attributes(data, unix.SizeofIfInfomsg, &err) {
		if kind == unix.IFLA_LINKINFO {
			n += countOf(info, &err)
		}
	}
	return n, err
}

// countOf returns the number of nested attributes.
func countOf(b []byte, err *error) (n int) {
	for range Attributes(b, 0, err) {
		n++
	}
	return n
}

// TestDumpsCostNoMemoryPerMessage counts the allocations of dumps of few and of many
// interfaces.
func TestDumpsCostNoMemoryPerMessage(t *testing.T) {
	ns := testutil.NewNetNS(t)
	s := New(ns, unix.NETLINK_ROUTE)
	defer s.Close()
	body, found := make([]byte, unix.SizeofIfInfomsg), 0
	count := func() float64 {
		return testing.AllocsPerRun(50, func() {
			found = 0
			err := s.Dump(unix.RTM_GETLINK, body, func(_ uint16, data []byte) error {
				n, err := infosOf(data)
				found += n
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	few := count()
	for i := range 60 {
		testutil.IP(t, "-n", ns, "link", "add", "v"+strconv.Itoa(i), "type", "veth", "peer", "name", "w"+strconv.Itoa(i))
	}
	many := count()
	if found < 120 || few > 4 || many > few+1 {
		t.Errorf("%v allocations for an interface, %v for 121 of which %d were looked into", few, many, found)
	}
}
