package settings

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	"vigia/internal/config"
	"vigia/probes/protocol"
	"vigia/probes/protocol/registry"
)

// Key is a key of the configuration file.
type Key struct {
	Path string `json:"path"` // as errors name it, for example targets[].address
	Type string `json:"type"`
	Help string `json:"help"`
}

// Keys returns every key of the configuration file, in its order.
func Keys() []Key { return keysWith(registry.All()) }

// keysWith does so where there are these protocols.
func keysWith(protocols table) (keys []Key) {
	explain := explanations(protocols)
	for _, k := range keysOf(reflect.TypeFor[File](), "") {
		k.Help = explain.Replace(k.Help)
		keys = append(keys, k)
		if k.Path == optionsPath {
			keys = append(keys, protocols.options()...)
		}
	}
	return keys
}

// optionsPath is where a class has keys of its protocol's own.
const optionsPath = "classes[].options"

// options returns the keys that protocols have of their own.
func (t table) options() (keys []Key) {
	for _, p := range t {
		configurable, ok := p.(protocol.Configurable)
		if !ok {
			continue
		}
		for _, k := range keysOf(reflect.TypeOf(configurable.Options()).Elem(), optionsPath+".") {
			k.Help = "`" + p.Traits().Name + "`: " + k.Help
			keys = append(keys, k)
		}
	}
	return keys
}

// explanations fill in what help texts leave to the protocols.
func explanations(t table) *strings.Replacer {
	var names, sizes, portless []string
	for _, p := range t {
		traits := p.Traits()
		names = append(names, "`"+traits.Name+"`")
		if traits.HasSizes() {
			sizes = append(sizes, "`"+traits.Name+"`: "+traits.Sizes)
		}
		if traits.Port == 0 {
			portless = append(portless, traits.Title)
		}
	}
	return strings.NewReplacer(
		"{protocols}", enumerate(names), "{sizes}", strings.Join(sizes, "; "), "{portless}", enumerate(portless),
	)
}

func keysOf(t reflect.Type, prefix string) (keys []Key) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, tagged := f.Tag.Lookup("yaml")
		if !tagged {
			continue
		}
		k := Key{Path: prefix + name, Help: strings.ReplaceAll(f.Tag.Get("help"), "'", "`")}
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		list := inner.Kind() == reflect.Slice
		if list {
			inner = inner.Elem()
		}
		k.Type = typeName(inner)
		if list {
			k.Path += "[]"
			k.Type = "list of " + k.Type
		}
		keys = append(keys, k)
		if inner.Kind() == reflect.Struct {
			keys = append(keys, keysOf(inner, k.Path+".")...)
		}
	}
	return keys
}

func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[config.Duration]():
		return "duration"
	case reflect.TypeFor[config.Rate]():
		return "rate"
	}
	switch t.Kind() {
	case reflect.Struct:
		return "mapping"
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "number"
	}
	return "integer"
}

// WriteKeys writes a table of all keys in Markdown.
func WriteKeys(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| key | type | meaning |\n| --- | --- | --- |\n")
	for _, k := range Keys() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.Path, k.Type, k.Help)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
