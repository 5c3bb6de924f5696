package main

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/internal/testutil"
	"vigia/probes/timestamping"
)

const near, far = "10.9.0.1", "10.9.0.2"

// link returns the namespace of a link's near end, at whose far end every datagram is answered.
func link(t *testing.T) string {
	t.Helper()
	left, right := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, left, "veth0", right, "veth0")
	testutil.IP(t, "-n", left, "addr", "add", near+"/24", "dev", "veth0")
	testutil.IP(t, "-n", right, "addr", "add", far+"/24", "dev", "veth0")
	var server *net.UDPConn
	err := netns.Do(right, func() (err error) {
		server, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := server.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(buffer[:n], from)
		}
	}()
	return left
}

// TestEveryProbeIsAnsweredAndStampedBothWays: a loop that skips any of it would be no floor.
func TestEveryProbeIsAnsweredAndStampedBothWays(t *testing.T) {
	// The kernel begins to stamp arrivals in the background, some time after a first socket has asked for it.
	warm, err := timestamping.WarmUp()
	if err != nil {
		t.Fatal(err)
	}
	defer warm.Close()
	var got outcome
	err = netns.Do(link(t), func() (err error) {
		got, err = probe(4, 10*time.Millisecond, 0.5, []string{far})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Sent < 40 || got.Sent%4 != 0 || got.Answered != got.Sent || got.Stamped != got.Sent || got.SentAt != got.Sent {
		t.Errorf("%+v: not every probe was answered and stamped", got)
	}
	if got.CPU <= 0 {
		t.Errorf("%+v: it took no time", got)
	}
}

func TestTargetsTakeTheirTurns(t *testing.T) {
	rounds, err := batches(2, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"})
	if err != nil || len(rounds) != 2 {
		t.Fatalf("%d rounds, %v", len(rounds), err)
	}
	var last []byte
	for _, m := range rounds {
		for _, name := range m.names {
			raw := binary.NativeEndian.AppendUint16(nil, name.Port)
			if name.Family != unix.AF_INET || binary.BigEndian.Uint16(raw) != port {
				t.Errorf("%+v", name)
			}
			last = append(last, name.Addr[3])
		}
	}
	if string(last) != "\x01\x02\x03\x01" {
		t.Errorf("targets %v", last)
	}
}

func TestWhatCannotBeProbedIsRefused(t *testing.T) {
	for _, tc := range []struct {
		batch   int
		tick    time.Duration
		targets []string
		says    string
	}{
		{0, time.Millisecond, []string{far}, "batch 0"},
		{1, 0, []string{far}, "tick 0s"},
		{1, time.Millisecond, nil, "0 targets"},
		{1, time.Millisecond, []string{"here"}, `target "here" is no IPv4 address`},
		{1, time.Millisecond, []string{"::1"}, `target "::1" is no IPv4 address`},
	} {
		if _, err := probe(tc.batch, tc.tick, 1, tc.targets); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
