package unixctl

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigia/internal/testutil"
)

func TestARealDaemonAnswers(t *testing.T) {
	s := testutil.NewVSwitch(t, testutil.NewNetNS(t))
	socket, err := Socket(s.Dir, "ovs-vswitchd")
	if err != nil {
		t.Fatal(err)
	}
	text, err := Call(t.Context(), socket, "version")
	if err != nil || !strings.Contains(text, "ovs-vswitchd (Open vSwitch)") {
		t.Errorf("version: %q, %v", text, err)
	}
	if _, err := Call(t.Context(), socket, "no/such/command"); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no/such/command") {
		t.Errorf("unknown command: %v", err)
	}
	if _, err := Call(t.Context(), socket, "coverage/read-counter", "flow_extract"); err != nil {
		t.Errorf("with an argument: %v", err)
	}
}

func TestSocketNamesWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	if _, err := Socket(dir, "ovs-vswitchd"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no pid file: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ovs-vswitchd.pid"), []byte("../../x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Socket(dir, "ovs-vswitchd"); err == nil || !strings.Contains(err.Error(), "holds no process id") {
		t.Errorf("a pid file of text: %v", err)
	}
}

func TestBadAnswersAreRefused(t *testing.T) {
	for answer, want := range map[string]string{
		`{"id":0}`:       "neither result nor error",
		`{"result":`:     "read the answer",
		`{"result":5}`:   "read the answer",
		`{"error":"no"}`: "refuses: no",
	} {
		if _, err := parse(strings.NewReader(answer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", answer, err, want)
		}
	}
	if _, err := parse(strings.NewReader(`{"result":"` + strings.Repeat("x", maxAnswer))); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("an endless answer: %v", err)
	}
}

func TestASilentDaemonIsLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Call(ctx, path, "version"); err == nil {
		t.Error("silence was taken for an answer")
	}
}
