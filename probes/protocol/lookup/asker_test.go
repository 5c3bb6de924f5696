package lookup

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"vigia/internal/testutil"
	"vigia/probes/protocol/background"
)

// answer makes the messages with which a name server answers a question.
type answer func(question []byte) [][]byte

// serve answers over UDP and TCP, on one port, until the end of the test.
func serve(t *testing.T, say answer) netip.AddrPort {
	t.Helper()
	l, u := listen(t)
	go func() {
		b := make([]byte, maxDatagram)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			for _, m := range say(b[:n]) {
				_, _ = u.WriteTo(m, from)
			}
		}
	}()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var size [2]byte
			_, _ = io.ReadFull(c, size[:])
			question := make([]byte, binary.BigEndian.Uint16(size[:]))
			_, _ = io.ReadFull(c, question)
			for _, m := range say(question) {
				_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
			}
			c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// listen listens at one port for both transports; one that is free for TCP may be taken for UDP.
func listen(t *testing.T) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 100 {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if u, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", l.Addr().String()); err == nil {
			t.Cleanup(func() { l.Close(); u.Close() })
			return l, u
		}
		l.Close()
	}
	t.Fatal("no port is free for both transports")
	return nil, nil
}

// with makes answers that have a code and records.
func with(t *testing.T, code dnsmessage.RCode, records ...dnsmessage.ResourceBody) answer {
	return func(question []byte) [][]byte {
		var m dnsmessage.Message
		if err := m.Unpack(question); err != nil {
			t.Error(err)
			return nil
		}
		m.Response, m.RCode = true, code
		for _, body := range records {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 30}, Body: body,
			})
		}
		packed, err := m.Pack()
		if err != nil {
			t.Error(err)
		}
		return [][]byte{packed}
	}
}

// probe asks once.
func probe(t *testing.T, at netip.AddrPort, options string, patience time.Duration) background.Outcome {
	t.Helper()
	p, said := configure(t, options)
	if len(said) > 0 {
		t.Fatal(options, said)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return newAsker(p.(Protocol)).ask(ctx, &background.Endpoint{Address: at})
}

func TestSuccessAndFailure(t *testing.T) {
	one, two := &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}}, &dnsmessage.AResource{A: [4]byte{192, 0, 2, 2}}
	for _, tc := range []struct {
		answer        answer
		options       string
		failure, said string
		records       float64
	}{
		{with(t, dnsmessage.RCodeSuccess, one, two), `{}`, "", "", 2},
		{with(t, dnsmessage.RCodeSuccess), `{}`, "", "", 0},
		{with(t, dnsmessage.RCodeNameError), `{}`, badCode, "the answer is NXDOMAIN", 0},
		{with(t, dnsmessage.RCodeNameError), `{valid_rcodes: [NOERROR, NXDOMAIN]}`, "", "", 0},
		{with(t, 11), `{}`, badCode, "the answer is RCODE11", 0},
		{with(t, dnsmessage.RCodeSuccess, one, two), `{fail_if_matches_regexp: ["192.0.2.2$"]}`, badRecords, `matches "192.0.2.2$"`, 2},
		{with(t, dnsmessage.RCodeSuccess, one, two), `{fail_if_matches_regexp: ["192.0.2.3$"]}`, "", "", 2},
		{with(t, dnsmessage.RCodeSuccess, one, two), `{fail_if_not_matches_regexp: ["IN\tA\t192.0.2.[12]$"]}`, "", "", 2},
		{with(t, dnsmessage.RCodeSuccess, one, two), `{fail_if_not_matches_regexp: ["192.0.2.1$"]}`, badRecords, "does not match", 2},
		{with(t, dnsmessage.RCodeSuccess), `{fail_if_not_matches_regexp: ["x"]}`, badRecords, "there is no record in the answer", 0},
	} {
		at := serve(t, tc.answer)
		for _, transport := range []string{udp, tcp} {
			options := strings.TrimSuffix(tc.options, "}") + ", query_name: www.example.net, transport_protocol: " + transport + "}"
			o := probe(t, at, strings.Replace(options, "{, ", "{", 1), time.Minute)
			if o.Failure != tc.failure || (o.Err == nil) != (tc.failure == "") || len(o.Values) != 1 || o.Values[0] != tc.records {
				t.Errorf("%s: %+v", options, o)
			}
			if o.Err != nil && !strings.Contains(o.Err.Error(), tc.said) {
				t.Errorf("%s: %v, want %q", options, o.Err, tc.said)
			}
			if o.Phases[requesting] <= 0 || (o.Phases[connecting] > 0) != (transport == tcp) {
				t.Errorf("%s: phases %v", options, o.Phases)
			}
		}
	}
}

// TestQuestions have what they were configured with.
func TestQuestions(t *testing.T) {
	asked := make(chan dnsmessage.Message, 8)
	good := with(t, dnsmessage.RCodeSuccess)
	at := serve(t, func(question []byte) [][]byte {
		var m dnsmessage.Message
		_ = m.Unpack(question)
		asked <- m
		return good(question)
	})
	probe(t, at, `{query_name: www.example.net, query_type: SRV, recursion_desired: false}`, time.Minute)
	if m := <-asked; m.RecursionDesired || len(m.Questions) != 1 || m.Questions[0].Type != dnsmessage.TypeSRV || m.Questions[0].Name.String() != "www.example.net." {
		t.Errorf("%+v", m)
	}
	if o := newAsker(Protocol{}).ask(t.Context(), &background.Endpoint{Address: at}); o.Err != nil {
		t.Error(o.Err)
	}
	if m := <-asked; !m.RecursionDesired || m.Questions[0].Type != dnsmessage.TypeNS || m.Questions[0].Name.String() != "." {
		t.Errorf("%+v", m)
	}
}

// TestHostileAnswers are no answers: not those to other questions, nor the damaged.
func TestHostileAnswers(t *testing.T) {
	good := with(t, dnsmessage.RCodeSuccess, &dnsmessage.AResource{})
	changed := func(change func([]byte) []byte) answer {
		return func(q []byte) [][]byte { return [][]byte{change(bytes.Clone(good(q)[0]))} }
	}
	for name, say := range map[string]answer{
		"another identifier": changed(func(b []byte) []byte { b[0] ^= 1; return b }),
		"a question":         changed(func(b []byte) []byte { b[2] &^= 0x80; return b }),
		"another name":       changed(func(b []byte) []byte { b[13] = 'x'; return b }),
		"a header alone":     changed(func(b []byte) []byte { return b[:12] }),
		"nothing":            changed(func([]byte) []byte { return nil }),
	} {
		at := serve(t, say)
		if o := probe(t, at, `{query_name: www.example.net, transport_protocol: tcp}`, time.Minute); o.Failure != noAnswer || len(o.Values) != 0 {
			t.Errorf("%s: %+v", name, o)
		}
		var o background.Outcome
		for patience := 20 * time.Millisecond; patience < time.Minute; patience *= 2 {
			if o = probe(t, at, `{query_name: www.example.net}`, patience); o.Failure != noConnection { // else a stalled machine had not asked
				break
			}
		}
		if o.Failure != noAnswer {
			t.Errorf("%s: %+v", name, o)
		}
		// Whoever sends such things cannot keep the server's own answer from being read.
		at = serve(t, func(q []byte) [][]byte { return append(say(q), good(q)...) })
		if o := probe(t, at, `{query_name: WWW.example.net}`, time.Minute); o.Err != nil || o.Values[0] != 1 {
			t.Errorf("%s, and the answer: %+v", name, o)
		}
	}
	endless := serve(t, func(q []byte) (out [][]byte) {
		for range maxStray + 1 {
			out = append(out, q)
		}
		return out
	})
	if o := probe(t, endless, `{query_name: www.example.net}`, time.Minute); o.Failure != noAnswer || !strings.Contains(o.Err.Error(), "64 datagrams") {
		t.Errorf("%+v", o)
	}
	cut := serve(t, changed(func(b []byte) []byte { return b[:len(b)-2] }))
	if o := probe(t, cut, `{query_name: www.example.net}`, time.Minute); o.Failure != noAnswer || !strings.Contains(o.Err.Error(), "a record cannot be read") {
		t.Errorf("%+v", o)
	}
	truncated := serve(t, changed(func(b []byte) []byte { b[2] |= 2; return b[:len(b)-2] }))
	if o := probe(t, truncated, `{query_name: www.example.net}`, time.Minute); o.Err != nil || o.Values[0] != 0 {
		t.Errorf("%+v", o)
	}
}

func TestNobodyListens(t *testing.T) {
	for transport, failure := range map[string]string{tcp: noConnection, udp: noAnswer} {
		at := testutil.FreePort(t, transport, "127.0.0.1")
		o := probe(t, at, `{query_name: a, transport_protocol: `+transport+`}`, time.Minute)
		if o.Failure != failure || !strings.Contains(o.Err.Error(), "connection refused") {
			t.Errorf("%s: %+v", transport, o)
		}
	}
}

// TestRecordsAsText writes records as zone files have them.
func TestRecordsAsText(t *testing.T) {
	name := dnsmessage.MustNewName("www.example.net.")
	for want, body := range map[string]dnsmessage.ResourceBody{
		"A\t192.0.2.1":                 &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}},
		"AAAA\t::1":                    &dnsmessage.AAAAResource{AAAA: [16]byte{15: 1}},
		"CNAME\t" + "www.example.net.": &dnsmessage.CNAMEResource{CNAME: name},
		"MX\t10 www.example.net.":      &dnsmessage.MXResource{Pref: 10, MX: name},
		"NS\twww.example.net.":         &dnsmessage.NSResource{NS: name},
		"PTR\twww.example.net.":        &dnsmessage.PTRResource{PTR: name},
		"SOA\twww.example.net. www.example.net. 1 2 3 4 5": &dnsmessage.SOAResource{NS: name, MBox: name, Serial: 1, Refresh: 2, Retry: 3, Expire: 4, MinTTL: 5},
		"SRV\t1 2 3 www.example.net.":                      &dnsmessage.SRVResource{Priority: 1, Weight: 2, Port: 3, Target: name},
		"TXT\t\"a\" \"b\\\"\"":                             &dnsmessage.TXTResource{TXT: []string{"a", `b"`}},
		"TYPE99\t\\# 2 0102":                               &dnsmessage.UnknownResource{Type: 99, Data: []byte{1, 2}},
	} {
		at := serve(t, with(t, dnsmessage.RCodeSuccess, body))
		p := newAsker(Protocol{})
		conn, err := (&background.Endpoint{Address: at}).Dial(t.Context(), udp)
		if err != nil {
			t.Fatal(err)
		}
		_, records, err := p.exchange(t.Context(), conn)
		conn.Close()
		if err != nil || len(records) != 1 || records[0] != ".\t30\tIN\t"+want {
			t.Errorf("%q, %v, want %q", records, err, want)
		}
	}
}
