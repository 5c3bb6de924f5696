package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type state struct {
	Version int      `json:"version"`
	Words   []string `json:"words"`
}

// names returns what is in a directory.
func names(t *testing.T, dir string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return found
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.json")
	for _, words := range [][]string{{"a"}, {"b", "c"}, {}} {
		if err := Write(path, state{1, words}); err != nil {
			t.Fatal(err)
		}
		var back state
		if err := Read(path, 1<<10, &back); err != nil {
			t.Fatal(err)
		}
		if strings.Join(back.Words, " ") != strings.Join(words, " ") || back.Version != 1 {
			t.Errorf("read %+v, want %v", back, words)
		}
	}
	if found := names(t, dir); len(found) != 1 {
		t.Errorf("files left: %v", found)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	var s state
	if err := Read(path, 10, &s); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for content, want := range map[string]string{
		`{"version":`:                       "unexpected end",
		`{"version":1, "words": ["abcde"]}`: "more than 20 bytes",
		`[]`:                                "cannot unmarshal",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := Read(path, 20, &s)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q with the path", content, err, want)
		}
	}
}

// What cannot be written leaves what was there, and no further file.
func TestWhatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.json")
	if err := Write(path, state{Version: 1}); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, func() {}); err == nil {
		t.Error("a function was written")
	}
	if err := Write(filepath.Join(dir, "none", "state.json"), state{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(taken, state{}); err == nil {
		t.Error("a directory was replaced")
	}
	var back state
	if err := Read(path, 1<<10, &back); err != nil || back.Version != 1 {
		t.Errorf("%+v %v", back, err)
	}
	if found := names(t, dir); len(found) != 2 {
		t.Errorf("files left: %v", found)
	}
}
