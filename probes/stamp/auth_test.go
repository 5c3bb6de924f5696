package stamp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const vectorKey = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

// The packets of figures 4 and 7 of RFC 8762 with the session identifier of RFC
// 8972, and the TLVs of figures 18 and 19 of RFC 8972. The digests come from
// Python's hmac module.
const (
	secureRequestVector = `
		01020304 000000000000000000000000
		e8f0f5c1 40001000 8c01 beef
		0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
		cd8194707f07fe6ca6c2ec578b113854`
	secureTLVsVector = `
		80070010 00000000000000000000000000000000
		80080010 dbf541fdd7d53fe27f0bff84d6037bf2`
	secureReplyVector = `
		00000007 000000000000000000000000
		e8f0f5c1 80002000 9980 beef 00000000
		e8f0f5c1 60001800 0000000000000000
		01020304 000000000000000000000000
		e8f0f5c1 40001000 8c01 000000000000
		3f 000000000000000000000000000000
		2f50a2bb127ee80e13f69136a8a5a69a`
)

func keyring(t testing.TB, lines ...string) *Keyring {
	t.Helper()
	k, err := ParseKeys([]byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return k.Keyring()
}

func TestAuthenticatedRequestVector(t *testing.T) {
	raw := unhex(t, secureRequestVector+secureTLVsVector)
	keys := keyring(t, vectorKey)
	key, ok := keys.Verify(raw)
	if !ok || key != 0 || !keys.VerifyTLVs(raw, key) {
		t.Fatalf("key %d, packet %v", key, ok)
	}
	want := Request{Sequence: 0x01020304, Timestamp: 0xe8f0f5c1_40001000, ErrorEstimate: 0x8c01, SSID: 0xbeef}
	if got, ok := Authenticated.ParseRequest(raw); !ok || got != want {
		t.Errorf("%+v %v, want %+v", got, ok, want)
	}
	l, ok := NewLayout(Authenticated, len(raw))
	if !ok {
		t.Fatal("no layout")
	}
	b := l.New(1)
	Authenticated.PutRequest(b, want)
	keys.Sign(b, 0)
	if !bytes.Equal(b, raw) {
		t.Errorf("wrote\n%x\nwant\n%x", b, raw)
	}
}

func TestAuthenticatedReplyVector(t *testing.T) {
	raw := unhex(t, secureReplyVector)
	keys := keyring(t, vectorKey)
	if _, ok := keys.Verify(raw); !ok || !keys.VerifyTLVs(raw, 0) {
		t.Fatal("not verified")
	}
	want := Reply{
		Sequence: 7, Timestamp: 0xe8f0f5c1_80002000, ErrorEstimate: 0x9980, SSID: 0xbeef,
		ReceiveTimestamp: 0xe8f0f5c1_60001800, SenderSequence: 0x01020304, SenderTimestamp: 0xe8f0f5c1_40001000,
		SenderErrorEstimate: 0x8c01, SenderTTL: 63,
	}
	if got, ok := Authenticated.ParseReply(raw); !ok || got != want {
		t.Errorf("%+v %v, want %+v", got, ok, want)
	}
	b := bytes.Repeat([]byte{0xff}, AuthenticatedSize)
	Authenticated.PutReply(b, want)
	keys.Sign(b, 0)
	if !bytes.Equal(b, raw) {
		t.Errorf("wrote\n%x\nwant\n%x", b, raw)
	}
}

// TestEveryProtectedBitCounts flips each bit of a packet: that of the base packet
// fails it, that of the sequence number and the TLVs fails the TLVs.
func TestEveryProtectedBitCounts(t *testing.T) {
	keys := keyring(t, vectorKey)
	raw := unhex(t, secureRequestVector+secureTLVsVector)
	for i := range len(raw) * 8 {
		b := bytes.Clone(raw)
		b[i/8] ^= 1 << (i % 8)
		_, base := keys.Verify(b)
		tlvs := keys.VerifyTLVs(b, 0)
		if base != (i/8 >= AuthenticatedSize) {
			t.Errorf("bit %d: base packet verified %v", i, base)
		}
		ownFlags := AuthenticatedSize + FollowUpSize // are not protected
		if i/8 >= AuthenticatedSize && i/8 != ownFlags && tlvs || i/8 < sequenceSize && tlvs {
			t.Errorf("bit %d: TLVs verified", i)
		}
	}
}

func TestPositionOfHMAC(t *testing.T) {
	keys := keyring(t, vectorKey)
	base := unhex(t, secureRequestVector)
	const followUp, mac, padding = "80070010 00000000000000000000000000000000 ", "80080010 00000000000000000000000000000000 ", "80010002 aabb "
	for _, tc := range []struct {
		name, tlvs string
		ok         bool
	}{
		{"nothing", "", true},
		{"padding alone", padding, true},
		{"two paddings alone", padding + padding, false},
		{"follow-up without", followUp, false},
		{"last", followUp + mac, true},
		{"before padding", followUp + mac + padding + padding, true},
		{"before another", mac + followUp, false},
		{"twice", followUp + mac + mac, false},
		{"alone", mac, true},
		{"too short", followUp + "8008000c 000000000000000000000000", false},
		{"cut off", followUp + "80080010 0000", false},
		{"bytes behind", followUp + mac + "ff", false},
		{"behind too many", strings.Repeat("80630000 ", MaxTLVs) + mac, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := append(bytes.Clone(base), unhex(t, tc.tlvs)...)
			keys.Sign(b, 0)
			if _, ok := keys.Verify(b); !ok {
				t.Error("the base packet does not verify")
			}
			if got := keys.VerifyTLVs(b, 0); got != tc.ok {
				t.Errorf("verified %v, want %v", got, tc.ok)
			}
		})
	}
}

func TestRotation(t *testing.T) {
	old, next := strings.Repeat("11", 32), strings.Repeat("22", 32)
	packet := func() []byte {
		l, _ := NewLayout(Authenticated, 160)
		return l.New(3)
	}
	both := keyring(t, "# being replaced", next, "", old)
	for key, signer := range []*Keyring{keyring(t, next), keyring(t, old)} {
		b := packet()
		signer.Sign(b, 0)
		got, ok := both.Verify(b)
		if !ok || got != key || !both.VerifyTLVs(b, key) || both.VerifyTLVs(b, 1-key) {
			t.Errorf("key %d: %d %v", key, got, ok)
		}
		both.Sign(b, got)
		if _, ok := signer.Verify(b); !ok {
			t.Errorf("key %d: the answer is not signed with the key of the question", key)
		}
	}
	b := packet()
	keyring(t, strings.Repeat("33", 32)).Sign(b, 0)
	if _, ok := both.Verify(b); ok {
		t.Error("a stranger's key is accepted")
	}
	for _, size := range []int{0, 44, AuthenticatedSize - 1} {
		if _, ok := both.Verify(b[:size]); ok {
			t.Errorf("%d bytes are accepted", size)
		}
	}
}

func TestKeyFiles(t *testing.T) {
	write := func(t *testing.T, content string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), "stamp.key")
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	k, err := LoadKeys(write(t, "# site key\n\n"+strings.ToUpper(vectorKey)+"\r\n", 0o600))
	if err != nil || k.Mode() != Authenticated {
		t.Fatalf("%v %v", k, err)
	}
	same, _ := ParseKeys([]byte(vectorKey))
	if k != same {
		t.Error("the same keys do not compare equal")
	}
	for _, shown := range []string{fmt.Sprint(k), fmt.Sprintf("%+v", struct{ K Keys }{k}), fmt.Sprintf("%#v", k), k.GoString()} {
		if strings.Contains(shown, vectorKey[:8]) || !strings.Contains(shown, "1 hidden") {
			t.Errorf("printed as %s", shown)
		}
	}
	if Keys("").Mode() != Unauthenticated || Keys("").Keyring() != nil || Keys("").String() != "no keys" {
		t.Error("no keys are not no keys")
	}
	for _, tc := range []struct {
		name, content string
		mode          os.FileMode
		want          string
	}{
		{"empty", "# nothing\n", 0o600, "holds no key; make one with: openssl rand -hex 32"},
		{"not hexadecimal", "secret-" + vectorKey, 0o600, "line 1 is not hexadecimal"},
		{"short", "\nabcdef", 0o600, "line 2 has 3 bytes; write 16 to 64"},
		{"long", strings.Repeat("ab", 65), 0o600, "line 1 has 65 bytes; write 16 to 64"},
		{"too many", strings.Repeat(vectorKey+"\n", MaxKeys+1), 0o600, "holds 5 keys; at most 4"},
		{"open to the world", vectorKey, 0o644, "can be read or written by others (mode 0644); chmod 0600 it"},
		{"huge", strings.Repeat("#", maxKeyFile+1), 0o600, "at most 4096"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := LoadKeys(write(t, tc.content, tc.mode))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), vectorKey[:8]) {
				t.Errorf("the error shows the key: %v", err)
			}
		})
	}
	if _, err := LoadKeys(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file is accepted")
	}
	if _, err := LoadKeys(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
}

// The other TLVs as their figures in RFC 8972 have them (14: class of service, 15:
// direct measurement), and ours.
func TestTLVVectors(t *testing.T) {
	check := func(name, raw string, put func(TLV), parse func(TLV) (any, bool), want any) {
		b := unhex(t, raw)
		if got, ok := parse(b); !ok || got != want {
			t.Errorf("%s: %+v %v, want %+v", name, got, ok, want)
		}
		if _, ok := parse(b[:len(b)-1]); ok {
			t.Errorf("%s: a short value is accepted", name)
		}
		again := bytes.Clone(b)
		for i := range again[TLVHeaderSize:] {
			again[TLVHeaderSize+i] = 0xff
		}
		put(again)
		if !bytes.Equal(b, again) {
			t.Errorf("%s: wrote %s, want %s", name, hex.EncodeToString(again), hex.EncodeToString(b))
		}
	}
	service := ClassOfService{Wanted: 46, Received: 10, ECN: 2, Refused: true}
	check("class of service", "0004 0004 b8a9 0000", service.Put, // 101110 001010 10 01
		func(t TLV) (any, bool) { return ParseClassOfService(t) }, service)
	measurement := DirectMeasurement{SenderTX: 0x01020304, ReflectorRX: 0x05060708, ReflectorTX: 0x090a0b0c}
	check("direct measurement", "0005 000c 01020304 05060708 090a0b0c", measurement.Put,
		func(t TLV) (any, bool) { return ParseDirectMeasurement(t) }, measurement)
	window := ReceivedWindow{Highest: 0x0a0b0c0d, Mask: 0x8000000000000001, Overflowed: 3}
	check("received window", "00fc 0010 0a0b0c0d 8000000000000001 00000003", window.Put,
		func(t TLV) (any, bool) { return ParseReceivedWindow(t) }, window)
}

func TestSigningAllocatesNothing(t *testing.T) {
	keys := keyring(t, strings.Repeat("11", 32), vectorKey)
	l, _ := NewLayout(Authenticated, 256)
	b := l.New(1)
	allocs := testing.AllocsPerRun(1000, func() {
		keys.Sign(b, 1)
		if key, ok := keys.Verify(b); !ok || !keys.VerifyTLVs(b, key) {
			t.Fatal("not verified")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations per packet, want 0", allocs)
	}
}

func BenchmarkSignAndVerify(b *testing.B) {
	keys := keyring(b, vectorKey)
	l, _ := NewLayout(Authenticated, 256)
	packet := l.New(1)
	for b.Loop() {
		keys.Sign(packet, 0)
		key, _ := keys.Verify(packet)
		keys.VerifyTLVs(packet, key)
	}
}

// FuzzAuthenticated feeds arbitrary bytes to the verification; what it has signed
// itself must verify.
func FuzzAuthenticated(f *testing.F) {
	f.Add(unhex(f, secureRequestVector+secureTLVsVector))
	f.Add(unhex(f, secureReplyVector))
	f.Add(unhex(f, secureRequestVector+"80080010"))
	f.Add(bytes.Repeat([]byte{0x80, 8, 0, 0}, 60))
	keys := keyring(f, vectorKey, strings.Repeat("11", 32))
	f.Fuzz(func(t *testing.T, input []byte) {
		b := bytes.Clone(input) // the fuzzer goes on from its own
		if key, ok := keys.Verify(b); ok {
			keys.VerifyTLVs(b, key)
		}
		if len(b) < AuthenticatedSize {
			return
		}
		before := keys.VerifyTLVs(b, 1)
		keys.Sign(b, 1)
		if key, ok := keys.Verify(b); !ok || key != 1 {
			t.Fatal("our own signature does not verify")
		}
		if _, placed := hmacTLV(b); placed && !keys.VerifyTLVs(b, 1) || before && !keys.VerifyTLVs(b, 1) {
			t.Fatal("our own signature of the TLVs does not verify")
		}
		tlvs := Authenticated.TLVs(b)
		for v, _ := tlvs.Next(); v != nil; v, _ = tlvs.Next() {
			ParseClassOfService(v)
			ParseDirectMeasurement(v)
			ParseReceivedWindow(v)
		}
	})
}
