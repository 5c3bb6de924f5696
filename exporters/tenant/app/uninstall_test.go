package app

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"vigia/internal/bpf/classify"
	"vigia/internal/node"
	"vigia/internal/testutil"
)

// programsOf returns the programs behind the pinned links of a folder.
func programsOf(t *testing.T, dir string) (ids []ebpf.ProgramID) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return nil // a map
		}
		defer l.Close()
		info, err := l.Info()
		if err == nil {
			ids = append(ids, info.Program)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// pinMap leaves a map in a folder, as vigia-enforcer does.
func pinMap(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Pin(filepath.Join(dir, "left")); err != nil {
		t.Fatal(err)
	}
}

// TestUninstallLeavesNothing: of vigia-enforcer neither.
func TestUninstallLeavesNothing(t *testing.T) {
	r := newRig(t, "")
	d := r.start()
	if code := d.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	ids := programsOf(t, r.pins)
	if len(ids) != 3 { // in, out, drops
		t.Fatalf("%d programs are attached, want 3", len(ids))
	}
	for _, dir := range []string{node.EnforcerPins(r.pins), classify.Dir(r.pins)} {
		pinMap(t, dir)
	}
	var stdout, stderr strings.Builder
	args := []string{"uninstall", "--pin-dir", r.pins, "--netns", r.node}
	if code := run(t.Context(), args, &stdout, &stderr); code != 0 || stdout.String() != "detached from 1 ports; removed "+r.pins+"\n" {
		t.Fatalf("exit code %d, %q, %q", code, stdout.String(), stderr.String())
	}
	if _, err := os.Stat(r.pins); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of pins is left: %v", err)
	}
	testutil.WaitFor(t, "the programs to go", func() bool {
		for _, id := range ids {
			if p, err := ebpf.NewProgramFromID(id); err == nil {
				p.Close()
				return false
			}
		}
		return true
	})
	stdout.Reset()
	if code := run(t.Context(), args, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), "nothing is installed") {
		t.Errorf("the second time: exit code %d, %q, %q", code, stdout.String(), stderr.String())
	}
}
