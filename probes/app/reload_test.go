package app

import (
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"vigia/probes/settings"
)

// TestEveryLiveFieldHasItsPart: what settings.Live has is put into force by something.
func TestEveryLiveFieldHasItsPart(t *testing.T) {
	taken := prepared()
	for _, p := range (&service{}).parts() {
		if slices.Contains(taken, p.field) {
			t.Errorf("%s is taken twice", p.field)
		}
		taken = append(taken, p.field)
	}
	live := reflect.TypeFor[settings.Live]()
	for i := range live.NumField() {
		if name := live.Field(i).Name; !slices.Contains(taken, name) {
			t.Errorf("a reload would ignore %s: add it to parts", name)
		}
	}
	for _, name := range taken {
		if _, ok := live.FieldByName(name); !ok {
			t.Errorf("settings.Live has no field %s", name)
		}
	}
}

// TestFixedKeysAreRefused by a reload, which then changes nothing else either.
func TestFixedKeysAreRefused(t *testing.T) {
	t.Parallel()
	left, right := network(t)
	start(t, node("b", right, "10.9.0.2")+bulkTests("b", "a", right, "10.9.0.2", "10.9.0.1"))
	state := filepath.Join(t.TempDir(), "spent.json")
	config := strings.Replace(node("a", left, "10.9.0.1", aim("b", "stamp-64", left, "10.9.0.1", "10.9.0.2:862"))+
		bulkTests("a", "b", left, "10.9.0.1", "10.9.0.2"), "bulk:\n", "bulk:\n  state: "+state+"\n", 1)
	a := start(t, config)
	a.waitFor("answers", func() bool { v, _ := a.scrape().value("vigia_probe_received_total", "dst", "b"); return v > 5 })
	changed := strings.NewReplacer(state, state+".new", "dst: b, path: direct, tenant: _infra, probe: stamp-64", "dst: c, path: direct, tenant: _infra, probe: stamp-64").Replace(config)
	code, body := a.reload(changed)
	for _, want := range []string{`bulk.state: "` + state + `.new"`, "cannot change while vigia-probe runs", "restart vigia-probe"} {
		if code < 400 || !strings.Contains(body, want) {
			t.Errorf("%d %s, want %q", code, body, want)
		}
	}
	if _, ok := a.scrape().value("vigia_probe_sent_total", "dst", "c"); ok {
		t.Error("a part of what was refused is in force")
	}
	before, _ := a.scrape().value("vigia_probe_received_total", "dst", "b")
	a.waitFor("more answers", func() bool { v, _ := a.scrape().value("vigia_probe_received_total", "dst", "b"); return v > before+5 })
	if code, body := a.reload(strings.Replace(changed, state+".new", state, 1)); code != http.StatusOK {
		t.Errorf("the rest of the change: %d %s", code, body)
	}
}
