package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vigia/internal/testutil"
)

func inode(t *testing.T, name string) uint64 {
	t.Helper()
	ns, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	n, err := ns.Inode()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNamespacesAreMadeAndRemoved(t *testing.T) {
	testutil.RequireRoot(t)
	name := fmt.Sprintf("vigia-test-%d-made", os.Getpid())
	t.Cleanup(func() { _ = Delete(name) })
	before := inode(t, "")
	if err := Create(name); err != nil {
		t.Fatal(err)
	}
	if inode(t, name) == before || inode(t, "") != before {
		t.Error("it is the process's own, or that has changed")
	}
	var inside []net.Interface
	err := Do(name, func() (err error) { inside, err = net.Interfaces(); return err })
	if err != nil || len(inside) != 1 || inside[0].Name != "lo" {
		t.Errorf("%+v %v", inside, err)
	}
	if said := testutil.IP(t, "netns", "list"); !strings.Contains(said, name) {
		t.Errorf("ip-netns(8) does not know it: %s", said)
	}
	if err := Create(name); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), name) {
		t.Errorf("a second of the name: %v", err)
	}
	for range 2 { // the second time there is none
		if err := Delete(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(Dir, name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its file is there: %v", err)
	}
}

func TestAFileWithoutANamespaceIsRemoved(t *testing.T) {
	testutil.RequireRoot(t)
	name := fmt.Sprintf("vigia-test-%d-half", os.Getpid())
	path := filepath.Join(Dir, name)
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := Delete(name); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
}

func TestNamesThatAreNoneAreRefused(t *testing.T) {
	for _, name := range []string{"../x", "a/b", "."} {
		if Create(name) == nil || Delete(name) == nil {
			t.Errorf("%q was accepted", name)
		}
	}
}
