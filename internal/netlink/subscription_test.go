package netlink

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

const linkGroup = 1 << (unix.RTNLGRP_LINK - 1)

// subscribe joins the group of links of a namespace, and tells what Wait returned.
func subscribe(t *testing.T, ns string) (*Subscription, chan error) {
	t.Helper()
	s, err := Subscribe(ns, unix.NETLINK_ROUTE, linkGroup)
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan error, 1000)
	go func() {
		for {
			err := s.Wait()
			heard <- err
			if err != nil {
				return
			}
		}
	}()
	return s, heard
}

func TestChangesAreHeardUntilTheEnd(t *testing.T) {
	ns := testutil.NewNetNS(t)
	s, heard := subscribe(t, ns)
	for i := range 3 {
		testutil.IP(t, "-n", ns, "link", "add", fmt.Sprintf("d%d", i), "type", "bridge")
		if err := <-heard; err != nil {
			t.Fatalf("interface %d: %v", i, err)
		}
	}
	if err := s.Close(); err != nil { // while Wait waits
		t.Error(err)
	}
	for err := range heard {
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
			break
		}
	}
	if err := s.Wait(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("later: %v", err)
	}
}

// TestLostChangesAreChanges floods a subscription that does not read.
func TestLostChangesAreChanges(t *testing.T) {
	ns := testutil.NewNetNS(t)
	s, err := Subscribe(ns, unix.NETLINK_ROUTE, linkGroup)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	raw, err := s.file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// The kernel's minimum, soon full.
	if err := errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) }), err); err != nil {
		t.Fatal(err)
	}
	var batch strings.Builder
	for i := range 40 {
		fmt.Fprintf(&batch, "link add b%d type bridge\nlink del b%d\n", i, i)
	}
	cmd := exec.Command("ip", "-n", ns, "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := s.Wait(); err != nil { // ENOBUFS goes before what is in the queue
		t.Errorf("lost changes: %v", err)
	}
	buffered := 0
	for {
		var n int
		if err := raw.Control(func(fd uintptr) { n, _, err = unix.Recvfrom(int(fd), make([]byte, 1<<16), unix.MSG_DONTWAIT) }); err != nil {
			t.Fatal(err)
		}
		if err != nil || n == 0 {
			break
		}
		buffered++
	}
	if buffered >= 80 {
		t.Fatalf("nothing was lost: %d messages were kept", buffered)
	}
	testutil.IP(t, "-n", ns, "link", "add", "last", "type", "bridge")
	if err := s.Wait(); err != nil {
		t.Errorf("the subscription is broken after a loss: %v", err)
	}
}

func TestSubscriptionsThatCannotBe(t *testing.T) {
	if _, err := Subscribe("vigia-test-absent", unix.NETLINK_ROUTE, linkGroup); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a namespace that is not there: %v", err)
	}
	if _, err := Subscribe("", unix.NETLINK_ROUTE, 0); err != nil {
		t.Errorf("no group: %v", err)
	}
}
