package catalog

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Formats lists the output formats of Print.
func Formats() []string { return []string{"text", "json", "markdown"} }

// Print writes metrics to w as text, JSON or a Markdown table.
func Print(w io.Writer, metrics []Metric, format string) error {
	switch format {
	case "text":
		return printText(w, metrics)
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(metrics)
	case "markdown":
		return printMarkdown(w, metrics)
	}
	return fmt.Errorf("unknown format %q: use one of %s", format, strings.Join(Formats(), ", "))
}

func printText(w io.Writer, metrics []Metric) error {
	for _, m := range metrics {
		_, err := fmt.Fprintf(w, "%s{%s} %s, %s\n    %s\n", m.Name, strings.Join(m.Labels, ","), m.Type, m.Unit, m.Help)
		if err != nil {
			return err
		}
		for _, l := range m.Labels {
			if values := m.Values[l]; values != nil {
				if _, err := fmt.Fprintf(w, "    %s: %s\n", l, plain(values)); err != nil {
					return err
				}
			}
		}
		if len(m.Pages) > 0 && !m.onMainPageAlone() {
			if _, err := fmt.Fprintf(w, "    pages: %s\n", plain(m.Pages)); err != nil {
				return err
			}
		}
	}
	return nil
}

func printMarkdown(w io.Writer, metrics []Metric) error {
	if _, err := io.WriteString(w, "| metric | type | unit | labels | help |\n| --- | --- | --- | --- | --- |\n"); err != nil {
		return err
	}
	for _, m := range metrics {
		labels := make([]string, len(m.Labels))
		for i, l := range m.Labels {
			labels[i] = "`" + l + "`"
			if values := m.Values[l]; values != nil {
				labels[i] += " (" + code(values) + ")"
			}
		}
		help := m.Help
		if len(m.Pages) > 0 && !m.onMainPageAlone() {
			help += " On " + code(m.Pages) + "."
		}
		_, err := fmt.Fprintf(w, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type, m.Unit, strings.Join(labels, " "), help)
		if err != nil {
			return err
		}
	}
	return nil
}

// plain returns values as text; what is empty or has a blank is quoted.
func plain(values []string) string {
	out := slices.Clone(values)
	for i, v := range values {
		if v == "" || strings.Contains(v, " ") {
			out[i] = strconv.Quote(v)
		}
	}
	return strings.Join(out, ", ")
}

// code returns values as Markdown.
func code(values []string) string {
	out := slices.Clone(values)
	for i, v := range values {
		if v == "" {
			v = `""`
		}
		out[i] = "`" + v + "`"
	}
	return strings.Join(out, ", ")
}
