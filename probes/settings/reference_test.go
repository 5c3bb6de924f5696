package settings

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestEveryKeyIsExplained walks the whole file, and compares with the page that is
// made of it.
func TestEveryKeyIsExplained(t *testing.T) {
	keys := Keys()
	for _, k := range keys {
		if k.Help == "" || strings.ContainsAny(k.Help, "|\n") || k.Type == "" {
			t.Errorf("%+v", k)
		}
	}
	for _, want := range []Key{
		{"node", "text", "label `src` of every series of this node; required"},
		{"targets[].address", "text", "IP:port or name:port, without port for ICMP; required"},
		{"classes[].path_mtu.interval", "duration", "between two searches, 10s to 24h, default 10m"},
		{"bulk.classes[].rates[]", "list of rate", "of UDP tests, for example 100Mbit"},
		{"health.steal", "number", "share of time that the hypervisor takes, default 0.1"},
		{"discovery[].targets[].port", "integer", "of the nodes, default 862"},
	} {
		if !slices.Contains(keys, want) {
			t.Errorf("no %+v", want)
		}
	}
	var table bytes.Buffer
	if err := WriteKeys(&table); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/reference/probe-configuration.md")
	if err != nil || !strings.Contains(string(page), table.String()) {
		t.Errorf("docs/reference/probe-configuration.md is out of date, run make generate: %v", err)
	}
}
