package realtime

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

// locked kB of the process, and its resident ones.
func memory(t *testing.T) (locked, resident int) {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(raw), "\n") {
		_, _ = fmt.Sscanf(line, "VmLck: %d kB", &locked) // 0 if it is another line
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &resident)
	}
	return locked, resident
}

func TestMemoryIsLockedWithoutBringingMoreIn(t *testing.T) {
	testutil.RequireRoot(t)
	_, before := memory(t)
	if err := LockMemory(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Munlockall(); err != nil {
			t.Error(err)
		}
	}()
	locked, after := memory(t)
	if locked == 0 {
		t.Error("nothing is locked")
	}
	if after > before+16<<10 {
		t.Errorf("%d kB were resident, and are %d", before, after)
	}
}

const boundEnv = "VIGIA_TEST_BOUND_MEMORY"

// Under a bound nothing is locked: an allocation that met it would end the process.
func TestBoundedMemoryIsLeftAlone(t *testing.T) {
	testutil.RequireRoot(t)
	if os.Getenv(boundEnv) != "" {
		if err := LockMemory(); !errors.Is(err, ErrMayNotLock) {
			t.Errorf("got %v", err)
		}
		return
	}
	cmd := exec.Command("setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "prlimit", "--memlock=8388608:8388608",
		os.Args[0], "-test.run", "TestBoundedMemoryIsLeftAlone", "-test.v")
	cmd.Env = append(os.Environ(), boundEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestBounded") {
		t.Errorf("%v\n%s", err, out)
	}
}
