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
