package stamp

import (
	"testing"

	"vigia/probes/protocol"
	wire "vigia/probes/stamp"
)

// seen writes into an answer what a reflector sees: the hop limit and the DSCP of the probe.
func seen(t *testing.T, keys wire.Keys, reply []byte, hopLimit, dscp uint8) {
	t.Helper()
	mode := keys.Mode()
	r, ok := mode.ParseReply(reply)
	if !ok {
		t.Fatal("no answer")
	}
	r.SenderTTL = hopLimit
	mode.PutReply(reply, r)
	tlvs := mode.TLVs(reply)
	for v, whole := tlvs.Next(); v != nil && whole; v, whole = tlvs.Next() {
		if c, ok := wire.ParseClassOfService(v); ok && v.Type() == wire.TypeClassOfService {
			c.Received = dscp
			c.Put(v)
		}
	}
	if ring := keys.Keyring(); ring != nil {
		ring.Sign(reply, 0)
	}
}

// TestTraceKnowsItsOwn makes packets of a trace in either mode, and reads answers and quotes of
// them and of others.
func TestTraceKnowsItsOwn(t *testing.T) {
	for name, p := range map[string]Protocol{"open": {}, "authenticated": {Keys: testKeys(t, "5")}} {
		session := &protocol.Session{DSCP: 46}
		mine, other := p.NewTrace(session, 7), p.NewTrace(session, 8)
		for i := range uint32(3) {
			request := append([]byte(nil), mine.Request(i)...)
			other.Request(i)
			if sequence, q := mine.Quoted(request); q != protocol.QuotesOurs || sequence != i {
				t.Errorf("%s: packet %d is quoted as %d, %v", name, i, sequence, q)
			}
			if _, q := other.Quoted(request); q != protocol.QuotesAnother {
				t.Errorf("%s: another trace takes the quote: %v", name, q)
			}
			base := p.Keys.Mode().SSIDOffset() + 2
			if _, q := mine.Quoted(request[:base]); q != protocol.QuotesOurs {
				t.Errorf("%s: %d bytes do not tell: %v", name, base, q)
			}
			for _, short := range [][]byte{nil, request[:base-1]} {
				if _, q := mine.Quoted(short); q != protocol.QuotesLittle {
					t.Errorf("%s: %d bytes tell %v", name, len(short), q)
				}
			}
			reply := reflected(t, p.Keys, request, i, nil)
			seen(t, p.Keys, reply, 61, 8)
			if a, ok := mine.Answered(reply); !ok || a != (protocol.Traced{Sequence: i, HopLimit: 61, DSCP: 8, Seen: true}) {
				t.Errorf("%s: %+v, %v", name, a, ok)
			}
			if _, ok := other.Answered(reply); ok {
				t.Errorf("%s: another trace takes the answer", name)
			}
			if _, ok := mine.Answered(reply[:40]); ok {
				t.Errorf("%s: half an answer was taken", name)
			}
			reply[len(reply)-1] ^= 1 // of the HMAC of the TLVs in authenticated mode
			if a, ok := mine.Answered(reply); !ok || p.Keys != "" && a.Seen {
				t.Errorf("%s: %+v, %v of TLVs that were changed", name, a, ok)
			}
			forged := append([]byte(nil), request...)
			forged[p.Keys.Mode().SSIDOffset()-3] ^= 1 // a random bit of the time stamp
			if _, q := mine.Quoted(forged); q != protocol.QuotesAnother {
				t.Errorf("%s: a forged quote was taken: %v", name, q)
			}
			if _, ok := mine.Answered(reflected(t, p.Keys, forged, i, nil)); ok {
				t.Errorf("%s: an answer to what was not sent was taken", name)
			}
		}
	}
}

// TestTraceCannotBeGuessed differs in the last bits of the time stamp from packet to packet.
func TestTraceCannotBeGuessed(t *testing.T) {
	tr := Protocol{}.NewTrace(&protocol.Session{}, 1)
	ends := make(map[wire.Timestamp]bool)
	for i := range uint32(64) {
		ends[wire.Unauthenticated.Timestamp(tr.Request(i))&randomBits] = true
	}
	if len(ends) < 60 { // 64 draws of 2^20: one pair in 500 runs
		t.Errorf("%d different ends of 64", len(ends))
	}
}

// TestForeignReflectors answer without an identifier and without TLVs.
func TestForeignReflectors(t *testing.T) {
	tr := Protocol{}.NewTrace(&protocol.Session{}, 1)
	request := append([]byte(nil), tr.Request(0)...)
	r, _ := wire.Unauthenticated.ParseRequest(request)
	plain := make([]byte, wire.BaseSize)
	wire.Unauthenticated.PutReply(plain, wire.Reply{SenderSequence: r.Sequence, SenderTimestamp: r.Timestamp, SenderTTL: 60})
	if a, ok := tr.Answered(plain); !ok || a.Seen || a.HopLimit != 60 {
		t.Errorf("%+v, %v", a, ok)
	}
}
