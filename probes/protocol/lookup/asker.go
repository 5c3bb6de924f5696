package lookup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"vigia/probes/protocol/background"
)

const (
	maxDatagram = 4096
	// maxStray is how many datagrams that answer something else are read at most.
	maxStray = 64
)

// asker asks the questions of a session.
type asker struct {
	Protocol
	question dnsmessage.Question
	codes    []string
	matches  []*regexp.Regexp
	misses   []*regexp.Regexp
}

func newAsker(p Protocol) *asker {
	a := &asker{Protocol: p.orDefault(), matches: p.matches.Compiled(), misses: p.misses.Compiled()}
	a.codes = a.Protocol.codes.Texts()
	a.question = dnsmessage.Question{
		Name: dnsmessage.MustNewName(a.name), Type: types()[a.kind], Class: dnsmessage.ClassINET,
	}
	return a
}

// ask asks once.
func (a *asker) ask(ctx context.Context, to *background.Endpoint) (o background.Outcome) {
	o.Phases, o.Values = make([]time.Duration, numPhases), []float64{0}
	began := time.Now()
	conn, err := to.Dial(ctx, a.transport)
	if err != nil {
		o.Values = nil
		o.Fail(noConnection, err)
		return o
	}
	defer conn.Close()
	if a.transport == tcp {
		o.Phases[connecting] = time.Since(began)
	}
	began = time.Now()
	header, records, err := a.exchange(ctx, conn)
	o.Phases[requesting] = time.Since(began)
	if err != nil {
		o.Values = nil
		o.Fail(noAnswer, err)
		return o
	}
	o.Values[0] = float64(len(records))
	a.check(&o, header, records)
	return o
}

// check says whether an answer is a success.
func (a *asker) check(o *background.Outcome, header dnsmessage.Header, records []string) {
	if code := codeOf(header.RCode); !slices.Contains(a.codes, code) {
		o.Fail(badCode, fmt.Errorf("the answer is %s", code))
		return
	}
	if len(records) == 0 && len(a.misses) > 0 {
		o.Fail(badRecords, errors.New("there is no record in the answer"))
		return
	}
	for _, record := range records {
		for _, pattern := range a.matches {
			if pattern.MatchString(record) {
				o.Fail(badRecords, fmt.Errorf("the record %.200q matches %q", record, pattern))
				return
			}
		}
		for _, pattern := range a.misses {
			if !pattern.MatchString(record) {
				o.Fail(badRecords, fmt.Errorf("the record %.200q does not match %q", record, pattern))
				return
			}
		}
	}
}

// exchange sends the question and returns the answer to it, with its records as text.
func (a *asker) exchange(ctx context.Context, conn net.Conn) (h dnsmessage.Header, records []string, err error) {
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	id := uint16(rand.Uint32())
	message := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: !a.withoutRecursion},
		Questions: []dnsmessage.Question{a.question},
	}
	packed, err := message.Pack()
	if err != nil {
		return h, nil, fmt.Errorf("write the question: %w", err)
	}
	if a.transport == tcp {
		packed = append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...) // RFC 1035 section 4.2.2
	}
	if _, err := conn.Write(packed); err != nil {
		return h, nil, fmt.Errorf("send the question: %w", err)
	}
	for range maxStray {
		answer, err := a.read(conn)
		if err != nil {
			return h, nil, fmt.Errorf("read the answer: %w", err)
		}
		h, records, err = a.parse(id, answer)
		if err == nil || a.transport == tcp || !errors.Is(err, errForeign) {
			return h, records, err
		}
	}
	return h, nil, fmt.Errorf("%d datagrams that answer something else", maxStray)
}

func (a *asker) read(conn net.Conn) ([]byte, error) {
	if a.transport == udp {
		datagram := make([]byte, maxDatagram)
		n, err := conn.Read(datagram)
		return datagram[:max(n, 0)], err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(conn, message)
	return message, err
}

// errForeign is a message that does not answer the question.
var errForeign = errors.New("it answers something else")

// parse reads an answer to the question with an identifier.
func (a *asker) parse(id uint16, message []byte) (h dnsmessage.Header, records []string, err error) {
	var p dnsmessage.Parser
	if h, err = p.Start(message); err != nil {
		return h, nil, fmt.Errorf("%w: %w", errForeign, err)
	}
	questions, err := p.AllQuestions()
	if h.ID != id || !h.Response || err != nil {
		return h, nil, errForeign
	}
	// A server that did not understand the question need not return it.
	if len(questions) != 1 && h.RCode == dnsmessage.RCodeSuccess || len(questions) > 0 && !a.asked(questions[0]) {
		return h, nil, errForeign
	}
	for {
		r, err := p.Answer()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return h, records, nil
		}
		if err != nil {
			if h.Truncated {
				return h, records, nil
			}
			return h, nil, fmt.Errorf("a record cannot be read: %w", err)
		}
		records = append(records, text(&r))
	}
}

// asked reports whether a question is ours; names are the same in capitals (RFC 4343).
func (a *asker) asked(q dnsmessage.Question) bool {
	return q.Type == a.question.Type && q.Class == a.question.Class && strings.EqualFold(q.Name.String(), a.name)
}

// codeOf returns the name of a code.
func codeOf(code dnsmessage.RCode) string {
	if all := codes(); int(code) < len(all) {
		return all[code]
	}
	return fmt.Sprintf("RCODE%d", code)
}

// text returns a record as zone files have it (RFC 1035 section 5.1).
func text(r *dnsmessage.Resource) string {
	kind, data := strings.TrimPrefix(r.Header.Type.String(), "Type"), ""
	switch b := r.Body.(type) {
	case *dnsmessage.AResource:
		data = net.IP(b.A[:]).String()
	case *dnsmessage.AAAAResource:
		data = net.IP(b.AAAA[:]).String()
	case *dnsmessage.CNAMEResource:
		data = b.CNAME.String()
	case *dnsmessage.MXResource:
		data = fmt.Sprintf("%d %s", b.Pref, b.MX)
	case *dnsmessage.NSResource:
		data = b.NS.String()
	case *dnsmessage.PTRResource:
		data = b.PTR.String()
	case *dnsmessage.SOAResource:
		data = fmt.Sprintf("%s %s %d %d %d %d %d", b.NS, b.MBox, b.Serial, b.Refresh, b.Retry, b.Expire, b.MinTTL)
	case *dnsmessage.SRVResource:
		data = fmt.Sprintf("%d %d %d %s", b.Priority, b.Weight, b.Port, b.Target)
	case *dnsmessage.TXTResource:
		quoted := make([]string, len(b.TXT))
		for i, part := range b.TXT {
			quoted[i] = fmt.Sprintf("%q", part)
		}
		data = strings.Join(quoted, " ")
	case *dnsmessage.UnknownResource:
		kind, data = fmt.Sprintf("TYPE%d", b.Type), fmt.Sprintf(`\# %d %x`, len(b.Data), b.Data) // RFC 3597
	}
	return fmt.Sprintf("%s\t%d\tIN\t%s\t%s", r.Header.Name, r.Header.TTL, kind, data)
}
