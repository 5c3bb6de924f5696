package bulk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/netns"
	"vigia/probes/timestamping"
)

// Listener is where tests of others arrive.
type Listener struct {
	Netns   string
	Address netip.AddrPort
	Link    string // that they load, at our end
}

// Config says whose tests are accepted.
type Config struct {
	Listeners []Listener
	Allow     []netip.Prefix
}

// maxConnections bounds the connections of one listener at a time.
const maxConnections = 16

// retryInterval is how often a listener that is not open is tried again, and one
// that is open is looked after.
const retryInterval = 2 * time.Second

// Server accepts tests.
type Server struct {
	logger *slog.Logger
	links  *LinkLocks

	mu      sync.Mutex
	config  Config
	running map[Listener]*running
	wg      sync.WaitGroup
	ctx     context.Context
	stop    context.CancelFunc
}

type running struct {
	stop context.CancelFunc
	err  error // why it is not open
}

// NewServer returns a server that shares the links with the tests from here.
func NewServer(logger *slog.Logger, links *LinkLocks) *Server {
	s := &Server{logger: logger, links: links, running: make(map[Listener]*running)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Set replaces the configuration. Listeners that stay keep the test under way.
func (s *Server) Set(c Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = c
	for l, r := range s.running {
		if !slices.Contains(c.Listeners, l) {
			r.stop()
			delete(s.running, l)
		}
	}
	for _, l := range c.Listeners {
		if s.running[l] != nil {
			continue
		}
		ctx, stop := context.WithCancel(s.ctx)
		s.running[l] = &running{stop: stop, err: errors.New("not opened yet")}
		s.wg.Go(func() { s.maintain(ctx, l) })
	}
}

// Close ends everything.
func (s *Server) Close() {
	s.stop()
	s.wg.Wait()
}

// Err returns why a listener is not open, or nil when all are.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for l, r := range s.running {
		if r.err != nil {
			errs = append(errs, fmt.Errorf("bulk listener %s is not open: %w", l.Address, r.err))
		}
	}
	return errors.Join(errs...)
}

func (s *Server) note(l Listener, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.running[l]; r != nil {
		if err != nil && (r.err == nil || r.err.Error() != err.Error()) {
			s.logger.Warn("cannot open a bulk listener", "address", l.Address, "netns", l.Netns, "err", err)
		}
		r.err = err
	}
}

// maintain keeps a listener open until ctx ends.
func (s *Server) maintain(ctx context.Context, l Listener) {
	for ctx.Err() == nil {
		if err := s.listen(ctx, l); err != nil && ctx.Err() == nil {
			s.note(l, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// listen serves until the namespace is another or ctx ends.
func (s *Server) listen(ctx context.Context, l Listener) error {
	ns, err := netns.Open(l.Netns)
	if err != nil {
		return err
	}
	defer ns.Close()
	var listener net.Listener
	open := func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", l.Address.String())
		return err
	}
	if l.Netns == "" {
		err = open()
	} else {
		err = ns.Do(open)
	}
	if err != nil {
		return err
	}
	s.note(l, nil)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		watch(ctx, l.Netns, ns)
		listener.Close()
		cancel()
	}()
	slots := make(chan struct{}, maxConnections)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		select {
		case slots <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			s.serve(ctx, conn.(*net.TCPConn), l, ns)
		})
	}
}

// watch returns when ctx ends or the namespace no longer goes by its name.
func watch(ctx context.Context, name string, ns *netns.NS) {
	mine, err := ns.Inode()
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryInterval):
		}
		if name == "" {
			continue
		}
		var now *netns.NS
		var inode uint64
		if now, err = netns.Open(name); err != nil {
			return
		}
		inode, err = now.Inode()
		now.Close()
		if inode != mine {
			return
		}
	}
}

func (s *Server) allowed(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.config.Allow, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}

// serve handles one control connection.
func (s *Server) serve(ctx context.Context, conn *net.TCPConn, l Listener, ns *netns.NS) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	from := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	if !s.allowed(from.Addr()) {
		return // no answer to sources that are not allowed
	}
	_ = conn.SetDeadline(time.Now().Add(controlTimeout))
	reader := bufio.NewReaderSize(conn, maxLine)
	var h testRequest
	if err := readLine(reader, &h); err != nil {
		return
	}
	if err := h.check(); err != nil {
		_ = writeLine(conn, testResponse{Error: err.Error()})
		return
	}
	if err := answer(conn, h.TOS); err != nil {
		s.logger.Warn("cannot answer a bulk test with its type of service", "from", from, "err", err)
	}
	release, ok := s.links.acquire(l.Link, h.Test, max(h.Connections, 1))
	if !ok {
		_ = writeLine(conn, testResponse{Busy: true})
		return
	}
	defer release()
	_ = conn.SetDeadline(time.Now().Add(time.Duration(h.Duration) + 2*controlTimeout))
	var err error
	if h.Protocol == TCP {
		err = receiveTCP(conn, reader, &h)
	} else {
		err = s.receiveUDP(ctx, conn, reader, &h, from.Addr(), l, ns)
	}
	if err != nil && ctx.Err() == nil {
		s.logger.Info("cannot complete a bulk test that arrived", "from", from, "err", err)
	}
}

// answer has what we send over a connection, acknowledgements above all, take the type of service of what arrives.
func answer(conn *net.TCPConn, tos uint8) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var setErr error
	v6 := conn.LocalAddr().(*net.TCPAddr).IP.To4() == nil
	channel := timestamping.Channel{TOS: tos &^ 3} // ECN is TCP's
	err = raw.Control(func(fd uintptr) { setErr = channel.Set(int(fd), v6) })
	return errors.Join(err, setErr)
}

// receiveTCP reads the data until its end.
func receiveTCP(conn *net.TCPConn, reader *bufio.Reader, h *testRequest) error {
	if err := writeLine(conn, testResponse{}); err != nil {
		return err
	}
	buffer := make([]byte, 256<<10)
	var r report
	var first, last time.Time
	for {
		n, err := reader.Read(buffer)
		if n > 0 {
			last = time.Now()
			if first.IsZero() {
				first = last
			}
			r.Bytes += uint64(n)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if r.Bytes > h.Bytes+uint64(len(buffer)) {
			return fmt.Errorf("more than the %d bytes agreed", h.Bytes)
		}
	}
	r.Duration = int64(last.Sub(first))
	return writeLine(conn, r)
}

// receiveUDP counts packets until the sender says that it is done.
func (s *Server) receiveUDP(ctx context.Context, conn *net.TCPConn, reader *bufio.Reader, h *testRequest, from netip.Addr, l Listener, ns *netns.NS) error {
	var socket *timestamping.Socket
	open := func() (err error) {
		socket, err = timestamping.Open(timestamping.Options{Local: netip.AddrPortFrom(l.Address.Addr(), 0), ReceiveBuffer: udpBuffer})
		return err
	}
	var err error
	if l.Netns == "" {
		err = open()
	} else {
		err = ns.Do(open)
	}
	if err != nil {
		return errors.Join(err, writeLine(conn, testResponse{Error: "the receiver cannot open a socket"}))
	}
	defer socket.Close()
	if err := writeLine(conn, testResponse{Port: socket.Local().Port()}); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- readLine(reader, &endOfTest{}) }()
	c := newCounter(h, from)
	if err := c.run(ctx, socket, done); err != nil {
		return err
	}
	return writeLine(conn, c.report(socket))
}

// poll waits until the socket is ready, at most for the time.
func poll(fd int, events int16, wait time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	_, err := unix.Poll(fds, max(int(wait.Milliseconds()), 1))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("poll: %w", err)
	}
	return nil
}
