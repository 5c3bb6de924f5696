// Package config reads Vigia's YAML files strictly: unknown and repeated keys
// are errors, sizes are bounded, and every error names the file, the line, the
// field, its value and what to write instead.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxSize is the largest configuration file that Load reads, in bytes.
const MaxSize = 8 << 20

// FieldError says what is wrong with one field and how to mend it.
type FieldError struct {
	Field   string // dotted path with indices, for example targets[2].interval
	Value   any    // the offending value; nil when the field is missing
	Problem string
	Fix     string
}

func (e *FieldError) Error() string {
	var b strings.Builder
	b.WriteString(e.Field)
	if e.Value != nil {
		fmt.Fprintf(&b, ": %q", fmt.Sprint(e.Value))
	}
	fmt.Fprintf(&b, ": %s", e.Problem)
	if e.Fix != "" {
		fmt.Fprintf(&b, "; %s", e.Fix)
	}
	return b.String()
}

// Validator is a configuration that checks itself. Validate returns nil, a
// *FieldError, or several joined by errors.Join.
type Validator interface {
	Validate() error
}

// Load reads the YAML file at path into cfg, which holds the defaults, and
// validates it. On error cfg must not be used.
func Load(path string, cfg Validator) error {
	raw, err := read(path)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, raw, cfg)
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > MaxSize {
		return nil, fmt.Errorf("%s is larger than %d bytes; split it or remove what is not configuration", path, MaxSize)
	}
	return raw, nil
}

// Parse does what Load does with the content of a file called name.
func Parse(name string, raw []byte, cfg Validator) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return syntaxError(name, err, nil)
	}
	if len(doc.Content) == 0 {
		return fmt.Errorf("%s: the file is empty; write a configuration or point --config elsewhere", name)
	}
	raw, err := expand(name, raw, &doc, os.LookupEnv)
	if err != nil {
		return err
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(cfg); err != nil {
		return syntaxError(name, err, reflect.TypeOf(cfg))
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: more than one YAML document; keep one", name)
	}
	if err := cfg.Validate(); err != nil {
		return locate(name, doc.Content[0], err)
	}
	return nil
}

var (
	unknownRE  = regexp.MustCompile(`^line (\d+): field (.+) not found in type (.+)$`)
	repeatedRE = regexp.MustCompile(`^line (\d+): mapping key (".+") already defined at line (\d+)$`)
	lineRE     = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.+)$`)
	goTypeRE   = regexp.MustCompile("cannot unmarshal (!!\\w+)(?: `(.*)`)? into (.+)$")
)

// syntaxError rewrites the decoder's errors as file:line: message.
func syntaxError(name string, err error, root reflect.Type) error {
	var te *yaml.TypeError
	if !errors.As(err, &te) {
		return fmt.Errorf("%s: %s", name, relabel(err.Error(), nil))
	}
	lines := make([]error, 0, len(te.Errors))
	for _, msg := range te.Errors {
		lines = append(lines, fmt.Errorf("%s:%s", name, relabel(msg, root)))
	}
	return errors.Join(lines...)
}

func relabel(msg string, root reflect.Type) string {
	if m := unknownRE.FindStringSubmatch(msg); m != nil {
		known := knownKeys(root, m[3])
		return fmt.Sprintf("%s: unknown key %q; known here: %s", m[1], m[2], strings.Join(known, ", "))
	}
	if m := repeatedRE.FindStringSubmatch(msg); m != nil {
		return fmt.Sprintf("%s: key %s appears twice (first in line %s); keep one", m[1], m[2], m[3])
	}
	if m := lineRE.FindStringSubmatch(msg); m != nil {
		text := m[2]
		if g := goTypeRE.FindStringSubmatch(text); g != nil {
			text = fmt.Sprintf("a %s is wanted here, not %s %q", humanType(g[3]), humanTag(g[1]), g[2])
		}
		return fmt.Sprintf("%s: %s", m[1], text)
	}
	return strings.TrimPrefix(msg, "yaml: ")
}

func humanType(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "list"
	case strings.HasPrefix(goType, "map"):
		return "mapping"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"), strings.HasPrefix(goType, "float"):
		return "number"
	case goType == "bool":
		return "true or false"
	case goType == "string":
		return "text"
	}
	return "mapping"
}

func humanTag(tag string) string {
	names := map[string]string{
		"!!str": "text", "!!int": "number", "!!float": "number", "!!bool": "truth value",
		"!!seq": "list", "!!map": "mapping", "!!null": "nothing",
	}
	if n, ok := names[tag]; ok {
		return n
	}
	return tag
}

// knownKeys finds the struct type by its printed name below root and returns
// its YAML keys, those of inlined structs included.
func knownKeys(root reflect.Type, typeName string) []string {
	var keys []string
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
			t = t.Elem()
		}
		if t == nil || t.Kind() != reflect.Struct || seen[t] {
			return
		}
		seen[t] = true
		if t.String() == typeName {
			keys = append(keys, keysOf(t)...)
		}
		for i := range t.NumField() {
			walk(t.Field(i).Type)
		}
	}
	walk(root)
	slices.Sort(keys)
	return slices.Compact(keys)
}

func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		key, opts, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		switch {
		case strings.Contains(opts, "inline"):
			keys = append(keys, keysOf(t.Field(i).Type)...)
		case key != "" && key != "-":
			keys = append(keys, key)
		}
	}
	return keys
}

// locate prefixes each FieldError in err with file and line.
func locate(name string, root *yaml.Node, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range joined.Unwrap() {
			out = append(out, locate(name, root, e))
		}
		return errors.Join(out...)
	}
	var fe *FieldError
	if !errors.As(err, &fe) {
		return fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("%s:%d: %w", name, lineOf(root, fe.Field), fe)
}

var stepRE = regexp.MustCompile(`([^.\[\]]+)|\[(\d+)\]`)

// lineOf returns the line of the field, or of its nearest ancestor that exists.
func lineOf(node *yaml.Node, field string) int {
	line := node.Line
	for _, step := range stepRE.FindAllStringSubmatch(field, -1) {
		key, value := child(node, step[1], step[2])
		if value == nil {
			return line
		}
		node, line = value, key.Line
	}
	return line
}

// child returns the node to point at and the node to descend into.
func child(node *yaml.Node, key, index string) (at, into *yaml.Node) {
	if index != "" {
		i, err := strconv.Atoi(index)
		if err != nil || node.Kind != yaml.SequenceNode || i >= len(node.Content) {
			return nil, nil
		}
		return node.Content[i], node.Content[i]
	}
	if node.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i], node.Content[i+1]
		}
	}
	return nil, nil
}
