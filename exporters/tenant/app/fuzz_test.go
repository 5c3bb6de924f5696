package app

import (
	"strings"
	"testing"
	"time"

	"vigia/internal/config"
)

// FuzzConfiguration reads any bytes as the exporter's configuration: it is taken within its bounds, or refused with
// the file's name.
func FuzzConfiguration(f *testing.F) {
	const base = "node: compute1\nbpf: {pin_dir: /sys/fs/bpf/vigia, max_ports: 8}\n"
	for _, more := range []string{
		"", "netns: x\novsdb: unix:/run/db.sock\nports_file: /etc/ports.yaml\n", "flood: {packets: 1, ports: 1000, max_reply_percent: 100, quiet: 100ms}\n",
		"flood: {ports: -1}\n", "limits: {series: 18446744073709551615, gone: 1h}\n", "openflow: {every: 1ns}\n", "tenants: {red: blue}\n",
		"tenants_file: relative\n", "tenants: &a [*a]\n", "flood: {quiet: 9e999h}\n",
	} {
		f.Add([]byte(base + more))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := defaults()
		if err := config.Parse("f.yaml", raw, &c); err != nil {
			if !strings.HasPrefix(err.Error(), "f.yaml") {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if q := time.Duration(c.Flood.Quiet); c.Flood.Packets == 0 || c.Flood.Ports == 0 || c.Flood.Ports > 1000 || q < 100*time.Millisecond || q > time.Minute {
			t.Fatalf("%+v was taken: %q", c.Flood, raw)
		}
	})
}
