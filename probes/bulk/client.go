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
	"sync"
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

// run begins all transfers, lets them go together and adds up what they measured.
func (t *Target) run(ctx context.Context, o *Outcome) error {
	transfers := t.transfers()
	defer func() {
		for _, f := range transfers {
			f.close()
		}
	}()
	if err := each(transfers, func(f *transfer) error { return f.begin(ctx) }); err != nil {
		return err
	}
	err := each(transfers, func(f *transfer) error { return f.run(ctx) })
	o.add(transfers)
	return err
}

// transfer is what goes from one machine to another in a test.
type transfer struct {
	Target
	request testRequest
	conn    *net.TCPConn
	reader  *bufio.Reader
	answer  testResponse
	stop    func() bool
	o       Outcome
}

// transfers divides a test among its pairs of machines.
func (t *Target) transfers() []*transfer {
	pairs, id := t.pairs(), t.test
	if id == 0 {
		id = rand.Uint64()
	}
	out := make([]*transfer, len(pairs))
	for i, p := range pairs {
		f := &transfer{Target: *t}
		f.Netns, f.Source, f.Address, f.Others = p.Netns, p.Source, p.Address, nil
		f.Rate, f.MaxBytes = share(t.Rate, i, len(pairs)), share(t.MaxBytes, i, len(pairs))
		f.request = testRequest{
			Version: version, Protocol: t.Protocol, Bytes: f.cost(), Size: t.Size,
			Duration: int64(t.Duration), Token: rand.Uint64(), Test: id, Connections: len(pairs), TOS: t.Channel.TOS,
		}
		if t.Protocol == UDP {
			f.request.Packets = f.packets()
		}
		out[i] = f
	}
	return out
}

// share returns the part of one of n.
func share(all uint64, one, n int) uint64 {
	part := all / uint64(n)
	if one < int(all%uint64(n)) {
		part++
	}
	return part
}

// each does something for all transfers at the same time.
func each(transfers []*transfer, do func(*transfer) error) error {
	errs := make([]error, len(transfers))
	var wg sync.WaitGroup
	for i, f := range transfers {
		wg.Go(func() { errs[i] = do(f) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds up what transfers measured.
func (o *Outcome) add(transfers []*transfer) {
	n := time.Duration(len(transfers))
	for i, f := range transfers {
		of := &f.o
		o.Sent, o.Bytes, o.Duration = o.Sent+of.Sent, o.Bytes+of.Bytes, max(o.Duration, of.Duration)
		o.Retransmits, o.DeliveryRate = o.Retransmits+of.Retransmits, o.DeliveryRate+of.DeliveryRate
		o.RTT, o.Jitter = o.RTT+of.RTT/n, o.Jitter+of.Jitter/n
		if i == 0 || of.MinRTT < o.MinRTT {
			o.MinRTT = of.MinRTT
		}
		o.Packets, o.Refused = o.Packets+of.Packets, o.Refused+of.Refused
		o.Received, o.Duplicate = o.Received+of.Received, o.Duplicate+of.Duplicate
		o.Reordered, o.Dropped = o.Reordered+of.Reordered, o.Dropped+of.Dropped
	}
}

// begin connects, and asks the other end for the transfer.
func (f *transfer) begin(ctx context.Context) (err error) {
	if f.conn, err = f.dial(ctx); err != nil {
		return err
	}
	conn := f.conn
	f.stop = context.AfterFunc(ctx, func() { _ = conn.SetLinger(0); conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(f.Duration + 2*controlTimeout + lateness))
	if err := writeLine(conn, f.request); err != nil {
		return fmt.Errorf("begin the test: %w", err)
	}
	f.reader = bufio.NewReaderSize(conn, maxLine)
	if err := readLine(f.reader, &f.answer); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return fmt.Errorf("%w: it closed the connection; is our address in its bulk.allow?", errRejected)
		}
		return fmt.Errorf("read the answer: %w", err)
	}
	switch {
	case f.answer.Busy:
		return errBusy
	case f.answer.Error != "":
		return fmt.Errorf("%w: %.200q", errRejected, f.answer.Error)
	}
	return nil
}

// run sends, and reads what arrived.
func (f *transfer) run(ctx context.Context) (err error) {
	o := &f.o
	if f.Protocol == TCP {
		err = f.stream(ctx, f.conn, o)
	} else {
		err = f.sendUDP(ctx, f.conn, f.answer.Port, f.request.Token, o)
	}
	if err != nil {
		return err
	}
	var r report
	if err := readLine(f.reader, &r); err != nil {
		return fmt.Errorf("read what arrived: %w", err)
	}
	o.Bytes, o.Duration, o.Received = r.Bytes, time.Duration(r.Duration), r.Received
	o.Duplicate, o.Reordered, o.Dropped, o.Jitter = r.Duplicate, r.Reordered, r.Dropped, time.Duration(r.Jitter)
	return nil
}

func (f *transfer) close() {
	if f.conn == nil {
		return
	}
	f.stop()
	f.conn.Close()
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
