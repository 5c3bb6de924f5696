package node

import (
	"errors"
	"path/filepath"
	"regexp"

	"vigia/internal/bpf/vport"
	"vigia/internal/config"
	"vigia/internal/ports"
)

// Config is what the configuration of every program has that works at a node's ports.
// None of it can change while the program runs.
type Config struct {
	Name    string        `yaml:"node"` // the host's name, label node of every series; required
	Sources ports.Sources `yaml:",inline"`
	BPF     vport.Config  `yaml:"bpf"` // the programs at ports
}

// EnforcerPins returns the folder of the pins that are vigia-enforcer's alone, below
// bpf.pin_dir.
func EnforcerPins(pinDir string) string { return filepath.Join(pinDir, "enforcer") }

var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// Validate checks the configuration.
func (c *Config) Validate() error {
	var name error
	if !nameRE.MatchString(c.Name) {
		name = &config.FieldError{Field: "node", Value: c.Name, Problem: "is not a node name", Fix: "write the host's name: letters, digits, '.', '_' and '-', at most 63"}
	}
	return errors.Join(name, c.Sources.Validate(), c.BPF.Validate())
}
