package pattern

import (
	"slices"
	"strings"
	"testing"
)

func TestListsAreComparable(t *testing.T) {
	a, b := ListOf("one", "two"), ListOf("one", "two")
	if a != b || a == ListOf("one two") || ListOf() != "" || ListOf().Texts() != nil {
		t.Errorf("%q %q", a, b)
	}
	if got := a.Texts(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("%q", got)
	}
}

func TestPatternsAreChecked(t *testing.T) {
	var said []string
	report := func(key string, _ any, problem, fix string) { said = append(said, key+" "+problem+"; "+fix) }
	good := Checked([]string{"^ok$", "a,b"}, "key", report)
	compiled := good.Compiled()
	if len(said) != 0 || len(compiled) != 2 || !compiled[0].MatchString("ok") || compiled[1].MatchString("ok") {
		t.Errorf("%v %v", said, compiled)
	}
	for _, bad := range []string{"(", "", "a\x00b"} {
		said = nil
		Checked([]string{"x", bad}, "key", report)
		if len(said) != 1 || !strings.HasPrefix(said[0], "key[1] is not a regular expression; write ") {
			t.Errorf("%q: %v", bad, said)
		}
	}
	said = nil
	if l := Checked(slices.Repeat([]string{"x"}, most+1), "key", report); l != "" || len(said) != 1 || !strings.Contains(said[0], "at most 16") {
		t.Errorf("%q %v", l, said)
	}
}
