package netlink

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func message(kind uint16, seq uint32, body ...byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = append(append(b, 0, 0, 0, 0), body...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func number(n int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }

func TestPiecesAreCheckedBeforeTheyAreRead(t *testing.T) {
	const kind = 92
	good := message(kind, 7, 1, 2, 3, 4)
	for _, tc := range []struct {
		name    string
		bytes   []byte
		seen    int
		done    bool
		problem string
	}{
		{"one message", good, 1, false, ""},
		{"two and the end", append(append(append([]byte(nil), good...), good...), message(unix.NLMSG_DONE, 7, number(0)...)...), 2, true, ""},
		{"the end without a number", message(unix.NLMSG_DONE, 7), 0, true, ""},
		{"nothing to do", message(unix.NLMSG_NOOP, 7), 0, false, ""},
		{"of an earlier dump", message(kind, 6, 1, 2, 3, 4), 0, false, ""},
		{"its end", message(unix.NLMSG_DONE, 6, number(0)...), 0, false, ""},
		{"a refusal", message(unix.NLMSG_ERROR, 7, number(-int32(unix.EPERM))...), 0, true, "not permitted"},
		{"an end with an error", message(unix.NLMSG_DONE, 7, number(-int32(unix.EINVAL))...), 0, true, "invalid argument"},
		{"an acknowledgement", message(unix.NLMSG_ERROR, 7, number(0)...), 0, true, ""},
		{"half an error", message(unix.NLMSG_ERROR, 7)[:unix.SizeofNlMsghdr], 0, true, "cut short"},
		{"half a head", good[:10], 0, false, "cut short"},
		{"a length of nothing", make([]byte, 16), 0, false, "cut short"},
		{"a length past the end", good[:18], 0, false, "cut short"},
	} {
		seen := 0
		done, _, err := piece(tc.bytes, 7, func(got uint16, data []byte) error {
			seen++
			if got != kind || len(data) != 4 {
				t.Errorf("%s: kind %d, data %x", tc.name, got, data)
			}
			return nil
		})
		if seen != tc.seen || done != tc.done || (err == nil) != (tc.problem == "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
			t.Errorf("%s: %d messages, done %v, %v", tc.name, seen, done, err)
		}
	}
}

// refusal is an NLMSG_ERROR with what the kernel adds to it: the request's header, the
// rest of the request unless it is capped, and attributes.
func refusal(flags uint16, request []byte, attributes ...byte) []byte {
	body := number(-int32(unix.EINVAL))
	head := message(7, 1, request...)[:unix.SizeofNlMsghdr]
	body = append(body, head...)
	if flags&unix.NLM_F_CAPPED == 0 {
		body = append(body, request...)
		for len(body)%4 != 0 {
			body = append(body, 0)
		}
	}
	b := message(unix.NLMSG_ERROR, 7, append(body, attributes...)...)
	binary.NativeEndian.PutUint16(b[6:], flags)
	return b
}

func TestRefusalsCarryTheKernelsReason(t *testing.T) {
	const words = "NLA_F_NESTED is missing"
	e := NewEncoder(nil)
	e.Uint32(unix.NLMSGERR_ATTR_OFFS, 20)
	e.String(unix.NLMSGERR_ATTR_MSG, words)
	attributes, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	done := message(unix.NLMSG_DONE, 7, append(number(-int32(unix.EINVAL)), attributes...)...)
	binary.NativeEndian.PutUint16(done[6:], unix.NLM_F_ACK_TLVS)
	for name, tc := range map[string]struct {
		message []byte
		reason  string
	}{
		"capped":                    {refusal(unix.NLM_F_ACK_TLVS|unix.NLM_F_CAPPED, []byte("request"), attributes...), words},
		"with the request":          {refusal(unix.NLM_F_ACK_TLVS, []byte("request"), attributes...), words},
		"at the end of a dump":      {done, words},
		"attributes not announced":  {refusal(unix.NLM_F_CAPPED, nil, attributes...), ""},
		"announced and not there":   {refusal(unix.NLM_F_ACK_TLVS|unix.NLM_F_CAPPED, nil), ""},
		"cut short":                 {refusal(unix.NLM_F_ACK_TLVS|unix.NLM_F_CAPPED, nil, attributes[:14]...), ""},
		"without the header":        {messageWithFlags(unix.NLM_F_ACK_TLVS, number(-int32(unix.EINVAL))...), ""},
		"a header that is too long": {messageWithFlags(unix.NLM_F_ACK_TLVS, append(number(-int32(unix.EINVAL)), 0xff, 0xff, 0xff, 0xff)...), ""},
	} {
		over, _, err := piece(tc.message, 7, func(uint16, []byte) error { return nil })
		var refused *Refusal
		if !over || !errors.As(err, &refused) || !errors.Is(err, unix.EINVAL) || refused.Reason != tc.reason {
			t.Errorf("%s: over %v, %#v", name, over, err)
		} else if !strings.Contains(err.Error(), "invalid argument") || !strings.Contains(err.Error(), tc.reason) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func messageWithFlags(flags uint16, body ...byte) []byte {
	b := message(unix.NLMSG_ERROR, 7, body...)
	binary.NativeEndian.PutUint16(b[6:], flags)
	return b
}

func TestAPieceThatIsCutIsNoticed(t *testing.T) {
	small, large := message(1, 7, 1, 2, 3, 4), message(1, 7, make([]byte, 100)...)
	cut := append(append([]byte(nil), small...), large...)
	huge := append([]byte(nil), small...)
	binary.NativeEndian.PutUint32(huge, maxBuffer+1)
	for _, tc := range []struct {
		name string
		b    []byte
		size int
		want bool
	}{
		{"there was room", cut[:50], 64, false},
		{"the buffer is just full", cut, len(cut), false},
		{"the first message is cut", large[:64], 64, true},
		{"the second message is cut", cut[:64], 64, true},
		{"the second message's header is cut", cut[:30], 30, true},
		{"a length of nothing", make([]byte, 64), 64, false},
		{"a length that no message has", huge, len(huge), false},
	} {
		if got := truncated(tc.b, tc.size); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func FuzzPiece(f *testing.F) {
	f.Add(message(1, 7, 1, 2, 3))
	f.Add(message(unix.NLMSG_DONE, 7, number(-1)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		_, _, _ = piece(b, 7, func(_ uint16, data []byte) (err error) {
			n += unix.SizeofNlMsghdr + len(data)
			for range Attributes(data, 0, &err) {
				continue
			}
			return err
		})
		if n > len(b) {
			t.Errorf("%d bytes give messages of %d", len(b), n)
		}
	})
}
