package config

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestHostileFilesAreRefused has files that are made to cost much, or to say two things.
func TestHostileFilesAreRefused(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'j'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	for name, raw := range map[string]string{
		"a bomb of aliases":       bomb + "name: *j\n",
		"an alias of itself":      "name: &a [*a]\n",
		"a deep nest":             "name: " + strings.Repeat("[", 20000),
		"a key merged twice":      "base: &b {name: x}\n<<: *b\nname: y\n",
		"another tag":             "name: !!binary aGVsbG8=\nrate: !!python/object x\n",
		"control characters":      "name: \x01\n",
		"no UTF-8":                "name: \xff\xfe\n",
		"a list":                  "- name: a\n",
		"a number":                "7\n",
		"a tab for a blank":       "targets:\n\t- size: 1\n",
		"the same key, quoted":    "name: a\n\"name\": b\n",
		"a key that is a list":    "[a]: b\n",
		"a number of 400 digits":  "name: a\ntargets: [{size: " + strings.Repeat("9", 400) + "}]\n",
		"a truth value of old":    "name: a\ntargets: [{on: maybe}]\n",
		"an infinite rate":        "name: a\nrate: .infbit\n",
		"a rate of 400 digits":    "name: a\nrate: " + strings.Repeat("9", 400) + "bit\n",
		"a duration of centuries": "name: a\nwait: 999999999h\n",
		"three documents":         "name: a\n---\nname: a\n---\n",
	} {
		done := make(chan error, 1)
		go func() { done <- Parse("f.yaml", []byte(raw), &sample{}) }()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s was accepted", name)
			} else if !strings.HasPrefix(err.Error(), "f.yaml") || len(err.Error()) > 4000 {
				t.Errorf("%s: %.300s", name, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s takes for ever", name)
		}
	}
}

func TestErrorsPointAtTheirLine(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	for range 300 {
		var lines []string
		lines = append(lines, "name: a", "targets:")
		bad := r.IntN(8)
		want := 0
		for i := range 8 {
			for range r.IntN(3) {
				lines = append(lines, "  # a remark")
			}
			size := 100
			if i == bad {
				size = 9000
			}
			lines = append(lines, fmt.Sprintf("  - address: a%d", i))
			if r.IntN(2) == 0 {
				lines = append(lines, "    on: true")
			}
			lines = append(lines, fmt.Sprintf("    size: %d", size))
			if i == bad {
				want = len(lines)
			}
		}
		err := Parse("f.yaml", []byte(strings.Join(lines, "\n")+"\n"), &sample{})
		if prefix := fmt.Sprintf("f.yaml:%d: targets[%d].size: ", want, bad); err == nil || !strings.HasPrefix(err.Error(), prefix) {
			t.Fatalf("got %v, want it to begin with %q, in\n%s", err, prefix, strings.Join(lines, "\n"))
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	for name, path := range map[string]string{"a folder": dir, "nothing": filepath.Join(dir, "absent"), "a file below a file": filepath.Join("/etc/hostname", "x")} {
		if err := Load(path, &sample{}); err == nil || !strings.Contains(err.Error(), "read configuration") {
			t.Errorf("%s: %v", name, err)
		}
	}
	exact := filepath.Join(dir, "exact")
	content := "name: a\n#" + strings.Repeat("x", MaxSize-9)
	if err := os.WriteFile(exact, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Load(exact, &sample{}); err != nil {
		t.Errorf("a file of exactly %d bytes: %v", MaxSize, err)
	}
}

func TestRatesAndDurationsComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 4))
	for range 5000 {
		rate := Rate(r.Uint64N(1 << (1 + r.Uint64N(46))))
		back, err := ParseRate(rate.String())
		if err != nil || back != rate {
			t.Fatalf("%d is written %s, which reads %d, %v", uint64(rate), rate, uint64(back), err)
		}
		wait := Duration(r.Int64N(int64(100 * time.Hour)))
		cfg := sample{}
		if err := Parse("f.yaml", []byte("name: a\nwait: "+wait.String()+"\n"), &cfg); err != nil || cfg.Wait != wait {
			t.Fatalf("%s reads %s, %v", wait, cfg.Wait, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("name: lb1\nrate: 200Mbit\ntargets:\n  - {address: 10.0.0.1, size: 64, on: true}\n")
	f.Add("name: [\n")
	f.Add("a: &a [*a]\nname: *a")
	f.Add("name: a\nwait: 5h\n---\n")
	f.Fuzz(func(t *testing.T, raw string) {
		cfg := sample{}
		err := Parse("f.yaml", []byte(raw), &cfg)
		if err == nil && cfg.Name == "" {
			t.Errorf("%q was accepted without a name", raw)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "f.yaml") {
			t.Errorf("%q: %v", raw, err)
		}
	})
}
