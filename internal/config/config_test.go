package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type sample struct {
	Name    string   `yaml:"name"`
	Rate    Rate     `yaml:"rate"`
	Wait    Duration `yaml:"wait"`
	Targets []target `yaml:"targets"`
	Extra   extra    `yaml:",inline"`
}

type extra struct {
	More string `yaml:"more"`
}

type target struct {
	Address string `yaml:"address"`
	Size    int    `yaml:"size"`
	On      bool   `yaml:"on"`
}

func (s *sample) Validate() error {
	var errs []error
	if s.Name == "" {
		errs = append(errs, &FieldError{Field: "name", Problem: "is missing", Fix: "add name: NODE"})
	}
	for i, t := range s.Targets {
		if t.Size > 1500 {
			errs = append(errs, &FieldError{
				Field: "targets[" + string(rune('0'+i)) + "].size", Value: t.Size, Problem: "is too large", Fix: "at most 1500",
			})
		}
	}
	return errors.Join(errs...)
}

func TestParseAccepts(t *testing.T) {
	cfg := sample{Wait: Duration(time.Second)}
	raw := "name: lb1\nrate: 200Mbit\ntargets:\n  - {address: 10.0.0.1, size: 64, on: true}\n"
	if err := Parse("f.yaml", []byte(raw), &cfg); err != nil {
		t.Fatal(err)
	}
	if cfg.Rate != 25_000_000 || time.Duration(cfg.Wait) != time.Second || cfg.Targets[0].Size != 64 {
		t.Errorf("got %+v", cfg)
	}
}

func TestParseErrorsNameLineFieldAndFix(t *testing.T) {
	for _, tc := range []struct{ name, raw, want string }{
		{"empty", "# nothing\n", "f.yaml: the file is empty"},
		{"not yaml", "name: [\n", "f.yaml: "},
		{"unknown key", "name: a\ntargts: []\n", `f.yaml:2: unknown key "targts"; known here: more, name, rate, targets, wait`},
		{"unknown nested key", "name: a\ntargets:\n  - addr: x\n", `f.yaml:3: unknown key "addr"; known here: address, on, size`},
		{"repeated key", "name: a\nname: b\n", `f.yaml:2: key "name" appears twice (first in line 1); keep one`},
		{"list for text", "name: [a]\n", "f.yaml:1: a text is wanted here, not list"},
		{"text for list", "name: a\ntargets: x\n", "f.yaml:2: a list is wanted here, not text"},
		{"text for number", "name: a\ntargets:\n  - size: big\n", `f.yaml:3: a number is wanted here, not text "big"`},
		{"bad rate", "name: a\nrate: 200MB\n", `f.yaml:2: "200MB" is not a rate; write for example 200Mbit`},
		{"bad duration", "name: a\nwait: 5\n", `f.yaml:2: "5" is not a duration`},
		{"missing field", "rate: 1Gbit\n", "f.yaml:1: name: is missing; add name: NODE"},
		{"bad element", "name: a\ntargets:\n  - address: x\n  - address: y\n    size: 9000\n", `f.yaml:5: targets[1].size: "9000": is too large; at most 1500`},
		{"two documents", "name: a\n---\nname: b\n", "more than one YAML document"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Parse("f.yaml", []byte(tc.raw), &sample{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v\nwant an error that says %q", err, tc.want)
			}
		})
	}
}

func TestParseReportsAllErrors(t *testing.T) {
	err := Parse("f.yaml", []byte("rate: 1bit\ntargets: [{size: 9000}]\n"), &sample{})
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Fatalf("want two lines, got %v", err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if err := Load(filepath.Join(dir, "absent.yaml"), &sample{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: got %v", err)
	}
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, make([]byte, MaxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Load(big, &sample{}); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("huge file: got %v", err)
	}
	good := filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(good, []byte("name: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Load(good, &sample{}); err != nil {
		t.Error(err)
	}
}

func TestRate(t *testing.T) {
	for in, want := range map[string]Rate{"8bit": 1, "64kbit": 8000, "1.5Mbit": 187_500, "1Gbit": 125_000_000} {
		got, err := ParseRate(in)
		if err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "5", "5Mb", "-1Mbit", "1e3bit", "Mbit"} {
		if _, err := ParseRate(in); err == nil {
			t.Errorf("%q was accepted", in)
		}
	}
	for r, want := range map[Rate]string{25_000_000: "200Mbit", 187_500: "1500kbit", 1: "8bit"} {
		if r.String() != want {
			t.Errorf("got %s, want %s", r, want)
		}
	}
}
