package exposition

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// answered writes a page in pieces and returns what a client gets, decompressed, and whether it was compressed.
func answered(t *testing.T, b *Body, accept string, page []byte, piece int) ([]byte, bool) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept-Encoding", accept)
	b.Reset(r)
	for rest := page; len(rest) > 0; {
		n := min(piece, len(rest))
		if written, err := b.Write(rest[:n]); written != n || err != nil {
			t.Fatalf("wrote %d of %d bytes: %v", written, n, err)
		}
		rest = rest[n:]
	}
	w := httptest.NewRecorder()
	if err := b.SendTo(w, http.StatusAccepted); err != nil {
		t.Fatal(err)
	}
	if w.Code != http.StatusAccepted {
		t.Errorf("status %d", w.Code)
	}
	if got := w.Header().Get("Content-Length"); got != strconv.Itoa(w.Body.Len()) {
		t.Errorf("Content-Length %s for %d bytes", got, w.Body.Len())
	}
	if w.Header().Get("Content-Encoding") != "gzip" {
		return w.Body.Bytes(), false
	}
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return content, true
}

// TestOnlyLargePagesAreCompressed uses one body for all, as a handler does.
func TestOnlyLargePagesAreCompressed(t *testing.T) {
	var b Body
	line := []byte("vigia_port_bytes_total{port=\"0\"} 1\n")
	for _, tc := range []struct {
		name   string
		bytes  int
		accept string
		packed bool
	}{
		{"large", 3 * PlainLimit, "gzip", true},
		{"empty", 0, "gzip", false},
		{"one at the limit", PlainLimit, "gzip, deflate", false},
		{"one above it", PlainLimit + 1, "gzip, deflate", true},
		{"large for who does not ask", 3 * PlainLimit, "identity", false},
		{"more than is kept", 2 * keptBody, "", false},
		{"small again", 100, "gzip", false},
	} {
		page := bytes.Repeat(line, tc.bytes/len(line)+1)[:tc.bytes]
		for _, piece := range []int{1000, PlainLimit, 1 << 30} {
			content, packed := answered(t, &b, tc.accept, page, piece)
			if packed != tc.packed {
				t.Errorf("%s, in pieces of %d: compressed %t", tc.name, piece, packed)
			}
			if !bytes.Equal(content, page) {
				t.Errorf("%s, in pieces of %d: %d bytes arrived of %d, or others", tc.name, piece, len(content), len(page))
			}
		}
	}
	b.Reset(httptest.NewRequest(http.MethodGet, "/", nil))
	if kept := b.plain.Cap() + b.packed.Cap(); kept > 2*keptBody {
		t.Errorf("%d bytes are kept", kept)
	}
}

// failing is a client that has left.
type failing struct{ http.ResponseWriter }

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAClientThatLeftIsSaid(t *testing.T) {
	for _, bytes := range []int{1, 2 * PlainLimit} {
		var b Body
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		b.Reset(r)
		if _, err := io.WriteString(&b, strings.Repeat("x", bytes)); err != nil {
			t.Fatal(err)
		}
		if err := b.SendTo(failing{httptest.NewRecorder()}, http.StatusOK); err != io.ErrClosedPipe {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
}

func TestWholeAnswersTheSame(t *testing.T) {
	size := 0
	h := Whole(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusTeapot)
		for range size {
			_, _ = io.WriteString(w, "0123456789")
		}
	}))
	for _, size = range []int{10, PlainLimit, 0, 1} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		h.ServeHTTP(w, r)
		var content io.Reader = w.Body
		if w.Header().Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			content = z
		}
		got, err := io.ReadAll(content)
		if err != nil || string(got) != strings.Repeat("0123456789", size) {
			t.Errorf("%d lines: %d bytes, %v", size, len(got), err)
		}
		if w.Code != http.StatusTeapot || w.Header().Get("Content-Type") != "text/plain" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		if packed := w.Header().Get("Content-Encoding") == "gzip"; packed != (size == PlainLimit) {
			t.Errorf("%d lines: compressed %t", size, packed)
		}
	}
}
