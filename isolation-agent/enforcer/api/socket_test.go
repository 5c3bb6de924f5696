package api

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vigia/internal/testutil"
)

// serve serves a rig's API on a socket until the test ends.
func (r *rig) serve(s *Socket) {
	r.t.Helper()
	l, err := s.Listen()
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.server.Serve(ctx, l) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("serving ended with %v", err)
		}
	})
}

// over returns a client that speaks to a socket.
func over(t *testing.T, path string) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func statusOf(t *testing.T, c *http.Client, authorization string) int {
	t.Helper()
	req, err := http.NewRequest("GET", "http://enforcer/v1/state", nil)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestRootNeedsNoTokenOnTheSocket(t *testing.T) {
	testutil.RequireRoot(t)
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "deep", "down", "api.sock")
	r.server.SetSocketUsers(nil)
	r.serve(&Socket{Path: path})
	client := over(t, path)
	if got := statusOf(t, client, ""); got != 200 {
		t.Errorf("root: %d", got)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o666 || info.Mode()&os.ModeSocket == 0 {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
}

func TestWithoutListedUsersTheTokenIsNeeded(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "api.sock")
	r.serve(&Socket{Path: path}) // nobody has called SetSocketUsers yet
	client := over(t, path)
	if got := statusOf(t, client, ""); got != 401 {
		t.Errorf("without a token: %d", got)
	}
	if got := statusOf(t, client, "Bearer "+token); got != 200 {
		t.Errorf("with the token: %d", got)
	}
}

func TestUsersAreSwappedOnOpenConnections(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "api.sock")
	r.serve(&Socket{Path: path})
	client := over(t, path)
	me := uint32(os.Geteuid())
	for step, tc := range []struct {
		uids []uint32
		want int
	}{{[]uint32{me}, 200}, {[]uint32{me + 1}, map[bool]int{true: 200, false: 401}[me == 0]}, {[]uint32{me, me + 1}, 200}} {
		r.server.SetSocketUsers(tc.uids)
		if got := statusOf(t, client, ""); got != tc.want {
			t.Errorf("step %d: users %v: %d, want %d", step, tc.uids, got, tc.want)
		}
	}
}

func TestRequestsByTCPHaveNoUser(t *testing.T) {
	r := newRig(t)
	r.server.SetSocketUsers([]uint32{0, uint32(os.Geteuid())})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: r.mux}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	resp, err := http.Get("http://" + l.Addr().String() + "/v1/state")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 401 {
		t.Errorf("without a token by TCP: %d", resp.StatusCode)
	}
}

func TestWhatADeadProcessLeftIsReplacedAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "left.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: left})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close() // as a process does that is killed
	again, err := (&Socket{Path: left}).Listen()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&Socket{Path: left}).Listen(); err == nil || !strings.Contains(err.Error(), "is in use; stop the process that holds it") {
		t.Errorf("a socket in use: %v", err)
	}
	again.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, dir} {
		if _, err := (&Socket{Path: path}).Listen(); err == nil || !strings.Contains(err.Error(), "is a file of another kind; remove it or choose another path") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "mine" {
		t.Errorf("the file has %q, %v", raw, err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(left, link); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Socket{Path: link}).Listen(); err == nil {
		t.Error("a symbolic link was replaced")
	}
	if _, err := (&Socket{Path: filepath.Join(file, "api.sock")}).Listen(); err == nil || !strings.Contains(err.Error(), "api_socket") {
		t.Errorf("below a file: %v", err)
	}
	if _, err := (&Socket{Path: filepath.Join(dir, strings.Repeat("x", 120))}).Listen(); err == nil || !strings.Contains(err.Error(), "listen on api_socket") {
		t.Errorf("a name that is too long: %v", err)
	}
}

func TestTheSocketBelievesTheKernelAndNotTheRequest(t *testing.T) {
	testutil.RequireRoot(t)
	r := newRig(t)
	dir := t.TempDir()
	for _, folder := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "api.sock")
	r.server.SetSocketUsers([]uint32{990})
	r.serve(&Socket{Path: path})
	for uid, want := range map[string]string{"990": "200", "991": "401", "65534": "401"} {
		out, err := exec.Command("setpriv", "--reuid="+uid, "--regid="+uid, "--clear-groups", "/usr/bin/python3", "-c", `
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"GET /v1/state HTTP/1.0\r\nX-Uid: 0\r\nX-Forwarded-User: root\r\n\r\n")
print(s.recv(4096).split(b"\r\n")[0].decode())`, path).CombinedOutput()
		if err != nil || !strings.Contains(string(out), " "+want+" ") {
			t.Errorf("user %s: %q %v, want %s", uid, out, err, want)
		}
	}
}
