package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"vigia/internal/bpf/vport"
	"vigia/internal/config"
	"vigia/internal/ports"
	"vigia/isolation-agent/enforcer/api"
	"vigia/isolation-agent/enforcer/contracts"
	"vigia/isolation-agent/enforcer/limits"
)

// Config is the enforcer's configuration file.
type Config struct {
	Node      string        `yaml:"node"`
	Sources   ports.Sources `yaml:",inline"`
	BPF       vport.Config  `yaml:"bpf"`
	TokenFile string        `yaml:"token_file"`
	Links     []Link        `yaml:"links"`
	Contracts []Contract    `yaml:"contracts"`
	FastLoop  *FastLoop     `yaml:"fast_loop"`
	APISocket *api.Socket   `yaml:"api_socket"`
}

// Contract is what a tenant, or one port of it, bought, each way unless receive says
// otherwise.
type Contract struct {
	Tenant    string      `yaml:"tenant"`
	Port      string      `yaml:"port"` // empty: all ports of the tenant that have no contract of their own
	Guarantee config.Rate `yaml:"guarantee"`
	Ceiling   config.Rate `yaml:"ceiling"`
	Receive   *Direction  `yaml:"receive"`
	Match     []Match     `yaml:"match"`
	Packets   uint64      `yaml:"packets_per_second"`   // that a port may send; 0 for any number
	NewFlows  uint64      `yaml:"new_flows_per_second"` // that a port may begin; 0 for any number
}

// name identifies the contract among those of the node.
func (k *Contract) name() string { return contracts.Name(k.Tenant, k.Port) }

var nodeRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

const (
	minToken = 16
	maxToken = 4096
)

func load(path string) (Config, error) {
	var c Config
	err := config.Load(path, &c)
	return c, err
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	var errs []error
	fault := func(field string, value any, problem, fix string) {
		errs = append(errs, &config.FieldError{Field: field, Value: value, Problem: problem, Fix: fix})
	}
	if !nodeRE.MatchString(c.Node) {
		fault("node", c.Node, "is not a node name", "write the host's name")
	}
	if _, err := readToken(c.TokenFile); err != nil {
		fault("token_file", c.TokenFile, err.Error(), fmt.Sprintf("write a file of mode 0600 with %d characters or more", minToken))
	}
	seen := make(map[string]bool) // by name: the classes of two contracts must not be one
	for i, k := range c.Contracts {
		at := fmt.Sprintf("contracts[%d].", i)
		if k.Tenant == "" || seen[k.name()] {
			fault(at+"tenant", k.name(), "is empty or listed twice", "give every tenant one contract, and every port at most one of its own")
		}
		if k.Guarantee == 0 {
			fault(at+"guarantee", k.Guarantee, "is missing", "write what the tenant bought, for example 40Mbit")
		}
		if k.Ceiling < k.Guarantee {
			fault(at+"ceiling", k.Ceiling, fmt.Sprintf("is below the guarantee of %s", k.Guarantee), "write at least the guarantee")
		}
		if r := k.Receive; r != nil && (r.Guarantee == 0 || r.Ceiling < r.Guarantee) {
			fault(at+"receive", r.Guarantee, "is no guarantee, or above the ceiling", "write guarantee and ceiling, or leave receive out")
		}
		seen[k.name()] = true
	}
	if c.APISocket != nil && !filepath.IsAbs(c.APISocket.Path) {
		fault("api_socket.path", c.APISocket.Path, "is not an absolute path", "write for example /run/vigia/enforcer.sock")
	}
	c.validateLinks(fault)
	if len(errs) == 0 {
		errs = append(errs, c.admit())
	}
	return errors.Join(append(errs, c.validateFastLoop(), c.Sources.Validate(), c.BPF.Validate())...)
}

// readToken reads the bearer token. Errors never contain it.
func readToken(path string) (string, error) {
	if path == "" {
		return "", errors.New("is missing")
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("has mode %04o, so that others may read or change it", info.Mode().Perm())
	}
	buf := make([]byte, maxToken+1)
	n, err := f.Read(buf)
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", err)
	}
	token := strings.TrimSpace(string(buf[:n]))
	if len(token) < minToken || n > maxToken {
		return "", fmt.Errorf("holds %d characters", len(token))
	}
	return token, nil
}

func (c *Config) contracts() limits.Contracts {
	out := make(limits.Contracts, len(c.Contracts))
	for _, k := range c.Contracts {
		contract := limits.Contract{
			Guarantee: uint64(k.Guarantee), Ceiling: uint64(k.Ceiling), Received: uint64(k.Guarantee), Packets: k.Packets, NewFlows: k.NewFlows,
		}
		if k.Receive != nil {
			contract.Received, contract.Receive = uint64(k.Receive.Guarantee), k.Receive.Packets
		}
		out[limits.Owner{Tenant: k.Tenant, Port: k.Port}] = contract
	}
	return out
}
