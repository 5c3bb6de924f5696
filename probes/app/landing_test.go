package app

import (
	"net/http"
	"strings"
	"testing"
)

// The first page shows the last rounds of every target, those that fail first and
// with the reason; labels cannot become markup.
func TestLandingPage(t *testing.T) {
	left, right := network(t)
	start(t, node("b", right, "10.9.0.2"))
	a := start(t, node("a", left, "10.9.0.1",
		aim("b", "stamp-64", left, "10.9.0.1", "10.9.0.2:862"),
		aim("dead", "stamp-64", left, "10.9.0.1", "10.9.0.2:999"),
		aim("later", "stamp-64", left+"-later", "10.9.0.1", "10.9.0.2:862")))
	var page string
	a.waitFor("the page to tell", func() bool {
		var code int
		code, page = a.get("/")
		return code == http.StatusOK && strings.Contains(page, "connection refused") && strings.Contains(page, `<span class="received"`)
	})
	for _, want := range []string{
		"vigia-probe on a", `<td class="state up">up</td>`, `<td class="state down">down</td>`, `<td class="state closed">closed</td>`,
		`<span class="lost"`, "lost by unknown", "its socket is not open", "does not exist", "Not ready", `href="/metrics"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if strings.Index(page, "<td>dead</td>") > strings.Index(page, "<td>b</td>") {
		t.Error("what fails does not come first")
	}
}
