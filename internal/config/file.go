package config

import (
	"crypto/sha256"
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
	info         fs.FileInfo // of the file that was read last, nil if there was none
	young        bool        // it had been changed just before it was read
	sum          [sha256.Size]byte
	err          error // of the last read
}

// youth is for how long a file may change once more without another time stamp or size: a file system's clock ticks
// every few milliseconds, a simple one's every two seconds.
const youth = 2 * time.Second

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
		f.info, f.err = nil, err
		return f.content, err
	}
	same := f.same(info)
	if same && !f.young {
		return f.content, f.err
	}
	f.info, f.young = info, time.Since(info.ModTime()).Abs() < youth
	raw, err := read(f.path)
	if err != nil {
		f.info, f.err = nil, fmt.Errorf("read configuration: %w", err) // which may pass without a change of the file
		return f.content, f.err
	}
	sum := sha256.Sum256(raw)
	if same && sum == f.sum {
		return f.content, f.err
	}
	f.sum = sum
	content := P(new(T))
	if f.err = Parse(f.path, raw, content); f.err == nil {
		f.content = content
	}
	return f.content, f.err
}

// same tells whether a file looks like the one that was read last.
func (f *File[T, P]) same(info fs.FileInfo) bool {
	return f.info != nil && os.SameFile(f.info, info) && info.ModTime().Equal(f.info.ModTime()) && info.Size() == f.info.Size()
}

// absentError says that a file is not there, and what to do about it.
type absentError struct{ path, fix string }

func (e *absentError) Error() string { return fmt.Sprintf("%s does not exist; %s", e.path, e.fix) }
func (e *absentError) Unwrap() error { return fs.ErrNotExist }
