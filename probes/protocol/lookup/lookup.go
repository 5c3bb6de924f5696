// Package lookup probes name servers with questions of the DNS, as blackbox_exporter's module
// dns does: a probe is a success when the answer has a code, and records, that were asked for.
package lookup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/dns/dnsmessage"

	"vigia/internal/catalog"
	"vigia/probes/protocol"
	"vigia/probes/protocol/background"
	"vigia/probes/protocol/pattern"
)

// Name is the protocol's name in the configuration.
const Name = "dns"

const (
	defaultPort = 53
	maxName     = 255 // RFC 1035 section 2.3.4
	udp, tcp    = "udp", "tcp"
)

// types are those of records that can be asked for. ANY is not: servers need not answer it
// (RFC 8482).
func types() map[string]dnsmessage.Type {
	return map[string]dnsmessage.Type{
		"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "CNAME": dnsmessage.TypeCNAME, "MX": dnsmessage.TypeMX,
		"NS": dnsmessage.TypeNS, "PTR": dnsmessage.TypePTR, "SOA": dnsmessage.TypeSOA, "SRV": dnsmessage.TypeSRV,
		"TXT": dnsmessage.TypeTXT,
	}
}

// codes are those of answers (RFC 1035, RFC 2136), by number.
func codes() []string {
	return []string{
		"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET", "NOTAUTH", "NOTZONE",
	}
}

// noError is the code of an answer to a question that was understood.
const noError = "NOERROR"

// Protocol is the DNS. Its zero value asks for the name servers of the root.
type Protocol struct {
	name, kind       string
	transport        string
	codes            pattern.List
	matches, misses  pattern.List // of records that are failures, and of all
	withoutRecursion bool
}

var (
	_ protocol.Configurable = Protocol{}
	_ protocol.Metered      = Protocol{}
)

// Traits say what the protocol is like.
func (Protocol) Traits() protocol.Traits {
	return protocol.Traits{
		Name: Name, Title: "DNS", Noun: "a question of the DNS", Socketless: true, Port: defaultPort, Flows: protocol.NewFlows,
	}
}

// CheckSize accepts any size: questions have none.
func (Protocol) CheckSize(int) (problem, fix string) { return "", "" }

// NewSession returns the exchange of a session.
func (p Protocol) NewSession(s *protocol.Session) any { return background.New(s, newAsker(p).ask) }

// options are the keys of the configuration. Those that blackbox_exporter has as well have its names.
type options struct {
	QueryName         string   `yaml:"query_name" help:"what is asked for; required"`
	QueryType         string   `yaml:"query_type" help:"'A' (default), 'AAAA', 'CNAME', 'MX', 'NS', 'PTR', 'SOA', 'SRV' or 'TXT'"`
	TransportProtocol string   `yaml:"transport_protocol" help:"'udp' (default) or 'tcp'"`
	RecursionDesired  bool     `yaml:"recursion_desired" help:"the server is asked to ask others, default true"`
	ValidRCodes       []string `yaml:"valid_rcodes" help:"codes of a success, default 'NOERROR'"`
	FailIfMatches     []string `yaml:"fail_if_matches_regexp" help:"an answer with a record that matches one of these (RE2) is a failure; records are written as in zone files, with tabs between name, time to live, IN, type and data"`
	FailIfNotMatches  []string `yaml:"fail_if_not_matches_regexp" help:"an answer with a record that does not match all of these (RE2), or without any, is a failure"`
}

// Options returns the defaults.
func (Protocol) Options() any { return &options{RecursionDesired: true} }

// Configure returns the protocol with options.
func (p Protocol) Configure(from any, report protocol.Report) protocol.Protocol {
	o := from.(*options)
	o.check(report)
	p.name, p.kind, p.transport = absolute(o.QueryName), o.QueryType, o.TransportProtocol
	p.codes = pattern.ListOf(o.ValidRCodes...)
	p.matches = pattern.Checked(o.FailIfMatches, "fail_if_matches_regexp", report)
	p.misses = pattern.Checked(o.FailIfNotMatches, "fail_if_not_matches_regexp", report)
	p.withoutRecursion = !o.RecursionDesired
	return p
}

func (o *options) check(report protocol.Report) {
	if o.QueryName == "" {
		report("query_name", nil, "is missing", "add for example query_name: www.example.net")
	} else if problem := checkName(absolute(o.QueryName)); problem != "" {
		report("query_name", o.QueryName, problem, "write for example www.example.net")
	}
	if _, ok := types()[o.QueryType]; !ok && o.QueryType != "" {
		var known []string
		for name := range types() {
			known = append(known, name)
		}
		slices.Sort(known)
		report("query_type", o.QueryType, "is not a type of records that can be asked for", "write "+strings.Join(known, ", "))
	}
	if o.TransportProtocol != "" && o.TransportProtocol != udp && o.TransportProtocol != tcp {
		report("transport_protocol", o.TransportProtocol, "does not carry questions of probes", "write udp or tcp")
	}
	for i, code := range o.ValidRCodes {
		if !slices.Contains(codes(), code) {
			report(fmt.Sprintf("valid_rcodes[%d]", i), code, "is not a code of answers", "write "+strings.Join(codes(), ", "))
		}
	}
}

// checkName says what is wrong with a name that ends with a dot; empty when nothing is.
func checkName(name string) string {
	if len(name) > maxName {
		return fmt.Sprintf("is longer than %d bytes", maxName)
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if name != "." && (label == "" || len(label) > 63) {
			return "has a label without letters, or with more than 63"
		}
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "has letters that names do not have"
	}
	return ""
}

// absolute returns a name with the dot of the root at its end.
func absolute(name string) string {
	if strings.HasSuffix(name, ".") {
		return name
	}
	return name + "."
}

// The phases of a question, as blackbox_exporter tells them apart. The server's name is resolved
// before.
const (
	connecting = iota // with TCP, until the connection stands
	requesting        // from the question to the answer
	numPhases
)

// Phases returns what questions consist of, for metrics.
func Phases() []string { return []string{"connect", "request"} }

// The failures.
const (
	noConnection = "connect"
	noAnswer     = "answer"
	badCode      = "rcode"
	badRecords   = "records"
)

// Failures returns by what questions fail, for metrics.
func Failures() []string {
	return []string{background.Unsent, background.Timeout, noConnection, noAnswer, badCode, badRecords}
}

// Metrics registers what questions have beside the delay.
func (Protocol) Metrics(f *catalog.Factory) protocol.Metrics {
	return &background.Meter{
		Failed: f.Counter("vigia_probe_dns_failed_total"), Failures: Failures(),
		Seconds: f.Counter("vigia_probe_dns_phase_seconds_total"), Phases: Phases(),
		Gauges: []*prometheus.GaugeVec{f.Gauge("vigia_probe_dns_answer_records")},
	}
}

// orDefault returns what is asked for and how.
func (p Protocol) orDefault() Protocol {
	if p.name == "" {
		p.name, p.kind = ".", "NS"
	}
	p.kind, p.transport, p.codes = cmp.Or(p.kind, "A"), cmp.Or(p.transport, udp), cmp.Or(p.codes, pattern.ListOf(noError))
	return p
}
