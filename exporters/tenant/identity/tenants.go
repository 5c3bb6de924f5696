package identity

import (
	"errors"
	"fmt"

	"vigia/internal/config"
)

// Tenant gives a tenant's id a name.
type Tenant struct {
	ID   string `yaml:"id"`   // immutable id, the label tenant
	Name string `yaml:"name"` // what people call the tenant
}

const maxName = 128

// Check tells what is wrong with a list of tenants.
func Check(tenants []Tenant) error {
	var errs []error
	fault := func(i int, field string, value any, problem, fix string) {
		errs = append(errs, &config.FieldError{Field: fmt.Sprintf("tenants[%d].%s", i, field), Value: value, Problem: problem, Fix: fix})
	}
	seen := make(map[string]bool, len(tenants))
	for i, t := range tenants {
		if t.ID == "" || seen[t.ID] {
			fault(i, "id", t.ID, "is empty or listed twice", "give every tenant one entry")
		}
		if t.Name == "" || len(t.Name) > maxName {
			fault(i, "name", t.Name, "is empty or too long", fmt.Sprintf("write at most %d characters", maxName))
		}
		seen[t.ID] = true
	}
	return errors.Join(errs...)
}

// tenantsFile is the content of a file of tenants.
type tenantsFile struct {
	Version int      `yaml:"version"`
	Tenants []Tenant `yaml:"tenants"`
}

// Validate checks the file.
func (f *tenantsFile) Validate() error {
	if f.Version != 1 {
		return &config.FieldError{Field: "version", Value: f.Version, Problem: "is not a known version", Fix: "write version: 1"}
	}
	return Check(f.Tenants)
}

// names are those of a file of tenants.
type names struct {
	file    *config.File[tenantsFile, *tenantsFile]
	content *tenantsFile // that byID is made of
	byID    map[string]string
}

func newNames(path string) names {
	return names{file: config.NewFile[tenantsFile](path, "is vigia-identity running?")}
}

// read returns the names and why they are old or missing. A file that turns bad
// keeps its last good names.
func (n *names) read() (map[string]string, error) {
	content, err := n.file.Read()
	if content != n.content {
		n.content, n.byID = content, make(map[string]string, len(content.Tenants))
		for _, t := range content.Tenants {
			n.byID[t.ID] = t.Name
		}
	}
	return n.byID, err
}
