package config

import (
	"strings"
	"testing"
)

func TestVariablesAreReplacedInValuesAlone(t *testing.T) {
	t.Setenv("NODE_NAME", "worker-1")
	t.Setenv("HOST_IP", "10.0.0.1")
	t.Setenv("HOST_IP6", "2001:db8::1")
	for _, tc := range []struct{ raw, name, address string }{
		{"name: ${NODE_NAME}\n", "worker-1", ""},
		{"name: \"${NODE_NAME}\" # not ${UNSET}\n", "worker-1", ""},
		{"# ${UNSET}\nname: é-${NODE_NAME}-${NODE_NAME}\n", "é-worker-1-worker-1", ""},
		{"{name: 'é ${NODE_NAME}', targets: [{address: '${HOST_IP}:862', size: 64}]}\n", "é worker-1", "10.0.0.1:862"},
		{"{targets: [{address: \"[${HOST_IP6}]:862\"}], name: '${NODE_NAME}'}", "worker-1", "[2001:db8::1]:862"},
		{"{name: \"$NODE_NAME $ {NODE_NAME} $()\"}", "$NODE_NAME $ {NODE_NAME} $()", ""},
	} {
		var got sample
		if err := Parse("f.yaml", []byte(tc.raw), &got); err != nil {
			t.Errorf("%q: %v", tc.raw, err)
			continue
		}
		address := ""
		if len(got.Targets) > 0 {
			address = got.Targets[0].Address
		}
		if got.Name != tc.name || address != tc.address {
			t.Errorf("%q: name %q, address %q, want %q, %q", tc.raw, got.Name, address, tc.name, tc.address)
		}
	}
}

func TestWhatCannotBeReplacedIsNamedWithItsLine(t *testing.T) {
	t.Setenv("EMPTY", "")
	t.Setenv("NODE_NAME", "worker-1")
	t.Setenv("HOSTILE", "a, targets: [{size: 1}]")
	t.Setenv("LINES", "a\nb: c")
	t.Setenv("COLON", "a:")
	for _, tc := range []struct{ raw, want string }{
		{"more: x\nname: ${UNSET_NAME}\n", `f.yaml:2: "${UNSET_NAME}": the environment variable UNSET_NAME is not set; set it, or write the value`},
		{"name: ${EMPTY}\n", "EMPTY is not set"},
		{"name: ${HOSTILE}\n", "only letters, digits"},
		{"name: ${LINES}\n", "only letters, digits"},
		{"name: ${COLON}\n", "only letters, digits"},
		{"name: |\n  ${NODE_NAME}\n", "stands in one line"},
		{"name: &n ${NODE_NAME}\nmore: *n\n", "stands in one line"},
		{"name: !!str ${NODE_NAME}\n", "stands in one line"},
		{"name: \"worker\n  ${NODE_NAME}\"\n", "f.yaml:1: "},
		{"more: ${UNSET_A}\nname: ${UNSET_B}\n", "UNSET_B is not set"},
	} {
		err := Parse("f.yaml", []byte(tc.raw), new(sample))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want %q", tc.raw, err, tc.want)
		}
	}
}

// A mistake after a variable is still in the line that the file has it in.
func TestNoLineMoves(t *testing.T) {
	t.Setenv("NODE_NAME", "worker-1")
	err := Parse("f.yaml", []byte("more: ${NODE_NAME}\nname: ${NODE_NAME}\ntargts: []\n"), new(sample))
	if err == nil || !strings.Contains(err.Error(), `f.yaml:3: unknown key "targts"`) {
		t.Error(err)
	}
}

func FuzzVariablesNeverPanic(f *testing.F) {
	for _, seed := range []string{"name: ${NODE_NAME}", "{a: '${NODE_NAME}', b: \"\\\n ${NODE_NAME}\"}", "- &a ${NODE_NAME}\n- *a\n- ? ${NODE_NAME}\n", "é: ü${NODE_NAME}\r\n${NODE_NAME}: x"} {
		f.Add(seed)
	}
	f.Setenv("NODE_NAME", "worker-1")
	f.Fuzz(func(_ *testing.T, raw string) {
		_ = Parse("f.yaml", []byte(raw), new(sample))
	})
}
