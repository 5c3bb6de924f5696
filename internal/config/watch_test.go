package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vigia/internal/testutil"
)

// told waits until a watch tells of a change.
func told(t *testing.T, w *Watch, what string) {
	t.Helper()
	testutil.WaitFor(t, what+" to be told", func() bool { return changed(w) })
}

func changed(w *Watch) bool {
	select {
	case <-w.Changes():
		return true
	default:
		return false
	}
}

// watching returns a watch of a file, and a folder with nothing but what the test makes.
func watching(t *testing.T) (w *Watch, path string) {
	t.Helper()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w, path = NewWatch(), filepath.Join(folder, "f.yaml")
	if w.file == nil {
		t.Skip("the kernel has no inotify instance left: fs.inotify.max_user_instances")
	}
	t.Cleanup(func() { w.Close() })
	return w, path
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEachChangeOfAFileIsTold(t *testing.T) {
	w, path := watching(t)
	other := filepath.Join(filepath.Dir(path), "other")
	if !w.On(path) {
		t.Fatal("the kernel does not tell")
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"a new file", func() error { return os.WriteFile(path, nil, 0o600) }},
		{"a file written again", func() error { return os.WriteFile(path, []byte("x"), 0o600) }},
		{"a file in its place", func() error { return errors.Join(os.WriteFile(other, nil, 0o600), os.Rename(other, path)) }},
		{"a file that is gone", func() error { return os.Remove(path) }},
	} {
		for changed(w) { // what is left of the step before: writing is several events
			time.Sleep(50 * time.Millisecond)
		}
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		told(t, w, step.what)
		if !w.On(path) {
			t.Errorf("%s: nothing is told any more", step.what)
		}
	}
}

// TestOtherFilesOfTheFolderAreNotTold reads what they cause before a change of the file itself.
func TestOtherFilesOfTheFolderAreNotTold(t *testing.T) {
	w, path := watching(t)
	write(t, path)
	if !w.On(path) {
		t.Fatal("the kernel does not tell")
	}
	for range 100 {
		write(t, filepath.Join(filepath.Dir(path), "f.yaml.new"))
	}
	event := func(name string) []byte {
		b := make([]byte, 32)
		b[0], b[4], b[12] = byte(w.id), 8, 16 // IN_CLOSE_WRITE of a name in 16 bytes
		copy(b[16:], name)
		return b
	}
	for name, want := range map[string]bool{"f.yaml": true, "f.yaml.new": false, "": false} {
		if got := w.concerned(append(event("other"), event(name)...)); got != want {
			t.Errorf("%q: told %t, want %t", name, got, want)
		}
	}
	if b := event("f.yaml"); w.concerned(b[:10]) || w.concerned(b[:18]) {
		t.Error("half an event tells of a change")
	}
	write(t, path)
	told(t, w, "its own change")
}

func TestAFolderThatGoesAndComesBack(t *testing.T) {
	w, path := watching(t)
	path = filepath.Join(filepath.Dir(path), "folder", "f.yaml")
	if w.On(path) {
		t.Error("a folder that does not exist is watched")
	}
	remove, rename := os.RemoveAll, func(folder string) error { return os.Rename(folder, folder+".old") }
	for _, end := range []func(folder string) error{remove, rename, remove} {
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if !w.On(path) {
			t.Fatal("the kernel does not tell")
		}
		write(t, path)
		told(t, w, "a new file")
		if err := end(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		testutil.WaitFor(t, "the end of the folder", func() bool { return !w.On(path) })
	}
}

func TestWhatLinksLeadToIsNotToldOf(t *testing.T) {
	w, path := watching(t)
	real := filepath.Join(filepath.Dir(path), "real")
	if err := errors.Join(os.Mkdir(real, 0o700), os.Symlink("real", filepath.Join(filepath.Dir(path), "link")), os.Symlink("real/f.yaml", path)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(real, "f.yaml"))
	if w.On(path) || w.On(filepath.Join(filepath.Dir(path), "link", "f.yaml")) {
		t.Error("the kernel tells of one folder alone")
	}
	if !w.On(filepath.Join(real, "f.yaml")) {
		t.Error("the file itself is not watched")
	}
}

func TestAnotherFileInItsPlace(t *testing.T) {
	w, path := watching(t)
	other := filepath.Join(filepath.Dir(path), "other.yaml")
	if !w.On(path) || !w.On(other) {
		t.Fatal("the kernel does not tell")
	}
	write(t, path)
	write(t, other)
	told(t, w, "the other file")
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if (&Watch{}).On(path) {
		t.Error("without inotify somebody tells")
	}
}
