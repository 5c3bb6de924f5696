package vport

import (
	"errors"
	"path/filepath"

	"vigia/internal/config"
)

// Config is the bpf section of a program's configuration.
type Config struct {
	PinDir   string `yaml:"pin_dir"`   // directory on a bpffs, shared by exporter and enforcer; required
	MaxPorts int    `yaml:"max_ports"` // ports at most; 0 for 1024

	Attachment Attachment `yaml:"attachment"` // how programs get onto tc: tcx (Linux 6.6), clsact, or auto, the default
}

// maxMaxPorts bounds the kernel memory of the maps: about 4.4 kB a port.
const maxMaxPorts = 1 << 16

// Ports returns how many ports there may be.
func (c *Config) Ports() int {
	if c.MaxPorts == 0 {
		return defaultMaxPorts
	}
	return c.MaxPorts
}

// Validate checks the section.
func (c *Config) Validate() error {
	var errs []error
	if !filepath.IsAbs(c.PinDir) {
		errs = append(errs, &config.FieldError{
			Field: "bpf.pin_dir", Value: c.PinDir, Problem: "is not an absolute path", Fix: "write a directory on a bpffs such as /sys/fs/bpf/vigia",
		})
	}
	if c.MaxPorts < 0 || c.MaxPorts > maxMaxPorts {
		errs = append(errs, &config.FieldError{Field: "bpf.max_ports", Value: c.MaxPorts, Problem: "is out of range", Fix: "write 1 to 65536, or nothing for 1024"})
	}
	switch c.Attachment {
	case "", Auto, TCXLinks, ClsactFilters:
	default:
		errs = append(errs, &config.FieldError{Field: "bpf.attachment", Value: c.Attachment, Problem: "is unknown", Fix: "write auto, tcx or clsact"})
	}
	return errors.Join(errs...)
}
