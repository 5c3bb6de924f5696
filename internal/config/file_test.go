package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/internal/testutil"
)

func TestAFileIsReadAgainWhenItChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	f := NewFile[sample](path, "write it")
	var written time.Time
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		written = written.Add(time.Second) // a clock that is coarse may have the same time twice
		if err := os.Chtimes(path, time.Time{}, time.Unix(1000, 0).Add(time.Duration(written.Second())*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if content, err := f.Read(); content != nil || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "write it") {
		t.Errorf("a file that is not there: %v, %v", content, err)
	}
	write("name: one\n")
	first, err := f.Read()
	if err != nil || first.Name != "one" {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := f.Read(); again != first || err != nil {
		t.Error("the same file is another content")
	}
	write("name: two\n")
	second, err := f.Read()
	if err != nil || second.Name != "two" || first.Name != "one" {
		t.Errorf("after a change: %+v, %v; what was handed out is %+v", second, err, first)
	}
	for _, bad := range []string{"name: [\n", "rate: 1bit\n", ""} {
		write(bad)
		for range 2 { // the error stays as long as the file
			if kept, err := f.Read(); err == nil || kept != second {
				t.Errorf("%q: %+v, %v", bad, kept, err)
			}
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if kept, err := f.Read(); !errors.Is(err, fs.ErrNotExist) || kept != second {
		t.Errorf("a file that went: %+v, %v", kept, err)
	}
	write("name: three\n")
	if third, err := f.Read(); err != nil || third.Name != "three" {
		t.Errorf("a file that came back: %+v, %v", third, err)
	}
}

// sameStamp writes three contents of one size, all of one time, and returns what is read of each.
func sameStamp(t *testing.T, path string, stamp time.Time, write func(content string) error) (names []string) {
	t.Helper()
	f := NewFile[sample](path, "write it")
	for _, name := range []string{"one", "two", "six"} {
		if err := errors.Join(write("name: "+name+"\n"), os.Chtimes(path, time.Time{}, stamp)); err != nil {
			t.Fatal(err)
		}
		got, err := f.Read()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, got.Name)
		if again, err := f.Read(); again != got || err != nil {
			t.Errorf("the same file is another content, %v", err)
		}
	}
	return names
}

// TestAFileOfTheSameTimeAndSizeIsReadAgain has changes that neither of the two tells of: by another file, or in place within
// a tick of a file system's clock. What is changed later in place nobody can tell without reading it all the time.
func TestAFileOfTheSameTimeAndSizeIsReadAgain(t *testing.T) {
	dir, want := t.TempDir(), []string{"one", "two", "six"}
	path, other := filepath.Join(dir, "f.yaml"), filepath.Join(dir, "other.yaml")
	replace := func(content string) error {
		return errors.Join(os.WriteFile(other, []byte(content), 0o600), os.Rename(other, path))
	}
	for _, age := range []time.Duration{0, time.Hour, -time.Hour} {
		if got := sameStamp(t, path, time.Now().Add(-age), replace); !slices.Equal(got, want) {
			t.Errorf("replaced, %s old: %q", age, got)
		}
	}
	testutil.WaitFor(t, "a file that stays young", func() bool {
		stamp := time.Now()
		got := sameStamp(t, path, stamp, func(content string) error { return os.WriteFile(path, []byte(content), 0o600) })
		if time.Since(stamp) > youth {
			return false
		}
		if !slices.Equal(got, want) {
			t.Errorf("in place: %q", got)
		}
		return true
	})
}

// TestAFileThatCannotBeReadForAMoment is read once it can be: nothing of the file itself changes with that.
func TestAFileThatCannotBeReadForAMoment(t *testing.T) {
	testutil.RequireRoot(t)
	folder := t.TempDir()
	path, old := filepath.Join(folder, "f.yaml"), time.Now().Add(-time.Hour)
	if err := errors.Join(os.Chmod(filepath.Dir(folder), 0o755), os.WriteFile(path, []byte("name: one\n"), 0o600), os.Chtimes(path, old, old)); err != nil {
		t.Fatal(err)
	}
	f := NewFile[sample](path, "write it")
	runtime.LockOSThread() // whose rights to files are taken away and given back
	defer runtime.UnlockOSThread()
	setUser := func(uid int) {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0); errno != 0 {
			t.Fatal(errno)
		}
	}
	setUser(65534)
	_, err := f.Read()
	setUser(0)
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "read configuration") {
		t.Fatalf("a file of root's is read by another: %v", err)
	}
	if content, err := f.Read(); err != nil || content.Name != "one" {
		t.Errorf("after that: %+v, %v", content, err)
	}
}

func TestNoFileSaysNothing(t *testing.T) {
	if content, err := NewFile[sample]("", "").Read(); content != nil || err != nil {
		t.Errorf("%v, %v", content, err)
	}
}
