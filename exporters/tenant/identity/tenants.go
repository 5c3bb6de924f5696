package identity

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"vigia/internal/config"
)

// Tenant gives a tenant's id a name.
type Tenant struct {
	ID   string `yaml:"id"`
	Name string `yaml:"name"`
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

// names re-reads a file of tenants when it changes.
type names struct {
	path  string
	byID  map[string]string
	stamp time.Time
	size  int64
	err   error
}

// read returns the names and why they are old or missing. A file that turns bad
// keeps its last good names.
func (n *names) read() (map[string]string, error) {
	if n.path == "" {
		return nil, nil
	}
	info, err := os.Stat(n.path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("tenants_file %s does not exist: is vigia-identity running?", n.path)
		}
		n.stamp, n.err = time.Time{}, err
		return n.byID, err
	}
	if info.ModTime().Equal(n.stamp) && info.Size() == n.size {
		return n.byID, n.err
	}
	n.stamp, n.size = info.ModTime(), info.Size()
	var content tenantsFile
	if n.err = config.Load(n.path, &content); n.err == nil {
		n.byID = make(map[string]string, len(content.Tenants))
		for _, t := range content.Tenants {
			n.byID[t.ID] = t.Name
		}
	}
	return n.byID, n.err
}
