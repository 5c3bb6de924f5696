package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Socket says where the API listens for processes of this host. The kernel vouches
// for who is at the other end (SO_PEERCRED, unix(7)), so that no token is needed.
type Socket struct {
	Path string   `yaml:"path"` // where it is, absolute
	UIDs []uint32 `yaml:"uids"` // who needs no token, beside root
}

// uidKey is the key of a connection's user in the context of its requests.
type uidKey struct{}

// Listen opens the socket. What a dead process left at its path is replaced; any
// other file is refused.
func (s *Socket) Listen() (net.Listener, error) {
	info, err := os.Lstat(s.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("look at api_socket: %w", err)
	case info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("api_socket %s is a file of another kind; remove it or choose another path", s.Path)
	default:
		if conn, err := net.Dial("unix", s.Path); err == nil {
			conn.Close()
			return nil, fmt.Errorf("api_socket %s is in use; stop the process that holds it", s.Path)
		}
		if err := os.Remove(s.Path); err != nil {
			return nil, fmt.Errorf("remove what is left of api_socket: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(s.Path), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of api_socket: %w", err)
	}
	l, err := net.Listen("unix", s.Path)
	if err != nil {
		return nil, fmt.Errorf("listen on api_socket: %w", err)
	}
	if err := os.Chmod(s.Path, 0o666); err != nil { // who may speak is decided by credentials
		l.Close()
		return nil, fmt.Errorf("open api_socket to others: %w", err)
	}
	return l, nil
}

const (
	socketTimeout = 30 * time.Second
	socketHeaders = 64 << 10
)

// SetSocketUsers swaps the users who need no token on the socket, beside root. It holds
// from the next request on, also on connections that are open.
func (s *Server) SetSocketUsers(uids []uint32) {
	allowed := map[uint32]bool{0: true}
	for _, uid := range uids {
		allowed[uid] = true
	}
	s.uids.Store(&allowed)
}

// Serve answers on the socket until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	s.Register(mux)
	server := &http.Server{
		Handler: mux, ReadTimeout: socketTimeout, WriteTimeout: socketTimeout, MaxHeaderBytes: socketHeaders,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if uid, err := peerUID(c); err == nil {
				return context.WithValue(ctx, uidKey{}, uid)
			}
			return ctx
		},
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve api_socket: %w", err)
	}
	return nil
}

func peerUID(c net.Conn) (uint32, error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, credErr
	}
	return cred.Uid, nil
}

// vouched reports whether the kernel has vouched for a user who needs no token.
func (s *Server) vouched(r *http.Request) bool {
	uid, known := r.Context().Value(uidKey{}).(uint32)
	allowed := s.uids.Load()
	return known && allowed != nil && (*allowed)[uid]
}
