package catalog

import (
	"encoding/json"
	"fmt"
	"io"
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
		}
		_, err := fmt.Fprintf(w, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type, m.Unit, strings.Join(labels, " "), m.Help)
		if err != nil {
			return err
		}
	}
	return nil
}
