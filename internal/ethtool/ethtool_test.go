package ethtool

import (
	"errors"
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
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
