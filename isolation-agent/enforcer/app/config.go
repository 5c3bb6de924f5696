package app

import (
	"errors"
	"fmt"
	"path/filepath"

	"vigia/internal/config"
	"vigia/internal/node"
	"vigia/internal/secret"
	"vigia/isolation-agent/enforcer/api"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/fastloop/control"
	"vigia/isolation-agent/enforcer/scheduling"
)

// Config is the enforcer's configuration file.
type Config struct {
	Node          node.Config    `yaml:",inline"`
	TokenFile     string         `yaml:"token_file"`     // bearer token of the API, mode 0600, 16 characters or more; required
	Links         []linkKeys     `yaml:"links"`          // uplinks on which guarantees are scheduled; without them nothing is
	Contracts     []contractKeys `yaml:"contracts"`      // what tenants bought; one without cannot be limited
	ContractsFile string         `yaml:"contracts_file"` // further contracts, read again when it changes
	FastLoop      *fastLoopKeys  `yaml:"fast_loop"`      // notices between enforcers; without it there are none
	APISocket     *api.Socket    `yaml:"api_socket"`     // the API on a socket of this machine

	// What the keys mean, once they are valid.
	links     []scheduling.Link
	contracts *contract.Set
}

// fixed is what a running enforcer cannot change. All else is live: a reload takes it up.
type fixed struct {
	Node      node.Config    `yaml:",inline"`
	Links     *struct{}      `yaml:"links"` // whether there are any
	FastLoop  *fixedFastLoop `yaml:"fast_loop"`
	APISocket *fixedSocket   `yaml:"api_socket"`
}

type fixedFastLoop struct {
	Listen  string          `yaml:"listen"`
	Variant control.Variant `yaml:"variant"`
}

type fixedSocket struct {
	Path string `yaml:"path"`
}

func (c *Config) fixed() fixed {
	out := fixed{Node: c.Node}
	if len(c.Links) > 0 {
		out.Links = &struct{}{}
	}
	if f := c.FastLoop; f != nil {
		out.FastLoop = &fixedFastLoop{Listen: f.Listen, Variant: f.variant()}
	}
	if s := c.APISocket; s != nil {
		out.APISocket = &fixedSocket{Path: s.Path}
	}
	return out
}

func load(path string) (*Config, error) {
	c := &Config{}
	if err := config.Load(path, c); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate checks the configuration and converts it to what it means.
func (c *Config) Validate() error {
	var f faults
	if _, err := secret.ReadToken(c.TokenFile); err != nil {
		f.add("token_file", c.TokenFile, err.Error(), fmt.Sprintf("write a file of mode 0600 with %d to %d characters", secret.MinToken, secret.MaxToken))
	}
	if c.APISocket != nil && !filepath.IsAbs(c.APISocket.Path) {
		f.add("api_socket.path", c.APISocket.Path, "is not an absolute path", "write for example /run/vigia/enforcer.sock")
	}
	if c.ContractsFile != "" && !filepath.IsAbs(c.ContractsFile) {
		f.add("contracts_file", c.ContractsFile, "is not an absolute path", "write for example /run/vigia/site/contracts.yaml")
	}
	errs := append(f, c.Node.Validate(), c.convertContracts(), c.convertLinks())
	if errors.Join(errs...) == nil {
		errs = append(errs, c.admit(c.contracts))
	}
	return errors.Join(append(errs, c.validateFastLoop())...)
}
