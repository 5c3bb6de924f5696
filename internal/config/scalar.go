package config

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// Duration is a time.Duration written as in Go: 50ms, 1s, 2m.
type Duration time.Duration

// UnmarshalYAML parses the duration.
func (d *Duration) UnmarshalYAML(node *yaml.Node) error {
	v, err := time.ParseDuration(node.Value)
	if err != nil {
		return lineError(node, "is not a duration; write for example 50ms, 1s or 2m")
	}
	*d = Duration(v)
	return nil
}

// String returns the duration as Go writes it.
func (d Duration) String() string { return time.Duration(d).String() }

// Rate is a data rate in bytes per second, written in bits per second with a
// unit: 200Mbit, 1Gbit, 64kbit.
type Rate uint64

var rateRE = regexp.MustCompile(`^(\d+(?:\.\d+)?)\s*(k|M|G|T)?bit$`)

// UnmarshalYAML parses the rate.
func (r *Rate) UnmarshalYAML(node *yaml.Node) error {
	v, err := ParseRate(node.Value)
	if err != nil {
		return lineError(node, "is not a rate; write for example 200Mbit, 1Gbit or 64kbit (bits per second)")
	}
	*r = v
	return nil
}

// ParseRate parses a rate such as 200Mbit and returns it in bytes per second.
func ParseRate(s string) (Rate, error) {
	m := rateRE.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is not a rate such as 200Mbit", s)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a rate: %w", s, err)
	}
	factor := map[string]float64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[m[2]]
	return Rate(v * factor / 8), nil
}

// String returns the rate in the largest unit that keeps it whole.
func (r Rate) String() string {
	bits := uint64(r) * 8
	for _, u := range []struct {
		factor uint64
		name   string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if bits >= u.factor && bits%u.factor == 0 {
			return fmt.Sprintf("%d%sbit", bits/u.factor, u.name)
		}
	}
	return fmt.Sprintf("%dbit", bits)
}

func lineError(node *yaml.Node, problem string) error {
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %q %s", node.Line, node.Value, problem)}}
}
