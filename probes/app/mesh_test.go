package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"vigia/probes/plan"
)

// TestSeriesOfMeshes compares the table of series in docs/concepts/mesh.md with what the commands
// beside it print, and with the budget of a node at rest.
func TestSeriesOfMeshes(t *testing.T) {
	page, err := os.ReadFile("../../docs/concepts/mesh.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\|([^`\n]*)\\| `vigia-probe (plan [^`]*)` \\|$").FindAllStringSubmatch(string(page), -1)
	if len(rows) != 3 {
		t.Fatalf("%d rows, want 3", len(rows))
	}
	for _, row := range rows {
		arguments := append(strings.Fields(row[2]), "--json")
		var out, stderr bytes.Buffer
		if code := Program().Run(t.Context(), arguments, &out, &stderr); code != 0 {
			t.Fatalf("%s: exit code %d: %s", row[2], code, stderr.String())
		}
		var r plan.Report
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		flags := make(map[string]string)
		for i := 1; i+1 < len(arguments); i += 2 {
			flags[arguments[i]] = arguments[i+1]
		}
		want := strings.Join([]string{
			fmt.Sprint(r.Nodes), flags["--per-rack"], flags["--zones"], fmt.Sprint(r.PeersPerNode.Max),
			fmt.Sprint(r.SeriesAtRest.Max), fmt.Sprint(r.SeriesAtWorst.Max),
		}, "|")
		if got := strings.ReplaceAll(strings.Trim(row[1], "| "), " ", ""); got != want {
			t.Errorf("%s: the page has %s, want %s", row[2], got, want)
		}
		if r.SeriesAtRest.Max > 50 {
			t.Errorf("%s: %d series a node at rest, at most 50", row[2], r.SeriesAtRest.Max)
		}
	}
}
