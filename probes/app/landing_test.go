package app

import (
	"net/http"
	"strings"
	"testing"
)

// The first page shows the last rounds of every target, those that fail first and
// with the reason; labels cannot become markup.
func TestLandingPage(t *testing.T) {
	t.Parallel()
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
		return code == http.StatusOK && strings.Contains(page, "connection refused") && strings.Contains(page, `<span class="received"`) &&
			strings.Contains(page, `<td class="state up">up</td>`)
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

// The page has the path MTU of targets whose class searches it.
func TestLandingPageHasThePathMTU(t *testing.T) {
	t.Parallel()
	left, right := network(t)
	start(t, node("b", right, "10.9.0.2"))
	plain := node("a", left, "10.9.0.1", aim("b", "stamp-64", left, "10.9.0.1", "10.9.0.2:862"))
	const class = "{name: stamp-64,"
	if !strings.Contains(plain, class) {
		t.Fatalf("no class in\n%s", plain)
	}
	a := start(t, plain)
	if _, page := a.get("/"); strings.Contains(page, "path MTU") {
		t.Error("a column without any search")
	}
	searched := strings.Replace(plain, class, "{path_mtu: {interval: 10s, min: 576, max: 9216}, name: stamp-64,", 1)
	if code, body := a.reload(searched); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	a.waitFor("the path MTU", func() bool {
		_, page := a.get("/")
		_, targets := a.get("/debug/targets")
		return strings.Contains(page, `<th class="number">path MTU</th>`) && strings.Contains(page, `<td class="number">1500</td>`) &&
			strings.Contains(targets, `"path_mtu_bytes": 1500`)
	})
}
