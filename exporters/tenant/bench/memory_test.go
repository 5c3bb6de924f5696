package bench

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"vigia/internal/testutil"
)

// The floor beneath a scrape is an answer of the same bytes from memory by the same HTTP
// server, in a process of its own: TestServeFromMemory is that process.
const serveAddress, serveFile = "BENCH_SERVE_ADDRESS", "BENCH_SERVE_FILE"

// TestServeFromMemory serves a file until the process is ended; without the name of one there is nothing to do.
func TestServeFromMemory(t *testing.T) {
	address, file := os.Getenv(serveAddress), os.Getenv(serveFile)
	if address == "" {
		e := &exporter{name: "memory", address: testutil.FreeAddress(t), node: &node{ctx: t.Context(), b: t}}
		var page bytes.Buffer
		z := gzip.NewWriter(&page)
		_, _ = z.Write([]byte("one 1\n"))
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		e.serve(t, page.Bytes())
		testutil.WaitFor(t, "the page", func() bool {
			got, err := e.get("/metrics")
			return err == nil && bytes.Equal(got.raw, page.Bytes()) && string(got.body) == "one 1\n"
		})
		return
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Addr: address, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		if bytes.HasPrefix(page, []byte{0x1f, 0x8b}) { // small pages are not compressed
			w.Header().Set("Content-Encoding", "gzip")
		}
		_, _ = w.Write(page)
	})}
	t.Fatal(server.ListenAndServe())
}

// memory starts what answers with ours' page, as it is compressed.
func (n *node) memory(b testing.TB, ours *exporter) *exporter {
	b.Helper()
	got, err := ours.get("/metrics")
	if err != nil {
		b.Fatal(err)
	}
	e := &exporter{name: "memory", address: testutil.FreeAddress(b), node: n}
	e.serve(b, got.raw)
	testutil.WaitFor(b, e.name, func() bool { got, err := e.get("/metrics"); return err == nil && got.status == http.StatusOK })
	return e
}

// serve starts the process that has a page in its memory.
func (e *exporter) serve(b testing.TB, page []byte) {
	b.Helper()
	file := filepath.Join(b.TempDir(), "page")
	if err := os.WriteFile(file, page, 0o600); err != nil {
		b.Fatal(err)
	}
	e.start(b, "env", serveAddress+"="+e.address, serveFile+"="+file, os.Args[0], "-test.run=^TestServeFromMemory$")
}
