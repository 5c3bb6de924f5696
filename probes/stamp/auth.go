package stamp

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"strings"
)

const (
	// hmacSize is HMAC-SHA-256 truncated to 128 bits (RFC 8762 section 4.4).
	hmacSize = 16
	// protectedSize is what the HMAC of an authenticated base packet covers: its
	// first six blocks (RFC 8762 sections 4.2.2 and 4.3.2).
	protectedSize = AuthenticatedSize - hmacSize
	// sequenceSize is the field that the HMAC TLV covers beside the TLVs before
	// it (RFC 8972 section 4.8).
	sequenceSize = 4

	minKey = 16 // bytes
	maxKey = 64
	// MaxKeys bounds how many keys an incoming packet is tried with.
	MaxKeys    = 4
	maxKeyFile = 4096
)

func (m Mode) hmacSize() int {
	if m == Authenticated {
		return hmacSize
	}
	return 0
}

// Keys are the secrets of a key file, comparable and never printed.
type Keys string

// String hides the keys.
func (k Keys) String() string {
	if k == "" {
		return "no keys"
	}
	return fmt.Sprintf("%d hidden keys", 1+strings.Count(string(k), "\n"))
}

// GoString hides the keys.
func (k Keys) GoString() string { return k.String() }

// Mode returns the mode that the keys ask for: none means unauthenticated.
func (k Keys) Mode() Mode {
	if k == "" {
		return Unauthenticated
	}
	return Authenticated
}

// LoadKeys reads a key file: one key in hexadecimal per line, at least 16 bytes;
// empty lines and those that begin with # are comments. The first key signs, all
// of them verify, so that keys are replaced without a gap.
func LoadKeys(path string) (Keys, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read key file: %w", err)
	}
	switch {
	case !st.Mode().IsRegular():
		return "", fmt.Errorf("key file %s is not a regular file", path)
	case st.Mode().Perm()&(fs.ModePerm&0o037) != 0:
		return "", fmt.Errorf("key file %s can be read or written by others (mode %04o); chmod 0600 it", path, st.Mode().Perm())
	case st.Size() > maxKeyFile:
		return "", fmt.Errorf("key file %s has %d bytes; at most %d", path, st.Size(), maxKeyFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read key file: %w", err)
	}
	k, err := ParseKeys(raw)
	if err != nil {
		return "", fmt.Errorf("key file %s: %w", path, err)
	}
	return k, nil
}

// ParseKeys reads the content of a key file. Errors never quote it.
func ParseKeys(raw []byte) (Keys, error) {
	var keys []string
	for i, line := range bytes.Split(raw, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key := make([]byte, hex.DecodedLen(len(line)))
		if _, err := hex.Decode(key, line); err != nil {
			return "", fmt.Errorf("line %d is not hexadecimal; make a key with: openssl rand -hex 32", i+1)
		}
		if len(key) < minKey || len(key) > maxKey {
			return "", fmt.Errorf("line %d has %d bytes; write %d to %d", i+1, len(key), minKey, maxKey)
		}
		keys = append(keys, string(bytes.ToLower(line)))
	}
	switch {
	case len(keys) == 0:
		return "", errors.New("holds no key; make one with: openssl rand -hex 32")
	case len(keys) > MaxKeys:
		return "", fmt.Errorf("holds %d keys; at most %d", len(keys), MaxKeys)
	}
	return Keys(strings.Join(keys, "\n")), nil
}

// Keyring signs and verifies. It is not safe for concurrent use.
type Keyring struct {
	macs []hash.Hash
	sum  [sha256.Size]byte
}

// Keyring returns a keyring of the keys, nil when there are none.
func (k Keys) Keyring() *Keyring {
	if k == "" {
		return nil
	}
	r := &Keyring{}
	for line := range strings.SplitSeq(string(k), "\n") {
		key, _ := hex.DecodeString(line) // ParseKeys has checked it
		r.macs = append(r.macs, hmac.New(sha256.New, key))
	}
	return r
}

// digest returns the truncated HMAC of the texts, valid until the next call.
func (r *Keyring) digest(key int, texts ...[]byte) []byte {
	mac := r.macs[key]
	mac.Reset()
	for _, t := range texts {
		mac.Write(t)
	}
	return mac.Sum(r.sum[:0])[:hmacSize]
}

// Sign writes the HMAC of the base packet and, where b has one, of the HMAC TLV.
// It comes after everything else is written. key is 0, or what Verify returned.
func (r *Keyring) Sign(b []byte, key int) {
	copy(b[protectedSize:AuthenticatedSize], r.digest(key, b[:protectedSize]))
	if at, ok := hmacTLV(b); ok {
		value := TLV(b[at : at+HMACSize]).Value()
		copy(value, r.digest(key, b[:sequenceSize], b[AuthenticatedSize:at]))
	}
}

// Verify checks the HMAC of the base packet; key is the number of the key that
// made it. ok is false when none did.
func (r *Keyring) Verify(b []byte) (key int, ok bool) {
	if len(b) < AuthenticatedSize {
		return 0, false
	}
	for key := range r.macs {
		if subtle.ConstantTimeCompare(r.digest(key, b[:protectedSize]), b[protectedSize:AuthenticatedSize]) == 1 {
			return key, true
		}
	}
	return 0, false
}

// VerifyTLVs checks the TLVs of an authenticated packet with the key of its base
// packet: an HMAC TLV must follow all but padding, unless there is nothing but one
// padding (RFC 8972 section 4.8).
func (r *Keyring) VerifyTLVs(b []byte, key int) bool {
	at, ok := hmacTLV(b)
	if !ok {
		return onlyPadding(b)
	}
	value := TLV(b[at : at+HMACSize]).Value()
	return subtle.ConstantTimeCompare(r.digest(key, b[:sequenceSize], b[AuthenticatedSize:at]), value) == 1
}

// hmacTLV returns where the HMAC TLV of an authenticated packet is. ok is false
// when there is none, or it is not where it must be.
func hmacTLV(b []byte) (at int, ok bool) {
	next := AuthenticatedSize
	tlvs := Authenticated.TLVs(b)
	for t, whole := tlvs.Next(); t != nil; t, whole = tlvs.Next() {
		switch {
		case ok && t.Type() != TypeExtraPadding, !whole:
			return 0, false
		case t.Type() == TypeHMAC:
			if len(t) != HMACSize {
				return 0, false
			}
			at, ok = next, true
		}
		next += len(t)
	}
	return at, ok && !tlvs.More()
}

// onlyPadding reports whether the packet has no TLV, or one of padding alone.
func onlyPadding(b []byte) bool {
	tlvs := Authenticated.TLVs(b)
	t, whole := tlvs.Next()
	return t == nil || whole && t.Type() == TypeExtraPadding && !tlvs.More()
}
