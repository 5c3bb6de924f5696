package daemon

import (
	"errors"
	"strings"
	"testing"
)

type closer struct {
	name   string
	err    error
	closed *[]string
}

func (c closer) Close() error {
	*c.closed = append(*c.closed, c.name)
	return c.err
}

func TestTheNewestIsClosedFirstAndAllAre(t *testing.T) {
	var closed []string
	var all Closers
	all.Add(closer{"first", errors.New("first broke"), &closed})
	all.Add(closer{"second", nil, &closed})
	all.Add(closer{"third", errors.New("third broke"), &closed})
	err := all.Close()
	if err == nil || !strings.Contains(err.Error(), "first broke") || !strings.Contains(err.Error(), "third broke") {
		t.Errorf("errors are lost: %v", err)
	}
	if got := strings.Join(closed, " "); got != "third second first" {
		t.Errorf("closed in the order %s", got)
	}
	if err := all.Close(); err != nil || len(closed) != 3 {
		t.Errorf("closed again: %v, %v", closed, err)
	}
}
