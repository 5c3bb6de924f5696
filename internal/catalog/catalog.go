// Package catalog holds every metric that Vigia exports, declared once as data.
//
// The YAML files under metrics are the only place where a metric's
// name, type, unit, labels, their values and help are written. Programs build
// their metrics from it, --list-metrics prints it, and the documentation,
// dashboards and rules are checked against it. The Python package vigia_catalog
// reads the same files.
package catalog

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed metrics/*.yaml
var metricFiles embed.FS

// Type is the Prometheus type of a metric.
type Type string

// The metric types in use. A histogram is a native histogram with a small
// classic set beside it for text scrapers.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// partPlaceholder stands for the program's part in the names of self metrics.
const partPlaceholder = "PART"

// Metric is one metric family.
type Metric struct {
	Name   string   `yaml:"name" json:"name"`
	Type   Type     `yaml:"type" json:"type"`
	Unit   string   `yaml:"unit" json:"unit"`
	Labels []string `yaml:"labels" json:"labels"`
	Help   string   `yaml:"help" json:"help"`
	Part   string   `yaml:"-" json:"part"`
	// Pages are where the program exports it: MainPage unless the catalogue says more.
	Pages []string `yaml:"pages" json:"pages,omitempty"`
	// Values are all that each closed label can have, by label; the others are open.
	Values map[string][]string `yaml:"-" json:"values,omitempty"`
}

// The pages of a program.
const (
	MainPage    = "/metrics"          // scraped every 15 s
	FastPage    = "/metrics/fast"     // scraped every second: what isolation needs as soon as that
	VerdictPage = "/metrics/verdicts" // scraped once a minute: what takes minutes to become another
)

// OnFastPage reports whether the metric is on the page that is scraped every second.
func (m *Metric) OnFastPage() bool { return slices.Contains(m.Pages, FastPage) }

// onMainPageAlone reports whether the metric is on the page that every program has, and on no other.
func (m *Metric) onMainPageAlone() bool { return slices.Equal(m.Pages, []string{MainPage}) }

// Catalog is a set of metrics by name.
type Catalog struct {
	metrics map[string]Metric
}

// file is a file of metrics.
type file struct {
	Part    string              `yaml:"part"`
	Values  map[string]valueRef `yaml:"values"` // by label, where a metric says nothing else
	Metrics []entry             `yaml:"metrics"`
}

type entry struct {
	Metric `yaml:",inline"`
	Values map[string]valueRef `yaml:"values"`
}

// Load reads and validates the embedded catalogue.
func Load() (*Catalog, error) {
	return load(metricFiles, "metrics")
}

func load(fsys fs.FS, dir string) (*Catalog, error) {
	names, err := fs.Glob(fsys, path.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list metric catalogue: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("list metric catalogue: no file in %s", dir)
	}
	c := &Catalog{metrics: make(map[string]Metric)}
	labels, err := readLabels(fsys, path.Join(dir, labelsFile))
	if err != nil {
		return nil, fmt.Errorf("read metric catalogue %s: %w", labelsFile, err)
	}
	for _, name := range names {
		if path.Base(name) == labelsFile {
			continue
		}
		if err := c.addFile(fsys, name, labels); err != nil {
			return nil, fmt.Errorf("read metric catalogue %s: %w", path.Base(name), err)
		}
	}
	if err := labels.allUsed(); err != nil {
		return nil, fmt.Errorf("read metric catalogue %s: %w", labelsFile, err)
	}
	return c, nil
}

func (c *Catalog) addFile(fsys fs.FS, name string, labels *labels) error {
	var f file
	if err := decode(fsys, name, &f); err != nil {
		return err
	}
	if f.Part == "" {
		return errors.New("part is missing")
	}
	spare := maps.Clone(f.Values)
	for _, e := range f.Metrics {
		m := e.Metric
		m.Part = f.Part
		if m.Pages == nil {
			m.Pages = []string{MainPage}
		}
		if err := m.validate(); err != nil {
			return err
		}
		if _, ok := c.metrics[m.Name]; ok {
			return fmt.Errorf("metric %s is declared twice", m.Name)
		}
		var err error
		if m.Values, err = labels.valuesOf(&m, e.Values, f.Values); err != nil {
			return fmt.Errorf("metric %s: %w", m.Name, err)
		}
		for _, l := range m.Labels {
			if _, own := e.Values[l]; !own {
				delete(spare, l)
			}
		}
		c.metrics[m.Name] = m
	}
	if unused := slices.Sorted(maps.Keys(spare)); len(unused) > 0 {
		return fmt.Errorf("values of the file: no metric takes those of %v from there; remove them", unused)
	}
	return nil
}

func decode(fsys fs.FS, name string, into any) error {
	raw, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	return dec.Decode(into)
}

var (
	nameRE  = regexp.MustCompile(`^vigia_(PART_)?[a-z][a-z0-9_]*[a-z0-9]$`)
	labelRE = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
)

// pageLists are the lists of pages that a metric can have.
func pageLists() [][]string {
	return [][]string{{MainPage}, {MainPage, FastPage}, {FastPage}, {VerdictPage}}
}

func (m *Metric) validate() error {
	switch {
	case !nameRE.MatchString(m.Name):
		return fmt.Errorf("metric %q: the name must match %s", m.Name, nameRE)
	case !slices.Contains([]Type{Counter, Gauge, Histogram}, m.Type):
		return fmt.Errorf("metric %s: unknown type %q", m.Name, m.Type)
	case (m.Type == Counter) != strings.HasSuffix(m.Name, "_total"):
		return fmt.Errorf("metric %s: _total belongs on counters and on nothing else", m.Name)
	case m.Unit == "":
		return fmt.Errorf("metric %s: unit is missing", m.Name)
	case !strings.HasSuffix(m.Help, "."):
		return fmt.Errorf("metric %s: help must be sentences", m.Name)
	case !slices.ContainsFunc(pageLists(), func(l []string) bool { return slices.Equal(l, m.Pages) }):
		return fmt.Errorf("metric %s: bad pages %q; write one of %q", m.Name, m.Pages, pageLists())
	case m.OnFastPage() && m.Type != Gauge:
		return fmt.Errorf("metric %s: a %s cannot be on %s: only gauges say within a second what is now", m.Name, m.Type, FastPage)
	}
	for i, l := range m.Labels {
		if !labelRE.MatchString(l) || l == "le" || slices.Contains(m.Labels[:i], l) {
			return fmt.Errorf("metric %s: bad or repeated label %q", m.Name, l)
		}
	}
	return nil
}

// Part returns the metrics of one part, self metrics included under the part's
// own name, sorted by name.
func (c *Catalog) Part(part string) []Metric {
	var out []Metric
	for _, m := range c.metrics {
		switch m.Part {
		case part:
			out = append(out, m)
		case "self":
			m.Name = strings.ReplaceAll(m.Name, partPlaceholder, part)
			m.Part = part
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return out
}
