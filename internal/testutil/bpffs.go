package testutil

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// NewBPFFS mounts a private bpffs for the test and returns a directory on it
// that does not exist yet. The mount is named after the process, as namespaces of
// tests are: the gate finds by that what a killed run left.
func NewBPFFS(t testing.TB) string {
	t.Helper()
	RequireRoot(t)
	dir := t.TempDir()
	if err := unix.Mount(fmt.Sprintf("vigia-test-%d", os.Getpid()), dir, "bpf", 0, ""); err != nil {
		t.Fatalf("mount bpffs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount bpffs: %v", err)
		}
	})
	return filepath.Join(dir, "vigia")
}
