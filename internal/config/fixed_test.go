package config

import (
	"errors"
	"strings"
	"testing"
	"time"
)

type fixedPart struct {
	Name    string         `yaml:"name"`
	Wait    Duration       `yaml:"wait"`
	Extra   extra          `yaml:",inline"`
	List    []string       `yaml:"list"`
	Section *fixedSection  `yaml:"section"`
	Limits  map[string]int `yaml:"limits,omitempty"`
	hidden  int
}

type fixedSection struct {
	Listen string `yaml:"listen"`
	Inner  target `yaml:"inner"`
}

func fixedValue() fixedPart {
	return fixedPart{
		Name: "n1", Wait: Duration(time.Second), Extra: extra{More: "x"}, List: []string{"a", "b"}, Limits: map[string]int{"a": 1},
		Section: &fixedSection{Listen: ":1", Inner: target{Address: "h", Size: 5, On: true}},
	}
}

func TestWhatDoesNotChangeIsNoError(t *testing.T) {
	if err := Unchanged("vigia-test", fixedValue(), fixedValue()); err != nil {
		t.Error(err)
	}
	if err := Unchanged("vigia-test", fixedPart{}, fixedPart{}); err != nil {
		t.Error(err)
	}
}

func TestEveryFixedKeyThatChangesIsNamed(t *testing.T) {
	for want, change := range map[string]func(*fixedPart){
		`name: "n2": cannot change while vigia-test runs with "n1"; restart vigia-test, or change it back`:                                      func(p *fixedPart) { p.Name = "n2" },
		`wait: "2s": cannot change while vigia-test runs with "1s"; restart vigia-test, or change it back`:                                      func(p *fixedPart) { p.Wait *= 2 },
		`more: "y": cannot change while vigia-test runs with "x"; restart vigia-test, or change it back`:                                        func(p *fixedPart) { p.Extra.More = "y" },
		`list: "[a]": cannot change while vigia-test runs with "[a b]"; restart vigia-test, or change it back`:                                  func(p *fixedPart) { p.List = p.List[:1] },
		`limits: "map[a:2]": cannot change while vigia-test runs with "map[a:1]"; restart vigia-test, or change it back`:                        func(p *fixedPart) { p.Limits = map[string]int{"a": 2} },
		`section.listen: ":2": cannot change while vigia-test runs with ":1"; restart vigia-test, or change it back`:                            func(p *fixedPart) { p.Section = &fixedSection{":2", p.Section.Inner} },
		`section.inner.size: "6": cannot change while vigia-test runs with "5"; restart vigia-test, or change it back`:                          func(p *fixedPart) { s := *p.Section; s.Inner.Size = 6; p.Section = &s },
		`section: "no such section": cannot change while vigia-test runs with "such a section"; restart vigia-test, or change it back`:          func(p *fixedPart) { p.Section = nil },
		`the configuration differs in what cannot change while vigia-test runs; restart vigia-test`:                                             func(p *fixedPart) { p.hidden = 1 },
		"name: \"n2\": cannot change while vigia-test runs with \"n1\"; restart vigia-test, or change it back\nmore: \"\": cannot change while": func(p *fixedPart) { p.Name, p.Extra.More = "n2", "" },
	} {
		changed := fixedValue()
		change(&changed)
		err := Unchanged("vigia-test", fixedValue(), changed)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestASectionThatIsNewIsNamed(t *testing.T) {
	before := fixedValue()
	before.Section = nil
	err := Unchanged("vigia-test", before, fixedValue())
	var field *FieldError
	if !errors.As(err, &field) || field.Field != "section" || field.Value != "such a section" {
		t.Errorf("got %v", err)
	}
}
