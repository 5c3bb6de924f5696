package daemon

import (
	"bytes"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"vigia/internal/exposition"
)

// FastPager is a service with a page of what isolation needs within a second: GET
// /metrics/fast, which is scraped that often. What the catalogue has there, and nothing
// else, may be on it.
type FastPager interface {
	// WriteFast emits the page, from memory and cheap reads of the kernel. An error is
	// answered in place of the page: what is not known must not look quiet. It is called by
	// one goroutine at a time.
	WriteFast(out *exposition.Page) error
}

// fastInterval is how old a page may be that is served again: however many servers scrape,
// it is made twice a second at most.
const fastInterval = 500 * time.Millisecond

// contentType is the text format 0.0.4, which every scraper takes.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// fastPage answers GET /metrics/fast.
type fastPage struct {
	pager  FastPager
	logger *slog.Logger
	now    func() time.Time

	mu   sync.Mutex // held while a page is made
	page *exposition.Page
	at   time.Time // when body and err were made; zero before the first
	body []byte    // not written to again: scrapers may still read it
	err  error
}

func newFastPage(p FastPager, logger *slog.Logger, now func() time.Time) *fastPage {
	return &fastPage{pager: p, logger: logger, now: now, page: exposition.NewPage(nil)}
}

// latest returns a page that is not older than fastInterval, or why there is none.
func (f *fastPage) latest() ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if !f.at.IsZero() && now.Sub(f.at) < fastInterval {
		return f.body, f.err
	}
	before := f.err
	f.body, f.err = f.render()
	f.at = now
	switch {
	case f.err != nil && (before == nil || before.Error() != f.err.Error()):
		f.logger.Warn("cannot make the page /metrics/fast", "err", f.err)
	case f.err == nil && before != nil:
		f.logger.Info("the page /metrics/fast is made again")
	}
	return f.body, f.err
}

func (f *fastPage) render() ([]byte, error) {
	f.page.Reset(nil)
	if err := f.pager.WriteFast(f.page); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if _, err := f.page.WriteTo(&out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (f *fastPage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	body, err := f.latest()
	if err != nil {
		http.Error(w, "cannot make this page: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // if it fails, whoever asked has left
}
