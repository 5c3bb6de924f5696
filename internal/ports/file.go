package ports

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"vigia/internal/config"
)

// Entry gives one port its identity in a ports file.
type Entry struct {
	Device   string `yaml:"device"`   // name of the interface in the node
	Port     string `yaml:"port"`     // stable id, the label
	Tenant   string `yaml:"tenant"`   // immutable id of who pays
	Network  string `yaml:"network"`  // the tenant's network; optional
	Workload string `yaml:"workload"` // optional, for example the VM
}

// fileContent is a ports file.
type fileContent struct {
	Version int     `yaml:"version"` // of the format, 1
	Asked   int64   `yaml:"asked"`   // when the cloud was asked, in Unix seconds; 0 for what was written by hand
	Ports   []Entry `yaml:"ports"`   // the ports that nothing else identifies
}

// age returns how old the file's knowledge is; a clock that is ahead makes it no younger than new.
func (f *fileContent) age(now time.Time) time.Duration {
	if f == nil || f.Asked == 0 {
		return 0
	}
	return max(0, now.Sub(time.Unix(f.Asked, 0)))
}

// labelRE bounds what becomes a label value: ids, never free text.
var labelRE = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:/@-]{0,127}$`)

// ValidID tells whether s can be the id of a port or tenant, as a label's value.
func ValidID(s string) bool { return labelRE.MatchString(s) }

const maxDevice = 15 // IFNAMSIZ - 1

// Validate checks every entry.
func (f *fileContent) Validate() error {
	var errs []error
	fault := func(field string, value any, problem, fix string) {
		errs = append(errs, &config.FieldError{Field: field, Value: value, Problem: problem, Fix: fix})
	}
	if f.Version != 1 {
		fault("version", f.Version, "is not a known version", "write version: 1")
	}
	if f.Asked < 0 {
		fault("asked", f.Asked, "is not a time", "write Unix seconds, or leave it out")
	}
	devices, ids := map[string]bool{}, map[string]bool{}
	for i, e := range f.Ports {
		at := func(key string) string { return fmt.Sprintf("ports[%d].%s", i, key) }
		if e.Device == "" || len(e.Device) > maxDevice {
			fault(at("device"), e.Device, "is not an interface name", "write 1 to 15 characters")
		}
		if devices[e.Device] {
			fault(at("device"), e.Device, "is listed twice", "keep one entry")
		}
		if ids[e.Port] {
			fault(at("port"), e.Port, "is used twice", "give every port its own id")
		}
		devices[e.Device], ids[e.Port] = true, true
		for key, value := range map[string]string{"port": e.Port, "tenant": e.Tenant} {
			if !labelRE.MatchString(value) {
				fault(at(key), value, "is not an id", "use letters, digits and _ . : / @ -, at most 128")
			}
		}
	}
	return errors.Join(errs...)
}

// CheckFile reads and validates a ports file and returns how many ports it has.
func CheckFile(path string) (int, error) {
	var f fileContent
	if err := config.Load(path, &f); err != nil {
		return 0, err
	}
	return len(f.Ports), nil
}

// newFile returns the ports file, nil without a path.
func newFile(path string) *namedPorts {
	return config.NewFile[fileContent](path, "create it or remove ports_file")
}

type namedPorts = config.File[fileContent, *fileContent]
