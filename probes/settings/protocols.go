package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"vigia/probes/protocol"
)

// table is the protocols that classes can have.
type table []protocol.Protocol

// named returns the protocol with a name, or nil.
func (t table) named(name string) protocol.Protocol {
	i := slices.IndexFunc(t, func(p protocol.Protocol) bool { return p.Traits().Name == name })
	if i < 0 {
		return nil
	}
	return t[i]
}

// names lists the protocols that fit: one, two or three.
func (t table) names(fit func(protocol.Protocol) bool) string {
	var names []string
	for _, p := range t {
		if fit(p) {
			names = append(names, p.Traits().Name)
		}
	}
	return enumerate(names)
}

// enumerate joins words by commas and, before the last, or.
func enumerate(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func anyProtocol(protocol.Protocol) bool { return true }

// batched reports whether probes are single packets, which can leave at the same moment.
func batched(p protocol.Protocol) bool {
	_, ok := p.(protocol.Packets)
	return ok
}

func searches(p protocol.Protocol) bool {
	_, ok := p.(protocol.Searcher)
	return ok
}

func hasPortFlows(p protocol.Protocol) bool { return p.Traits().Flows == protocol.PortFlows }

func hasOtherFlows(p protocol.Protocol) bool { return p.Traits().Flows != protocol.OneFlow }

// resolveProtocol finds the class's protocol and gives it its options.
func (c *Class) resolveProtocol(e *faults, field string, protocols table) {
	c.protocols = protocols
	switch p := protocols.named(c.Protocol); {
	case p != nil:
		c.protocol, c.traits = p, p.Traits()
	case c.Protocol == "":
		e.add(field+".protocol", nil, "is missing", "add protocol: "+protocols[0].Traits().Name)
	default:
		e.add(field+".protocol", c.Protocol, "is not a protocol of probes", "write "+protocols.names(anyProtocol))
	}
	if c.protocol == nil {
		return
	}
	configurable, ok := c.protocol.(protocol.Configurable)
	if !ok {
		if !c.Options.IsZero() {
			e.add(field+".options", nil, "has no meaning for probes of protocol "+c.Protocol, "remove it")
		}
		return
	}
	options := configurable.Options()
	before := len(*e)
	e.decode(field+".options", &c.Options, options)
	if len(*e) > before {
		return
	}
	c.protocol = configurable.Configure(options, func(key string, value any, problem, fix string) {
		e.add(field+".options."+key, value, problem, fix)
	})
}

// decode reads a mapping into the struct that options points to, strictly.
func (e *faults) decode(field string, node *yaml.Node, options any) {
	if node.IsZero() {
		return
	}
	if node.Kind != yaml.MappingNode {
		e.add(field, node.Value, "is not a mapping", "write for example options: {key: value}")
		return
	}
	var known []string
	for _, k := range keysOf(reflect.TypeOf(options).Elem(), "") {
		known = append(known, strings.TrimSuffix(k.Path, "[]"))
	}
	for i := 0; i < len(node.Content); i += 2 {
		if key := node.Content[i].Value; !slices.Contains(known, key) {
			e.add(field+"."+key, nil, "is not known", "known here: "+strings.Join(known, ", "))
		}
	}
	if err := node.Decode(options); err != nil {
		e.add(field, nil, "cannot be read: "+strings.ReplaceAll(err.Error(), "\n", " "), "see the configuration reference")
	}
}

// keyed returns a class's protocol with the keys of a file. Each file is read once for each
// class.
func (f *File) keyedProtocol(c *Class, path string) (protocol.Protocol, error) {
	id := keyedClass{c.Name, path}
	if p := f.keyed[id]; p != nil {
		return p, nil
	}
	p, err := c.protocol.(protocol.Keyed).LoadKeys(path)
	if err == nil {
		f.keyed[id] = p
	}
	return p, err
}

// keyedClass is a class whose probes are authenticated with the keys of a file.
type keyedClass struct{ class, path string }

// validateKeys checks a target's key file.
func (f *File) validateKeys(e *faults, field string, c *Class, path string) {
	if path == "" || c == nil || c.protocol == nil {
		return
	}
	if _, ok := c.protocol.(protocol.Keyed); !ok {
		e.add(field, path, "has no meaning for probes of protocol "+c.Protocol, "remove it")
		return
	}
	if !checkKeyPath(e, field, path) {
		return
	}
	keyed, err := f.keyedProtocol(c, path)
	if err != nil {
		e.unusableKeys(field, path, err)
		return
	}
	if problem, fix := keyed.CheckSize(c.Size); problem != "" {
		e.add(field, path, fmt.Sprintf("needs larger packets than class %s has: size %d %s", c.Name, c.Size, problem), fix)
	}
}
