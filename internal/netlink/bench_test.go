package netlink

import (
	"encoding/binary"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	library "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// BenchmarkDumps, BenchmarkQuestions and BenchmarkChanges measure this package beside
// github.com/mdlayher/netlink, in the same namespace and with the same requests.
func BenchmarkDumps(b *testing.B) {
	for _, interfaces := range []int{10, 1000} {
		b.Run(fmt.Sprint(interfaces), func(b *testing.B) {
			s, l := bothSockets(b, interfaces)
			body := make([]byte, 12) // struct if_stats_msg
			binary.NativeEndian.PutUint32(body[8:], 1<<(unix.IFLA_STATS_LINK_64-1))
			var own, other uint64
			testutil.Beside(b, "library", func() {
				own = 0
				err := s.Dump(unix.RTM_GETSTATS, body, func(_ uint16, data []byte) error {
					sum, err := received(data)
					own += sum
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}, func() {
				other = 0
				for _, m := range execute(b, l, unix.RTM_GETSTATS, library.Dump, body) {
					d, err := library.NewAttributeDecoder(m.Data[12:])
					if err != nil {
						b.Fatal(err)
					}
					for d.Next() {
						other += binary.NativeEndian.Uint64(d.Bytes()) + 1
					}
				}
			})
			if own == 0 || own != other {
				b.Fatalf("read %d here, %d by the library", own, other)
			}
		})
	}
}

// received adds up the packets that the interface of an RTM_NEWSTATS received.
func received(data []byte) (sum uint64, err error) {
	for _, value := range Attributes(data, 12, &err) {
		sum += Uint64(value, 0) + 1
	}
	return sum, err
}

func BenchmarkQuestions(b *testing.B) {
	s, l := bothSockets(b, 10)
	body := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(body[4:], 1)
	const turn = 100
	testutil.Beside(b, "library", func() {
		for range turn {
			if err := s.Ask(unix.RTM_GETLINK, 0, body, func(uint16, []byte) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	}, func() {
		for range turn {
			execute(b, l, unix.RTM_GETLINK, 0, body)
		}
	})
}

func BenchmarkChanges(b *testing.B) {
	s, l := bothSockets(b, 10)
	up := make([]byte, unix.SizeofIfInfomsg) // of lo, which is
	binary.NativeEndian.PutUint32(up[4:], 1)
	binary.NativeEndian.PutUint32(up[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(up[12:], unix.IFF_UP)
	const turn = 100
	testutil.Beside(b, "library", func() {
		for range turn {
			if err := s.Change(unix.RTM_NEWLINK, 0, up); err != nil {
				b.Fatal(err)
			}
		}
	}, func() {
		for range turn {
			execute(b, l, unix.RTM_NEWLINK, library.Acknowledge, up)
		}
	})
}

// bothSockets opens a socket of this package and one of the library in a namespace with
// so many interfaces beside lo.
func bothSockets(b *testing.B, interfaces int) (*Socket, *library.Conn) {
	b.Helper()
	ns := testutil.NewNetNS(b)
	var batch strings.Builder
	for i := range interfaces {
		fmt.Fprintf(&batch, "link add i%d type ifb\n", i)
	}
	cmd := exec.Command("ip", "-n", ns, "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	s, err := Open(ns, unix.NETLINK_ROUTE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	var l *library.Conn
	if err := netns.Do(ns, func() (err error) { l, err = library.Dial(unix.NETLINK_ROUTE, nil); return err }); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return s, l
}

func execute(b *testing.B, l *library.Conn, kind library.HeaderType, flags library.HeaderFlags, body []byte) []library.Message {
	b.Helper()
	messages, err := l.Execute(library.Message{Header: library.Header{Type: kind, Flags: library.Request | flags}, Data: body})
	if err != nil {
		b.Fatal(err)
	}
	return messages
}
