package sockdiag

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

const ethPAll = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network order

func TestPacketSocketsAreFoundWithTheirDrops(t *testing.T) {
	ns := testutil.NewNetNS(t)
	testutil.DisableIPv6(t, ns)
	testutil.NewVethPair(t, ns, "port0", ns, "port1")
	var full, sender int
	index := map[string]int{}
	err := netns.Do(ns, func() (err error) {
		for _, name := range []string{"port0", "port1"} {
			ifi, err := net.InterfaceByName(name)
			if err != nil {
				return err
			}
			index[name] = ifi.Index
		}
		if full, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, ethPAll); err != nil {
			return err
		}
		if sender, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); err != nil {
			return err
		}
		return unix.Bind(full, &unix.SockaddrLinklayer{Protocol: ethPAll, Ifindex: index["port0"]})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(full)
	defer unix.Close(sender)
	if err := unix.SetsockoptInt(full, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096); err != nil {
		t.Fatal(err)
	}
	frame := append([]byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x88, 0xb5}, make([]byte, 1000)...)
	const frames = 300
	for range frames {
		if err := unix.Sendto(sender, frame, 0, &unix.SockaddrLinklayer{Ifindex: index["port1"]}); err != nil {
			t.Fatal(err)
		}
	}
	var own unix.TpacketStats // the socket's own, which reading resets: of all frames, dropped ones among them
	testutil.WaitFor(t, "the last frame", func() bool {
		more, err := unix.GetsockoptTpacketStats(full, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil {
			t.Fatal(err)
		}
		own.Packets, own.Drops = own.Packets+more.Packets, own.Drops+more.Drops
		return own.Packets >= frames
	})
	c := New(ns)
	defer c.Close()
	list, err := c.PacketSockets(nil)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(full, &st); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, s := range list {
		if s.Inode != uint32(st.Ino) {
			continue
		}
		found = true
		if s.Index != index["port0"] || s.Protocol != unix.ETH_P_ALL || s.Drops < 200 || s.Drops >= frames {
			t.Errorf("got %+v", s)
		}
		if own.Drops != s.Drops {
			t.Errorf("the socket says %+v, sock_diag %d", own, s.Drops)
		}
	}
	if !found {
		t.Errorf("no socket with the inode %d among %+v", st.Ino, list)
	}
}

func TestOtherNamespacesSocketsAreNotListed(t *testing.T) {
	c := New(testutil.NewNetNS(t))
	defer c.Close()
	if list, err := c.PacketSockets(nil); err != nil || len(list) != 0 {
		t.Errorf("%v, %v in an empty namespace", list, err)
	}
}

func TestAbsentNamespace(t *testing.T) {
	if _, err := New("vigia-test-absent").PacketSockets(nil); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	good := make([]byte, sizeofMessage)
	good = binary.NativeEndian.AppendUint16(good, 4+24)
	good = binary.NativeEndian.AppendUint16(good, attrInfo)
	f.Add(append(good, make([]byte, 24)...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parse(data)
		if err == nil && len(data) < sizeofMessage {
			t.Errorf("%x was parsed to %+v", data, s)
		}
	})
}
