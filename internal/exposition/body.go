package exposition

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// PlainLimit is the largest page that is sent as it is, in bytes. A server keeps a decompressor
// of 45 KiB for each target that compresses, and its garbage collector as much again beside it;
// a page of this size takes less than a thousandth of a link of 100 Mbit/s every 15 s.
const PlainLimit = 128 << 10

// keptBody is the most memory that a body keeps of each kind: enough for a compressed page of
// 5 000 ports.
const keptBody = 1 << 20

// Body collects a page before its first byte is sent, so that a scraper that reads slowly keeps
// nobody else waiting. A page that becomes larger than PlainLimit is compressed while it is
// written, if the client takes that: what is kept is then a twentieth.
type Body struct {
	plain, packed bytes.Buffer
	zipper        *gzip.Writer
	taken         bool // the client takes gzip
	packing       bool
}

// Reset empties the body for the answer to a request, and keeps its memory.
func (b *Body) Reset(r *http.Request) {
	for _, buffer := range []*bytes.Buffer{&b.plain, &b.packed} {
		if buffer.Cap() > keptBody {
			*buffer = bytes.Buffer{}
		}
		buffer.Reset()
	}
	b.taken, b.packing = strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"), false
}

// Write appends to the page.
func (b *Body) Write(p []byte) (int, error) {
	if !b.packing && (!b.taken || b.plain.Len()+len(p) <= PlainLimit) {
		return b.plain.Write(p)
	}
	if !b.packing {
		if err := b.pack(); err != nil {
			return 0, err
		}
	}
	return b.zipper.Write(p)
}

// pack goes over to compression.
func (b *Body) pack() error {
	if b.zipper == nil {
		// Speed goes before size: scrapes are frequent, pages repeat themselves.
		z, err := gzip.NewWriterLevel(&b.packed, gzip.BestSpeed)
		if err != nil {
			return err
		}
		b.zipper = z
	}
	b.zipper.Reset(&b.packed)
	b.packing = true
	_, err := b.zipper.Write(b.plain.Bytes())
	b.plain.Reset()
	return err
}

// SendTo answers with the page. An error says that the client left before the end.
func (b *Body) SendTo(w http.ResponseWriter, status int) error {
	content := b.plain.Bytes()
	if b.packing {
		if err := b.zipper.Close(); err != nil {
			return err
		}
		content = b.packed.Bytes()
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(status)
	_, err := w.Write(content)
	return err
}

// Whole has the answers of h collected in bodies.
func Whole(h http.Handler) http.Handler {
	spare := sync.Pool{New: func() any { return new(Body) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := spare.Get().(*Body)
		defer spare.Put(b)
		b.Reset(r)
		collecting := &collector{w, b, http.StatusOK}
		h.ServeHTTP(collecting, r)
		_ = b.SendTo(w, collecting.status) // if it fails, whoever asked has left
	})
}

// collector is a ResponseWriter that keeps the body.
type collector struct {
	http.ResponseWriter
	body   *Body
	status int
}

func (c *collector) WriteHeader(status int) { c.status = status }

func (c *collector) Write(p []byte) (int, error) { return c.body.Write(p) }
