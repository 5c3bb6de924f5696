package fastloop

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"vigia/internal/config"
	"vigia/isolation-agent/enforcer/notice"
)

// Site is the inventory of all nodes: which enforcers may ask which others to limit which vports.
type Site struct {
	Version int        `yaml:"version"`
	Nodes   []SiteNode `yaml:"nodes"`
	Ports   []SitePort `yaml:"ports"`
}

// SiteNode is a node that runs an enforcer.
type SiteNode struct {
	Node    string `yaml:"node"`
	Address string `yaml:"address"` // of its enforcer's notices, host:port
	Tunnel  string `yaml:"tunnel"`  // its tunnel end point; empty without tunnels
}

// SitePort is a vport and the guest behind it.
type SitePort struct {
	Node   string `yaml:"node"`
	Port   string `yaml:"port"`
	Tenant string `yaml:"tenant"`
	MAC    string `yaml:"mac"` // of the guest's interface
	IP     string `yaml:"ip"`  // of the guest in the tenant's network
}

// Validate checks the inventory.
func (s *Site) Validate() error {
	var errs []error
	fault := func(field string, value any, problem, fix string) {
		errs = append(errs, &config.FieldError{Field: field, Value: value, Problem: problem, Fix: fix})
	}
	if s.Version != 1 {
		fault("version", s.Version, "is not a known version", "write version: 1")
	}
	nodes := map[string]bool{}
	for i, n := range s.Nodes {
		at := fmt.Sprintf("nodes[%d].", i)
		if n.Node == "" || nodes[n.Node] {
			fault(at+"node", n.Node, "is empty or listed twice", "list each node once")
		}
		if _, err := netip.ParseAddrPort(n.Address); err != nil {
			fault(at+"address", n.Address, "is not address:port", "write for example 192.0.2.1:9876")
		}
		if n.Tunnel != "" && net.ParseIP(n.Tunnel) == nil {
			fault(at+"tunnel", n.Tunnel, "is not an IP address", "write the tunnel's local address")
		}
		nodes[n.Node] = true
	}
	seen := map[string]bool{}
	for i, p := range s.Ports {
		at := fmt.Sprintf("ports[%d].", i)
		mac, err := net.ParseMAC(p.MAC)
		if err != nil || len(mac) != 6 {
			fault(at+"mac", p.MAC, "is not a 48-bit MAC address", "write the guest interface's")
		}
		if key := p.Tenant + " " + mac.String(); p.Tenant == "" || p.Port == "" || seen[key] {
			fault(at+"port", p.Port, "lacks a tenant or an id, or its MAC address is listed twice for the tenant", "list each port once")
		} else {
			seen[key] = true
		}
		if !nodes[p.Node] {
			fault(at+"node", p.Node, "is not among the nodes", "list the node, or correct the name")
		}
		if net.ParseIP(p.IP) == nil {
			fault(at+"ip", p.IP, "is not an IP address", "write the guest's address in its tenant's network")
		}
	}
	return errors.Join(errs...)
}

// LoadSite reads the inventory of the site.
func LoadSite(path string) (*Site, error) {
	var s Site
	if err := config.Load(path, &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// MasterKey is a key of the site that is live.
type MasterKey struct {
	ID     uint16
	Secret []byte
}

// maxKeys live at once: the one in use, and the one before or after it.
const maxKeys = 2

// LoadKeys reads one or two live keys, a line each: a number and at least 32 bytes
// in hexadecimal. The first is used to send; the second is still, or already, heard.
// Errors never contain a key.
func LoadKeys(path string) ([]MasterKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("has mode %04o, so that others may read or change it", info.Mode().Perm())
	}
	var keys []MasterKey
	lines := bufio.NewScanner(f)
	for line := 1; lines.Scan(); line++ {
		number, secret, ok := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if number == "" || strings.HasPrefix(number, "#") {
			continue
		}
		id, err := strconv.ParseUint(number, 10, 16)
		raw, hexErr := hex.DecodeString(strings.TrimSpace(secret))
		if !ok || err != nil || hexErr != nil || len(raw) < notice.MinKey {
			return nil, fmt.Errorf("has a line %d that is not a number and at least %d bytes in hexadecimal", line, notice.MinKey)
		}
		keys = append(keys, MasterKey{uint16(id), raw})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if len(keys) == 0 || len(keys) > maxKeys || (len(keys) == maxKeys && keys[0].ID == keys[1].ID) {
		return nil, fmt.Errorf("holds %d keys; one or two with different numbers are wanted", len(keys))
	}
	return keys, nil
}
