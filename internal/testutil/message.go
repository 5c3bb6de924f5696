package testutil

import (
	"encoding/binary"
	"encoding/hex"
	"testing"
)

// FromHeaders returns a netlink message that a C compiler laid out from the kernel's
// headers, given in hexadecimal. Such messages are little-endian: on a machine that is
// not, the test is skipped.
func FromHeaders(t testing.TB, message string) []byte {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the message is little-endian, this machine is not")
	}
	b, err := hex.DecodeString(message)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
