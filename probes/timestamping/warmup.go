package timestamping

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

const (
	// warmupTimeout is generous: a busy machine, as one that has just started, comes late to what the kernel leaves to
	// its background.
	warmupTimeout = 10 * time.Second
	warmupDwell   = time.Millisecond
)

// WarmUp waits until the kernel stamps packets on arrival. The first socket that
// asks for stamps turns that on in the background; until then recvmsg(2) makes
// up a stamp of its own time, which would pass for a kernel stamp. WarmUp holds
// the returned socket open to keep it on; the caller closes it at the end.
//
// It sends itself datagrams over loopback and leaves each in the buffer for a
// while: a stamp from before that was taken on arrival.
func WarmUp() (*Socket, error) {
	s, err := Open(Options{Local: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		return nil, err
	}
	if err := s.warmUp(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Socket) warmUp() error {
	in, out, self := NewInbox(4, 1), NewOutbox(1), NewPeer(s.local)
	for deadline := time.Now().Add(warmupTimeout); time.Now().Before(deadline); {
		out.Reset()
		out.Add(&self, []byte{1}, 0, netip.Addr{})
		if _, err := out.Send(s, 0); err != nil {
			return fmt.Errorf("send a datagram over loopback: %w", err)
		}
		sent := time.Now().UnixNano()
		time.Sleep(warmupDwell)
		n, err := in.Receive(s)
		if err != nil {
			return fmt.Errorf("receive a datagram over loopback: %w", err)
		}
		for i := range n {
			var d Datagram
			in.Datagram(i, &d)
			// Loopback delivers within the system call.
			if d.Stamp != 0 && d.Stamp <= sent {
				return nil
			}
		}
	}
	return errors.New("the kernel does not stamp packets on arrival (SO_TIMESTAMPING)")
}
