// Package pattern keeps lists of texts and of regular expressions in protocols, whose values have
// to be comparable.
package pattern

import (
	"fmt"
	"regexp"
	"strings"

	"vigia/probes/protocol"
)

// most is how many patterns an answer is held against at most.
const most = 16

// separator is between the entries of a list; no entry has it.
const separator = "\x00"

// List is a list of texts that are not empty, as one.
type List string

// ListOf joins texts.
func ListOf(texts ...string) List { return List(strings.Join(texts, separator)) }

// Texts returns what the list was made of.
func (l List) Texts() []string {
	if l == "" {
		return nil
	}
	return strings.Split(string(l), separator)
}

// Checked joins regular expressions, and reports those that are none.
func Checked(texts []string, key string, report protocol.Report) List {
	if len(texts) > most {
		report(key, len(texts), "are too many", fmt.Sprintf("write at most %d", most))
		return ""
	}
	for i, text := range texts {
		if _, err := regexp.Compile(text); err != nil || text == "" || strings.Contains(text, separator) {
			report(fmt.Sprintf("%s[%d]", key, i), text, "is not a regular expression", "write one that RE2 knows, for example ^ok")
		}
	}
	return ListOf(texts...)
}

// Compiled returns the regular expressions of a list that was checked.
func (l List) Compiled() (out []*regexp.Regexp) {
	for _, text := range l.Texts() {
		out = append(out, regexp.MustCompile(text))
	}
	return out
}
