package secret

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const good = "0123456789abcdef"

func write(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestATokenIsReadWithoutItsLineEnd(t *testing.T) {
	for _, content := range []string{good, good + "\n", "  " + good + "\r\n", strings.Repeat("x", MaxToken)} {
		got, err := ReadToken(write(t, content, 0o600))
		if err != nil || got != strings.TrimSpace(content) {
			t.Errorf("%.20q: %.20q, %v", content, got, err)
		}
	}
}

func TestWhatIsNoTokenIsRefusedAndNotShown(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ path, want string }{
		"no path":       {"", "is missing"},
		"no file":       {filepath.Join(t.TempDir(), "absent"), "no such file"},
		"a folder":      {t.TempDir(), "is not a file"},
		"a pipe":        {pipe, "is not a file"},
		"an empty file": {write(t, "", 0o600), "cannot be read"},
		"spaces":        {write(t, strings.Repeat(" ", 40), 0o600), "holds 0 characters"},
		"too short":     {write(t, good[1:], 0o600), "holds 15 characters"},
		"too long":      {write(t, strings.Repeat("x", MaxToken+1), 0o600), "holds 4097 characters"},
		"for a group":   {write(t, good, 0o640), "has mode 0640"},
		"for everybody": {write(t, good, 0o604), "has mode 0604"},
	} {
		got, err := ReadToken(tc.path)
		if err == nil || got != "" || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %q, %v", name, got, err)
			continue
		}
		if strings.Contains(err.Error(), good[:8]) {
			t.Errorf("%s: the error shows the token: %v", name, err)
		}
	}
}

func TestTokensAreEqualOrNot(t *testing.T) {
	for _, tc := range []struct {
		shown string
		want  bool
	}{{good, true}, {"", false}, {good[1:], false}, {good + " ", false}, {strings.ToUpper(good), false}} {
		if Equal(good, tc.shown) != tc.want {
			t.Errorf("%q", tc.shown)
		}
	}
}

// FuzzReadToken writes any bytes: a file is a token or refused, and what is refused is not shown.
func FuzzReadToken(f *testing.F) {
	for _, seed := range []string{good, "", "\n", good + "\n" + good, "\x00" + good, "\xff\xfe" + good, strings.Repeat("é", 20)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		token, err := ReadToken(path)
		if (err == nil) != (token != "") {
			t.Fatalf("%q, %v", token, err)
		}
		if err == nil && (len(token) < MinToken || len(token) > MaxToken || strings.TrimSpace(token) != token) {
			t.Fatalf("%q is no token", token)
		}
		if s := strings.TrimSpace(string(content)); err != nil && len(s) > 4 && strings.Contains(err.Error(), s) {
			t.Fatalf("the error shows what the file holds: %v", err)
		}
	})
}
