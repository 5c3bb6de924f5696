package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

// systemd is where a program tells systemd how it is.
func systemd(t *testing.T) *net.UnixConn {
	t.Helper()
	address := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", address)
	return conn
}

// told reads what the program has said until now.
func told(t *testing.T, conn *net.UnixConn) []string {
	t.Helper()
	var out []string
	buffer := make([]byte, 256)
	for {
		n, err := 0, error(nil)
		raw, failed := conn.SyscallConn()
		if failed == nil {
			failed = raw.Read(func(fd uintptr) bool {
				n, err = unix.Read(int(fd), buffer) // the socket does not block
				return true
			})
		}
		switch {
		case failed != nil:
			t.Fatal(failed)
		case errors.Is(err, unix.EAGAIN):
			return out
		case err != nil:
			t.Fatal(err)
		}
		out = append(out, string(buffer[:n]))
	}
}

// TestTheWatchdogIsToldWhileTheProgramWorks, and no more once it hangs.
func TestTheWatchdogIsToldWhileTheProgramWorks(t *testing.T) {
	conn := systemd(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	const before = 3
	hangs, goOn := make(chan struct{}), make(chan struct{})
	asked := 0
	f := &fake{onReady: func() {
		if asked++; asked == before {
			close(hangs)
			<-goOn
		}
	}}
	in := start(t, f)
	<-hangs
	if got := told(t, conn); len(got) != before {
		t.Errorf("systemd was told %q before the program hung, want once at the start and %d times later", got, before-1)
	}
	close(goOn)
	testutil.WaitFor(t, "the watchdog to be told again", func() bool { return len(told(t, conn)) > 0 })
	if code := in.wait(); code != ExitOK {
		t.Errorf("exit code %d\n%s", code, in.stderr)
	}
}

// TestWithoutAWatchdogNothingIsTold, also where it is another process that it watches.
func TestWithoutAWatchdogNothingIsTold(t *testing.T) {
	for name, set := range map[string]map[string]string{
		"none":            {},
		"another process": {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"},
		"rubbish":         {"WATCHDOG_USEC": "soon"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := systemd(t)
			for key, value := range set {
				t.Setenv(key, value)
			}
			in := start(t, &fake{})
			if code, _ := in.reload("two"); code != 200 {
				t.Errorf("the reload answered %d", code)
			}
			if code := in.wait(); code != ExitOK {
				t.Errorf("exit code %d\n%s", code, in.stderr)
			}
			if got := told(t, conn); len(got) > 0 {
				t.Errorf("systemd was told %q", got)
			}
			if warned := strings.Contains(in.stderr.String(), "cannot read what systemd's watchdog expects"); warned != (name == "rubbish") {
				t.Errorf("warned: %t\n%s", warned, in.stderr)
			}
		})
	}
}

// TestAPulseTellsTheWatchdog of a command that works, and waits, and no more once it hangs.
func TestAPulseTellsTheWatchdog(t *testing.T) {
	conn := systemd(t)
	t.Setenv("WATCHDOG_USEC", "80000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	pulse := NewPulse(slog.New(slog.DiscardHandler))
	for range 1000 { // at once, which is not worth telling each time
		pulse.Beat()
	}
	if got := told(t, conn); len(got) == 0 || len(got) > 100 || got[0] != "WATCHDOG=1" {
		t.Errorf("told %d times: %.3q", len(got), got)
	}
	testutil.WaitFor(t, "a wait that is told of twice", func() bool { // a stalled machine wakes it once
		pulse.Sleep(context.Background(), 200*time.Millisecond)
		return len(told(t, conn)) >= 2
	})
	time.Sleep(100 * time.Millisecond) // it hangs
	if got := told(t, conn); len(got) > 0 {
		t.Errorf("told %q while it hung", got)
	}
	pulse.Beat()
	if got := told(t, conn); len(got) != 1 {
		t.Errorf("told %q afterwards", got)
	}
}

func TestAPulseWithoutAWatchdogOnlySleeps(t *testing.T) {
	conn := systemd(t)
	for name, pulse := range map[string]*Pulse{"none": {}, "no watchdog": NewPulse(slog.New(slog.DiscardHandler))} {
		pulse.Beat()
		begun := time.Now()
		pulse.Sleep(context.Background(), 30*time.Millisecond)
		if slept := time.Since(begun); slept < 30*time.Millisecond {
			t.Errorf("%s: slept %v", name, slept)
		}
		ended, end := context.WithCancel(context.Background())
		end()
		pulse.Sleep(ended, time.Hour) // returns
	}
	if got := told(t, conn); len(got) > 0 {
		t.Errorf("told %q", got)
	}
}
