package settings

import (
	"slices"
	"strings"
	"testing"
	"time"

	"vigia/internal/config"
	"vigia/probes/protocol"
	"vigia/probes/protocol/connect"
	"vigia/probes/protocol/echo"
	"vigia/probes/protocol/registry"
	"vigia/probes/protocol/stamp"
)

// question is a protocol with options of its own.
type question struct {
	Name  string
	Tries int
	Wait  time.Duration
}

type questionOptions struct {
	Name  string          `yaml:"name" help:"what is asked for; required"`
	Tries int             `yaml:"tries" help:"how often, default 3"`
	Wait  config.Duration `yaml:"wait" help:"in between"`
}

func (question) Traits() protocol.Traits {
	return protocol.Traits{Name: "question", Title: "Question", Noun: "a question", Socketless: true, Port: 53, Flows: protocol.NewFlows}
}
func (question) CheckSize(int) (problem, fix string) { return "", "" }
func (question) NewSession(*protocol.Session) any    { return nil }
func (question) Options() any                        { return &questionOptions{Tries: 3} }
func (q question) Configure(options any, report protocol.Report) protocol.Protocol {
	o := options.(*questionOptions)
	if o.Name == "" {
		report("name", nil, "is missing", "add name: example.net")
	}
	return question{Name: o.Name, Tries: o.Tries, Wait: time.Duration(o.Wait)}
}

// protocols are of every kind, whatever others there are.
func protocols() []protocol.Protocol {
	return []protocol.Protocol{stamp.Protocol{}, echo.Protocol{}, connect.Protocol{}, question{}}
}

const questionFile = `node: a
paths: [{name: p, dataplane: d, encap: none, mode: m, security: none, layer: underlay, placement: local}]
classes: [{name: c, protocol: question, interval: 1s, CLASS}]
targets: [{dst: b, path: p, tenant: t, probe: c, address: "10.0.0.1:53"}]
discovery: [{files: [/nodes.json], targets: [{path: p, tenant: t, probe: c}]}]
`

// parse reads a file where there is one protocol more.
func parse(class string) (*Settings, error) {
	f := File{protocols: protocols()}
	if err := config.Parse("f.yaml", []byte(strings.Replace(questionFile, "CLASS", class, 1)), &f); err != nil {
		return nil, err
	}
	return f.settings(), nil
}

// TestOptionsOfAProtocol reach the targets, so that a changed option makes another target.
func TestOptionsOfAProtocol(t *testing.T) {
	s, err := parse("options: {name: example.net, wait: 10ms}")
	if err != nil {
		t.Fatal(err)
	}
	if want := (question{"example.net", 3, 10 * time.Millisecond}); s.Targets[0].Protocol != protocol.Protocol(want) {
		t.Errorf("%+v, want %+v", s.Targets[0].Protocol, want)
	}
	if d := s.Targets[0].Deadline; d != time.Second {
		t.Errorf("the deadline of one probe at a time is %v, want the interval", d)
	}
	if port := s.Sites[0].templates[0].Port; port != 53 {
		t.Errorf("discovered nodes are probed at port %d", port)
	}
	other, err := parse("options: {name: example.org}")
	if err != nil || other.Targets[0] == s.Targets[0] {
		t.Errorf("%v, targets with other options are equal", err)
	}
}

// TestMistakesInOptions are named like any others.
func TestMistakesInOptions(t *testing.T) {
	for class, want := range map[string]string{
		"options: {}":                           "f.yaml:3: classes[0].options.name: is missing; add name: example.net",
		"size: 0":                               "f.yaml:3: classes[0].options.name: is missing",
		"options: {name: a, nmae: b}":           "f.yaml:3: classes[0].options.nmae: is not known; known here: name, tries, wait",
		"options: {name: a, tries: often}":      "classes[0].options: cannot be read: ",
		"options: {name: a, name: b}":           "classes[0].options: cannot be read: ",
		"options: [a]":                          "classes[0].options: \"\": is not a mapping; write for example options: {key: value}",
		"options: name":                         "classes[0].options: \"name\": is not a mapping",
		"options: {name: a}, size: 64":          `classes[0].size: "64": means nothing to a question; remove it`,
		"options: {name: a}, dont_fragment: on": `classes[0].dont_fragment: "true": means nothing to a question`,
		"options: {name: a}, path_mtu: {}":      "classes[0].path_mtu: means nothing to a question; remove it, or write protocol: stamp or icmp",
		"options: {name: a}, flow: warm":        `classes[0].flow: "warm": cannot be: a question is a new flow each time`,
		"options: {name: a}, source_ports: 2":   `classes[0].source_ports: "2": needs protocol: stamp; remove it`,
		"options: {name: a}, deadline: 2s":      `classes[0].deadline: "2s": is longer than the interval, and there is one probe at a time; at most 1s`,
	} {
		if _, err := parse(class); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v\nwant %q", class, err, want)
		}
	}
	if _, err := Parse("f.yaml", []byte(strings.NewReplacer("protocol: question", "protocol: stamp, size: 64", "CLASS", "options: {name: a}").Replace(questionFile))); err == nil ||
		!strings.Contains(err.Error(), "classes[0].options: has no meaning for probes of protocol stamp; remove it") {
		t.Errorf("options of a protocol without any: %v", err)
	}
}

// TestProtocolsAreListed where the configuration and its reference name them.
func TestProtocolsAreListed(t *testing.T) {
	if _, err := Parse("f.yaml", []byte(strings.Replace(questionFile, "CLASS", "size: 0", 1))); err == nil ||
		!strings.Contains(err.Error(), `classes[0].protocol: "question": is not a protocol of probes; write `+table(registry.All()).names(anyProtocol)) {
		t.Errorf("got %v", err)
	}
	keys := keysWith(protocols())
	for _, want := range []Key{
		{"classes[].protocol", "text", "`stamp`, `icmp`, `tcp-connect` or `question`; required"},
		{"classes[].size", "integer", "payload in bytes; `stamp`: 44, 48 to 64, or 68 to 65507; `icmp`: 16 to 65507"},
		{"classes[].options", "mapping", "keys that the protocol has of its own"},
		{"classes[].options.name", "text", "`question`: what is asked for; required"},
		{"classes[].options.wait", "duration", "`question`: in between"},
		{"targets[].address", "text", "IP:port or name:port, without port for ICMP; required"},
	} {
		if !slices.Contains(keys, want) {
			t.Errorf("no %+v", want)
		}
	}
	for words, want := range map[string]string{"": "", "a": "a", "a b": "a or b", "a b c": "a, b or c"} {
		if got := enumerate(strings.Fields(words)); got != want {
			t.Errorf("%q: %q", words, got)
		}
	}
}

// TestKeysAreReadOnce for each class and file, however many targets use them.
func TestKeysAreReadOnce(t *testing.T) {
	p := &counting{}
	f := File{keyed: make(map[keyedClass]protocol.Protocol)}
	for range 3 {
		for _, class := range []string{"c", "d"} {
			if _, err := f.keyedProtocol(&Class{Name: class, protocol: p}, "/etc/vigia/stamp.key"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if p.loads != 2 {
		t.Errorf("the file was read %d times, want 2", p.loads)
	}
}

// counting counts how often its keys are read.
type counting struct {
	question
	loads int
}

func (c *counting) LoadKeys(string) (protocol.Protocol, error) {
	c.loads++
	return c, nil
}
