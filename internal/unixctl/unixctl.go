// Package unixctl asks an Open vSwitch daemon over its control socket, as
// ovs-appctl(8) does: one JSON-RPC request with a text for an answer.
package unixctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	maxAnswer      = 16 << 20
	dialTimeout    = 2 * time.Second
	requestTimeout = 10 * time.Second
)

// maxPIDFile is more than a pid file holds, in bytes.
const maxPIDFile = 32

// PID returns the process of a daemon such as ovs-vswitchd, as its pid file has it; the
// process may be gone. Without a pid file the error is fs.ErrNotExist.
func PID(runDir, daemon string) (int, error) {
	path := filepath.Join(runDir, daemon+".pid")
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("find %s: %w", daemon, err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxPIDFile))
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	pid, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%s holds no process id", path)
	}
	return int(pid), nil
}

// Socket returns the control socket of a daemon, which is named after its process.
func Socket(runDir, daemon string) (string, error) {
	pid, err := PID(runDir, daemon)
	if err != nil {
		return "", err
	}
	return filepath.Join(runDir, fmt.Sprintf("%s.%d.ctl", daemon, pid)), nil
}

// ErrRefused means that the daemon does not know the command, or cannot do it.
var ErrRefused = errors.New("the daemon refuses")

// Call runs one command and returns its answer.
func Call(ctx context.Context, socket, command string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	d := net.Dialer{Timeout: dialTimeout}
	nc, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return "", fmt.Errorf("%s: connect: %w", command, err)
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	if args == nil {
		args = []string{}
	}
	request, err := json.Marshal(map[string]any{"id": 0, "method": command, "params": args})
	if err != nil {
		return "", err
	}
	if _, err := nc.Write(request); err != nil {
		return "", fmt.Errorf("%s: send: %w", command, err)
	}
	text, err := parse(nc)
	if err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	return text, nil
}

func parse(r io.Reader) (string, error) {
	var answer struct {
		Result *string `json:"result"`
		Error  *string `json:"error"`
	}
	limited := &io.LimitedReader{R: r, N: maxAnswer}
	if err := json.NewDecoder(limited).Decode(&answer); err != nil {
		if limited.N == 0 {
			return "", fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
		}
		return "", fmt.Errorf("read the answer: %w", err)
	}
	switch {
	case answer.Error != nil:
		return "", fmt.Errorf("%w: %.200s", ErrRefused, strings.TrimSpace(*answer.Error))
	case answer.Result == nil:
		return "", errors.New("the answer has neither result nor error")
	}
	return *answer.Result, nil
}
