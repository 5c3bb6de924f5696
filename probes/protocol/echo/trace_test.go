package echo

import (
	"testing"

	"vigia/probes/icmp"
	"vigia/probes/protocol"
)

// TestTraceKnowsItsOwn makes packets of a trace of either family, and reads answers and quotes of
// them and of others.
func TestTraceKnowsItsOwn(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1"} {
		b := newBench(t, address, 1400)
		b.session.Socket = b.socket
		mine, other := Protocol{}.NewTrace(b.session, 7), Protocol{}.NewTrace(b.session, 8)
		for i := range uint32(3) {
			request := append([]byte(nil), mine.Request(i)...)
			other.Request(i)
			if len(request) != icmp.HeaderSize+defaultSize {
				t.Errorf("%d bytes", len(request))
			}
			if sequence, q := mine.Quoted(request); q != protocol.QuotesOurs || sequence != i {
				t.Errorf("%s: %d %v", address, sequence, q)
			}
			if _, q := other.Quoted(request); q != protocol.QuotesAnother {
				t.Errorf("%s: another trace takes the quote: %v", address, q)
			}
			if _, q := mine.Quoted(request[:icmp.HeaderSize]); q != protocol.QuotesLittle {
				t.Errorf("%s: a header tells %v", address, q)
			}
			reply := b.answer(request)
			if a, ok := mine.Answered(reply); !ok || a != (protocol.Traced{Sequence: i}) {
				t.Errorf("%s: %+v, %v", address, a, ok)
			}
			if _, ok := other.Answered(reply); ok {
				t.Errorf("%s: another trace takes the answer", address)
			}
			reply[len(reply)-defaultSize+8] ^= 1 // the nonce
			if _, ok := mine.Answered(reply); ok {
				t.Errorf("%s: an answer with another nonce was taken", address)
			}
			if _, ok := mine.Answered(nil); ok {
				t.Errorf("%s: nothing is an answer", address)
			}
		}
	}
}
