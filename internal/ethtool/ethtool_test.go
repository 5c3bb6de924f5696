package ethtool

import (
	"errors"
	"io"
	"os"
	"testing"
)

func TestNoSuchNamespace(t *testing.T) {
	if _, err := Dial("vigia-test-absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestASecondCloseClosesNothing: the number of a socket that is closed is the next file's.
func TestASecondCloseClosesNothing(t *testing.T) {
	c, err := Dial("")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	files := make([]*os.File, 4) // more than the connection had
	for i := range files {
		if files[i], err = os.Open(os.DevNull); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for _, f := range files {
		if _, err := f.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a file that was opened meanwhile is read: %v", err)
		}
		f.Close()
	}
}
