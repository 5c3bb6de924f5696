package icmp

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// The checksum of an echo request as ping(8) sends it, taken from the wire, and of
// odd and empty packets worked out by hand (RFC 1071).
func TestChecksum(t *testing.T) {
	for _, c := range []struct {
		packet string
		want   uint16
	}{
		{"0800000000010001", 0xf7fd},
		{"080000000001000161", 0x96fd},
		{"0001f203f4f5f6f7", 0x220d}, // the example of RFC 1071 section 3
		{"00", 0xffff},
		{"", 0xffff},
		{"ffffffff", 0},
	} {
		packet, err := hex.DecodeString(c.packet)
		if err != nil {
			t.Fatal(err)
		}
		if got := Checksum(packet); got != c.want {
			t.Errorf("%s: %#04x, want %#04x", c.packet, got, c.want)
		}
	}
}

func reply(request []byte, v6 bool) []byte {
	out := bytes.Clone(request)
	out[0] = echoReply
	if v6 {
		out[0] = echoReplyV6
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, size := range []int{MinSize, MinSize + 1, 64, 1473, MaxSize} {
			request := New(size, v6, uint64(size))
			want := Probe{ID: 0xabcd, SSID: 7, Sequence: 1<<17 + 5, Nonce: 0x0123456789abcdef}
			want.Put(request)
			if len(request) != HeaderSize+size {
				t.Fatalf("size %d: packet of %d bytes", size, len(request))
			}
			if _, ok := ParseReply(request, v6); ok {
				t.Error("a request passes for a reply")
			}
			answer := reply(request, v6)
			if got, ok := ParseReply(answer, v6); !ok || got != want {
				t.Errorf("v6=%v size %d: %+v, %v", v6, size, got, ok)
			}
			if !Intact(request, answer) || size > MinSize && Intact(request, answer[:len(answer)-1]) {
				t.Errorf("size %d: the padding is misjudged", size)
			}
			if size > MinSize {
				answer[len(answer)-1] ^= 1
				if Intact(request, answer) {
					t.Errorf("size %d: damage is not seen", size)
				}
			}
			if _, ok := ParseReply(answer, !v6); ok {
				t.Error("a reply passes for one of the other family")
			}
		}
	}
}

// A whole packet sums up to zero, whatever is in it.
func TestPutChecksums(t *testing.T) {
	packet := New(33, false, 99)
	for sequence := range uint32(300) {
		Probe{ID: 1, SSID: uint16(sequence), Sequence: sequence * 65521, Nonce: uint64(sequence) << 40}.Put(packet)
		if sum := Checksum(packet); sum != 0 {
			t.Fatalf("sequence %d: the packet sums up to %#04x", sequence, sum)
		}
	}
}

func TestStripIPv4(t *testing.T) {
	header := append([]byte{0x46}, make([]byte, 23)...) // 24 bytes: one option
	if got := StripIPv4(append(header, 1, 2, 3)); !bytes.Equal(got, []byte{1, 2, 3}) {
		t.Errorf("got %v", got)
	}
	for _, bad := range [][]byte{nil, header[:19], append([]byte{0x65}, header[1:]...), append([]byte{0x44}, header[1:]...), header[:22]} {
		if got := StripIPv4(bad); len(got) != 0 {
			t.Errorf("%v gives %v", bad, got)
		}
	}
}

func FuzzParseReply(f *testing.F) {
	request := New(64, false, 1)
	Probe{ID: 1}.Put(request)
	f.Add(reply(request, false), false)
	f.Add([]byte{0x45, 0}, true)
	f.Fuzz(func(t *testing.T, packet []byte, v6 bool) {
		ID(packet)
		rest := StripIPv4(packet)
		if len(rest) > len(packet) {
			t.Fatal("longer than it was")
		}
		if _, ok := ParseReply(packet, v6); ok && len(packet) < HeaderSize+MinSize {
			t.Fatal("accepted a short packet")
		}
		Intact(request, packet)
	})
}
