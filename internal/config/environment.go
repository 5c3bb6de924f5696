package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

var (
	referenceRE = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)
	// plainRE is what cannot change the structure of a YAML document, wherever it is put.
	plainRE = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9_./:-]*[A-Za-z0-9])?$`)
)

const oneLine = "a variable can only be in a value that stands in one line, without tag and anchor; write it so"

// reference is a ${NAME} in a value, and what goes in its place.
type reference struct {
	line, column int // where the value begins, from 1; columns are characters
	text, value  string
}

// expand replaces ${NAME} in the document's values by environment variables, so that one file serves all nodes: their
// names and addresses differ, and are known to whoever starts the program. Comments and keys are left alone, and no
// line moves.
func expand(name string, raw []byte, doc *yaml.Node, lookup func(string) (string, bool)) ([]byte, error) {
	if !bytes.Contains(raw, []byte("${")) {
		return raw, nil
	}
	lines := bytes.SplitAfter(raw, []byte("\n"))
	var found []reference
	var errs []error
	for _, n := range values(doc, nil) {
		for _, m := range referenceRE.FindAllStringSubmatch(n.Value, -1) {
			value, _ := lookup(m[1])
			problem := unfit(n, m[1], value)
			if line := lines[n.Line-1]; problem == "" && !bytes.Contains(line[offset(line, n.Column-1):], []byte(m[0])) {
				problem = oneLine
			}
			if problem != "" {
				errs = append(errs, fmt.Errorf("%s:%d: %q: %s", name, n.Line, n.Value, problem))
				continue
			}
			found = append(found, reference{n.Line, n.Column, m[0], value})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	slices.Reverse(found) // what is left of a value is as it was when its column was counted
	for _, r := range found {
		at := offset(lines[r.line-1], r.column-1)
		begin, end := bytes.Clone(lines[r.line-1][:at]), lines[r.line-1][at:]
		lines[r.line-1] = append(begin, bytes.Replace(end, []byte(r.text), []byte(r.value), 1)...)
	}
	return bytes.Join(lines, nil), nil
}

// values appends the document's scalars that are no keys, in the order of the text.
func values(n *yaml.Node, to []*yaml.Node) []*yaml.Node {
	if n.Kind == yaml.ScalarNode {
		return append(to, n)
	}
	for i, c := range n.Content {
		if n.Kind != yaml.MappingNode || i%2 == 1 {
			to = values(c, to)
		}
	}
	return to
}

// unfit says why a variable cannot be put into a value, and what to do; empty if it can.
func unfit(n *yaml.Node, variable, value string) string {
	switch {
	case value == "":
		return fmt.Sprintf("the environment variable %s is not set; set it, or write the value", variable)
	case !plainRE.MatchString(value):
		return fmt.Sprintf("the environment variable %s is %q; only letters, digits and _ . / : - can be put here", variable, value)
	case n.Anchor != "" || n.Style&(yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0:
		return oneLine
	}
	return ""
}

// offset returns where in a line the character of that number begins.
func offset(line []byte, characters int) int {
	at := 0
	for range characters {
		_, size := utf8.DecodeRune(line[at:])
		at += size
	}
	return at
}
