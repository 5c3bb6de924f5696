package daemon

import (
	"errors"
	"io"
	"slices"
)

// Closers are what a service has opened so far. The zero value is none.
type Closers []io.Closer

// Add adds what is to be closed before all that was added earlier.
func (c *Closers) Add(opened io.Closer) { *c = append(*c, opened) }

// Close closes all of them, the newest first, and forgets them.
func (c *Closers) Close() error {
	var errs []error
	for _, opened := range slices.Backward(*c) {
		errs = append(errs, opened.Close())
	}
	*c = nil
	return errors.Join(errs...)
}
