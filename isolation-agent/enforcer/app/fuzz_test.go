package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vigia/internal/config"
)

// FuzzConfiguration reads any bytes as the enforcer's configuration: it is taken, or refused with the file's name.
// What is taken has contracts that the links can keep.
func FuzzConfiguration(f *testing.F) {
	token := filepath.Join(f.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("t", 32)), 0o600); err != nil {
		f.Fatal(err)
	}
	base := "node: compute1\nbpf: {pin_dir: /sys/fs/bpf/vigia, max_ports: 8}\ntoken_file: " + token + "\n"
	for _, more := range []string{
		"", "netns: x\novsdb: unix:/run/db.sock\nports_file: /etc/ports.yaml\n",
		"contracts:\n  - {tenant: red, guarantee: 40Mbit, ceiling: 200Mbit, match: [{vxlan: 110}, {vlan: 20, mac: \"02:00:00:00:00:01\"}]}\n",
		"contracts:\n  - {tenant: red, guarantee: 40Mbit, ceiling: 200Mbit, receive: {guarantee: 60Mbit, ceiling: 200Mbit, packets_per_second: 5}, packets_per_second: 1}\n" +
			"  - {tenant: red, port: db, guarantee: 20Mbit, ceiling: 50Mbit, new_flows_per_second: 9, match: [{vxlan: 110, mac: \"02:00:00:00:00:02\"}]}\n" +
			"links:\n  - {device: eth0, rate: 1Gbit, headroom: 0.05}\n",
		"links: [{device: eth0, rate: 1Mbit, headroom: 1}]\n", "links: [{device: eth0, rate: 18446744073709551615bit}]\n",
		"fast_loop: {listen: \"127.0.0.1:1\", site_file: site.yaml, keys_file: keys, variant: vigia}\n",
		"api_socket: {path: /run/x.sock, uids: [0, -1]}\n", "contracts: &a [*a]\n", "contracts: [{tenant: red, guarantee: 1e400Mbit}]\n",
	} {
		f.Add([]byte(base + more))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if strings.Contains(string(raw), "/dev/") {
			return // devices do not end
		}
		c := &Config{}
		if err := config.Parse("f.yaml", raw, c); err != nil {
			if !strings.HasPrefix(err.Error(), "f.yaml") {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		total := 0.0
		for _, each := range c.contracts.All() {
			total += float64(each.Send.GuaranteeBytesPerSecond)
		}
		for _, l := range c.links {
			if total > float64(l.RateBytesPerSecond) {
				t.Fatalf("guarantees of %g on a link of %d bytes/s were taken: %q", total, l.RateBytesPerSecond, raw)
			}
		}
	})
}
