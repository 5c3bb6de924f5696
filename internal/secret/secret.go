// Package secret reads bearer tokens from files.
package secret

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// Bounds of a token, in bytes.
const (
	MinToken = 16
	MaxToken = 4096
)

// ReadToken reads the bearer token of a file that nobody else may read or change. Errors never contain it.
func ReadToken(path string) (string, error) {
	if path == "" {
		return "", errors.New("is missing")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer would block
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("is not a file")
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("has mode %04o, so that others may read or change it", info.Mode().Perm())
	}
	buf := make([]byte, MaxToken+1)
	n, err := f.Read(buf)
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", err)
	}
	token := strings.TrimSpace(string(buf[:n]))
	if len(token) < MinToken || n > MaxToken {
		return "", fmt.Errorf("holds %d characters", len(token))
	}
	return token, nil
}

// Equal compares a token with one that a client shows, in a time that tells nothing about either.
func Equal(token, shown string) bool {
	a, b := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(shown))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
