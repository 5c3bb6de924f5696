package scrape

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"vigia/internal/exposition"
)

// contentType is the text format 0.0.4, which every scraper takes.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

const (
	maxCollect  = 64 // collect[] of one request
	maxRequests = 16 // that are answered at a time
)

// Handler answers GET /metrics: all collectors and what base gathers, or with
// collect[]=NAME only the collectors named.
func (e *Engine) Handler(base prometheus.Gatherer) http.Handler {
	h := &handler{engine: e, base: base, slots: make(chan struct{}, maxRequests)}
	h.zippers.New = func() any {
		// Speed goes before size: scrapes are frequent, pages repeat themselves.
		z, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
		if err != nil {
			panic(err) // the level is a constant
		}
		return z
	}
	h.buffers.New = func() any { return new(bytes.Buffer) }
	return h
}

type handler struct {
	engine           *Engine
	base             prometheus.Gatherer
	slots            chan struct{}
	zippers, buffers sync.Pool
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	only := r.URL.Query()["collect[]"]
	if len(only) > maxCollect {
		http.Error(w, fmt.Sprintf("collect[]: is given %d times; at most %d", len(only), maxCollect), http.StatusBadRequest)
		return
	}
	if err := h.engine.check(only); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		http.Error(w, fmt.Sprintf("%d scrapes are being answered; try again", maxRequests), http.StatusServiceUnavailable)
		return
	}
	// The page is finished before the first byte is sent: a scraper that
	// reads slowly keeps nobody else waiting.
	page := h.buffers.Get().(*bytes.Buffer)
	defer h.buffers.Put(page)
	page.Reset()
	err := h.engine.scrape(only, func(p *exposition.Page) error {
		_, err := p.WriteTo(page)
		return err
	})
	if err == nil && len(only) == 0 {
		err = writeBase(page, h.base)
	}
	if err != nil {
		http.Error(w, "scrape: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	var out io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z := h.zippers.Get().(*gzip.Writer)
		defer h.zippers.Put(z)
		z.Reset(w)
		defer z.Close()
		out = z
	}
	if _, err := out.Write(page.Bytes()); err != nil {
		h.engine.opts.Logger.Debug("the scraper left before the end", "err", err)
	}
}

// writeBase writes the process's own metrics.
func writeBase(w io.Writer, base prometheus.Gatherer) error {
	families, err := base.Gather()
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return err
		}
	}
	return err
}
