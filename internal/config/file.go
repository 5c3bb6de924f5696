package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// File is a YAML file that is read again when it has changed.
type File[T any, P interface {
	*T
	Validator
}] struct {
	path, absent string
	content      P
	stamp        time.Time // of the content
	size         int64
	err          error // of the last read
}

// NewFile returns the file at path, or nil without a path. What to do about a file that
// is not there is said by absent.
func NewFile[T any, P interface {
	*T
	Validator
}](path, absent string) *File[T, P] {
	if path == "" {
		return nil
	}
	return &File[T, P]{path: path, absent: absent}
}

// Read returns the content, and why it is old or missing: a file that turns bad keeps what
// it last said. The content is the same pointer for as long as the file is the same; nil
// before it was ever good. It must not be altered.
func (f *File[T, P]) Read() (P, error) {
	if f == nil {
		return nil, nil
	}
	info, err := os.Stat(f.path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = &absentError{f.path, f.absent}
		}
		f.stamp, f.err = time.Time{}, err
		return f.content, err
	}
	if info.ModTime().Equal(f.stamp) && info.Size() == f.size {
		return f.content, f.err
	}
	f.stamp, f.size = info.ModTime(), info.Size()
	content := P(new(T))
	if f.err = Load(f.path, content); f.err == nil {
		f.content = content
	}
	return f.content, f.err
}

// absentError says that a file is not there, and what to do about it.
type absentError struct{ path, fix string }

func (e *absentError) Error() string { return fmt.Sprintf("%s does not exist; %s", e.path, e.fix) }
func (e *absentError) Unwrap() error { return fs.ErrNotExist }
