package bulk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/probes/timestamping"
)

// errRejected, errBusy are answers of the other end.
var (
	errRejected = errors.New("the other end does not accept the test")
	errBusy     = errors.New("the other end is busy with another test")
)

// Run runs one test. ctx ends it early, as Stopped.
func (t *Target) Run(ctx context.Context) Outcome {
	var o Outcome
	err := t.run(ctx, &o)
	switch {
	case err == nil:
		o.Result = Completed
	case ctx.Err() != nil:
		o.Result = Stopped
	case errors.Is(err, errBusy):
		o.Result = Busy
	case errors.Is(err, errRejected):
		o.Result = Rejected
	default:
		o.Result = Failed
	}
	o.Err = err
	return o
}

func (t *Target) run(ctx context.Context, o *Outcome) error {
	conn, err := t.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetLinger(0); conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(t.Duration + 2*controlTimeout + lateness))
	h := testRequest{
		Version: version, Protocol: t.Protocol, Bytes: t.cost(), Size: t.Size,
		Duration: int64(t.Duration), Token: rand.Uint64(),
	}
	if t.Protocol == UDP {
		h.Packets = t.packets()
	}
	if err := writeLine(conn, h); err != nil {
		return fmt.Errorf("begin the test: %w", err)
	}
	reader := bufio.NewReaderSize(conn, maxLine)
	var a testResponse
	if err := readLine(reader, &a); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return fmt.Errorf("%w: it closed the connection; is our address in its bulk.allow?", errRejected)
		}
		return fmt.Errorf("read the answer: %w", err)
	}
	switch {
	case a.Busy:
		return errBusy
	case a.Error != "":
		return fmt.Errorf("%w: %.200q", errRejected, a.Error)
	}
	if t.Protocol == TCP {
		err = t.stream(ctx, conn, o)
	} else {
		err = t.sendUDP(ctx, conn, a.Port, h.Token, o)
	}
	if err != nil {
		return err
	}
	var r report
	if err := readLine(reader, &r); err != nil {
		return fmt.Errorf("read what arrived: %w", err)
	}
	o.Bytes, o.Duration, o.Received = r.Bytes, time.Duration(r.Duration), r.Received
	o.Duplicate, o.Reordered, o.Dropped, o.Jitter = r.Duplicate, r.Reordered, r.Dropped, time.Duration(r.Jitter)
	return nil
}

func (t *Target) dial(ctx context.Context) (conn *net.TCPConn, err error) {
	d := net.Dialer{Timeout: controlTimeout, Control: t.control}
	if t.Source.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(t.Source, 0))
	}
	err = netns.Do(t.Netns, func() error {
		c, err := d.DialContext(ctx, "tcp", t.Address.String())
		if err == nil {
			conn = c.(*net.TCPConn)
		}
		return err
	})
	return conn, err
}

// control sets how packets are sent, before the connection is made.
func (t *Target) control(network, _ string, raw syscall.RawConn) error {
	var setErr error
	err := raw.Control(func(fd uintptr) { setErr = t.Channel.Set(int(fd), network == "tcp6") })
	return errors.Join(err, setErr)
}

// stream sends as fast as TCP can, until the time is over or the bytes are sent.
func (t *Target) stream(ctx context.Context, conn *net.TCPConn, o *Outcome) error {
	chunk := make([]byte, 128<<10)
	for i := range chunk {
		chunk[i] = byte(rand.Uint32()) // nothing on the way can compress it
	}
	end := time.Now().Add(t.Duration)
	_ = conn.SetWriteDeadline(end)
	for o.Sent < t.MaxBytes && time.Now().Before(end) && ctx.Err() == nil {
		n, err := conn.Write(chunk[:min(uint64(len(chunk)), t.MaxBytes-o.Sent)])
		o.Sent += uint64(n)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	if err := o.readInfo(conn); err != nil {
		return err
	}
	if err := conn.CloseWrite(); err != nil {
		return fmt.Errorf("end the data: %w", err)
	}
	return nil
}

// readInfo reads TCP_INFO.
func (o *Outcome) readInfo(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var info *unix.TCPInfo
	var infoErr error
	err = raw.Control(func(fd uintptr) { info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err := errors.Join(err, infoErr); err != nil {
		return fmt.Errorf("read TCP_INFO: %w", err)
	}
	o.Retransmits = uint64(info.Total_retrans)
	o.RTT = time.Duration(info.Rtt) * time.Microsecond
	o.MinRTT = time.Duration(info.Min_rtt) * time.Microsecond
	o.DeliveryRate = info.Delivery_rate
	return nil
}

// sendUDP sends the UDP packets and says when all are sent.
func (t *Target) sendUDP(ctx context.Context, conn *net.TCPConn, port uint16, token uint64, o *Outcome) error {
	local := conn.LocalAddr().(*net.TCPAddr).AddrPort()
	var socket *timestamping.Socket
	err := netns.Do(t.Netns, func() (err error) {
		socket, err = timestamping.Open(timestamping.Options{
			Channel: t.Channel, Local: netip.AddrPortFrom(local.Addr().Unmap(), 0), SendBuffer: udpSendBuffer,
		})
		return err
	})
	if err != nil {
		return err
	}
	defer socket.Close()
	if err := t.sendPackets(ctx, socket, netip.AddrPortFrom(t.Address.Addr(), port), token, o); err != nil {
		return err
	}
	return writeLine(conn, endOfTest{Packets: o.Packets})
}

// udpSendBuffer holds little, so that a full device shows as refused packets and
// not as a queue that nobody sees.
const udpSendBuffer = 1 << 20
