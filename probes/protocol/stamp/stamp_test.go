package stamp

import (
	"strings"
	"testing"

	"vigia/probes/protocol"
	wire "vigia/probes/stamp"
)

func testKeys(t *testing.T, digit string) wire.Keys {
	t.Helper()
	k, err := wire.ParseKeys([]byte(strings.Repeat(digit, 64)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestCheckSizeOffersTheNextOne(t *testing.T) {
	for size := range 200 {
		problem, fix := Protocol{}.CheckSize(size)
		bad := size < 44 || size > 44 && size < 48 || size > 64 && size < 68
		if bad == (problem == "") {
			t.Errorf("%d: %q", size, problem)
		}
		if size > 44 && bad && fix != map[bool]string{true: "write 48", false: "write 68"}[size < 48] {
			t.Errorf("%d: %q", size, fix)
		}
	}
	if problem, fix := (Protocol{}).CheckSize(70_000); problem == "" || fix != "write 44 to 65507 bytes of UDP payload" {
		t.Errorf("%q %q", problem, fix)
	}
	if problem, fix := (Protocol{Keys: testKeys(t, "5")}).CheckSize(64); problem == "" || fix != "write 112 to 65507 bytes of UDP payload" {
		t.Errorf("authenticated: %q %q", problem, fix)
	}
}

// TestKeysMakeAnotherProtocol: targets with other keys are other targets.
func TestKeysMakeAnotherProtocol(t *testing.T) {
	var plain, five, seven protocol.Protocol = Protocol{}, Protocol{Keys: testKeys(t, "5")}, Protocol{Keys: testKeys(t, "7")}
	if plain == five || five == seven || five != protocol.Protocol(Protocol{Keys: testKeys(t, "5")}) {
		t.Error("protocols are not compared by their keys")
	}
	if _, err := (Protocol{}).LoadKeys("/nonexistent"); err == nil {
		t.Error("keys were loaded from a file that does not exist")
	}
}

// TestSearchKnowsItsOwn makes probes of a search in either mode, and reads answers to them
// and others.
func TestSearchKnowsItsOwn(t *testing.T) {
	for name, p := range map[string]Protocol{"open": {}, "authenticated": {Keys: testKeys(t, "5")}} {
		mine, other := p.NewSearch(nil, 46), p.NewSearch(nil, 46)
		for i, size := range []int{548, 1472, 9000} {
			request := mine.Request(uint32(i), size)
			reply := reflected(t, p.Keys, request, uint32(i), &wire.ReceivedWindow{Highest: 9, Mask: 5})
			if len(request) != size {
				t.Errorf("%s: %d bytes, want %d", name, len(request), size)
			}
			if a, ok := mine.Parse(reply); !ok || a != (protocol.Arrivals{Sequence: uint32(i), Highest: 9, Mask: 5}) {
				t.Errorf("%s: %+v, %v", name, a, ok)
			}
			if _, ok := other.Parse(reply); ok {
				t.Errorf("%s: an answer to another search was taken", name)
			}
			reply[p.Keys.Mode().BaseSize()+6] ^= 1 // a TLV, which has an HMAC in authenticated mode
			if a, ok := mine.Parse(reply); !ok || p.Keys != "" && a.Mask != 0 {
				t.Errorf("%s: %+v, %v of TLVs that were changed", name, a, ok)
			}
			if _, ok := mine.Parse(reply[:40]); ok {
				t.Errorf("%s: half an answer was taken", name)
			}
		}
	}
}

// reflected makes a reflector's answer of a request.
func reflected(t *testing.T, keys wire.Keys, request []byte, number uint32, window *wire.ReceivedWindow) []byte {
	t.Helper()
	mode := keys.Mode()
	b := append([]byte(nil), request...)
	r, ok := mode.ParseRequest(b)
	if !ok {
		t.Fatal("no request")
	}
	mode.PutReply(b, wire.Reply{
		Sequence: number, Timestamp: r.Timestamp + 2000, ErrorEstimate: r.ErrorEstimate, SSID: r.SSID,
		ReceiveTimestamp: r.Timestamp + 1000, SenderSequence: r.Sequence, SenderTimestamp: r.Timestamp,
	})
	tlvs := mode.TLVs(b)
	for v, whole := tlvs.Next(); v != nil && whole; v, whole = tlvs.Next() {
		v.SetFlags(0)
		if window != nil && v.Type() == wire.TypeReceivedWindow {
			window.Put(v)
		}
	}
	if ring := keys.Keyring(); ring != nil {
		ring.Sign(b, 0)
	}
	return b
}
