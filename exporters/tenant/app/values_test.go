package app

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/exporters/tenant/scrape"
	"vigia/exporters/tenant/source"
	"vigia/internal/bpf/vport"
	"vigia/internal/catalog"
	"vigia/internal/catalog/catalogtest"
	"vigia/internal/openflow"
)

// TestClosedLabels compares what the sources can emit with the catalogue. Constants are
// read where they are emitted; what is computed there is listed here, from the code
// that computes it.
func TestClosedLabels(t *testing.T) {
	code := catalogtest.Load(t, "vigia/exporters/tenant/...")
	values, computed := code.Emitted(t, "exporter")
	lists := computedValues(t, code)
	for what := range computed {
		if strings.HasSuffix(what, ".direction") {
			lists[what] = []string{source.FromTenant, source.ToTenant}
		}
	}
	for what, expressions := range computed {
		if lists[what] == nil {
			t.Errorf("%s is computed from %v: list its values", what, expressions)
		}
	}
	for what, list := range lists {
		if computed[what] == nil {
			t.Errorf("%s is not computed any more: remove its list", what)
		}
		values.Add(what, list...)
	}
	catalogtest.Compare(t, "exporter", values)
}

// computedValues are those of labels whose values are no constants where they are
// emitted.
func computedValues(t *testing.T, code *catalogtest.Code) map[string][]string {
	t.Helper()
	inventory := catalogtest.Load(t, "vigia/internal/ports")
	hooks := slices.DeleteFunc(catalogtest.Load(t, "vigia/internal/bpf/vport").Strings(t, "String"), func(s string) bool {
		return strings.Contains(s, "%")
	})
	reasons := make([]string, 0, len(source.Reasons()))
	for _, r := range source.Reasons() {
		reasons = append(reasons, string(r))
	}
	sizes := []string{"max"}
	for _, bound := range openflow.SizeBounds() {
		sizes = append(sizes, strconv.Itoa(bound))
	}
	c, err := catalog.Load()
	if err != nil {
		t.Fatal(err)
	}
	engine := scrape.New(scrape.Options{Families: c.NewFactory("exporter", prometheus.NewRegistry())}) // with its own collector alone
	protocols := vport.Protocols()
	var names []string
	for _, c := range collectors() {
		names = append(names, c.name)
	}
	identities := append(slices.Clone(names), inventory.Field(t, "SourceState", "Name")...)
	settings := code.Constants(t, "rtnl.Setting")
	return map[string][]string{
		"vigia_exporter_collector_success.collector":          identities,
		"vigia_exporter_source_age_seconds.source":            identities,
		"vigia_exporter_collector_duration_seconds.collector": names,
		"vigia_exporter_series_limited_total.collector":       append(slices.Clone(names), engine.Names()...),
		"vigia_ovs_datapath_lookups_total.result":             code.Compared(t, "result"),
		"vigia_port_drops_total.reason":                       reasons,
		"vigia_port_frames_by_size_total.size":                sizes,
		"vigia_port_info.data_plane":                          inventory.Field(t, "Port", "DataPlane"),
		"vigia_port_info.hook":                                append(hooks, "none"),
		"vigia_port_info.source":                              append(inventory.Field(t, "identity", "Source"), ""),
		"vigia_port_kernel_drops_total.protocol":              protocols[:],
		"vigia_tenant_protocol_bytes_total.protocol":          protocols[:],
		"vigia_tenant_protocol_packets_total.protocol":        protocols[:],
		"vigia_resource_seconds_total.kind":                   {"queue"}, // a link's
		"vigia_resource_utilization_ratio.kind":               {"queue"},
		"vigia_tenant_resource_seconds_total.kind":            code.Strings(t, "kind"),
		"vigia_vf_config_info.spoof_check":                    settings,
		"vigia_vf_config_info.trust":                          settings,
		"vigia_vf_config_info.link_state":                     append(code.Constants(t, "rtnl.LinkState"), ""),
		"vigia_vf_info.source":                                append(code.Field(t, "vf.Owner", "Source"), ""),
	}
}

// TestReasonsAreAllReasons looks at the list that others use.
func TestReasonsAreAllReasons(t *testing.T) {
	constants := catalogtest.Load(t, "vigia/exporters/tenant/source").Constants(t, "Reason")
	if len(constants) != len(source.Reasons()) {
		t.Errorf("%d reasons are declared, %d are listed", len(constants), len(source.Reasons()))
	}
}
