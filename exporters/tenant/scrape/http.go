package scrape

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
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
	return &handler{engine: e, base: base, slots: make(chan struct{}, maxRequests), answers: make(chan *answer, spareAnswers)}
}

type handler struct {
	engine  *Engine
	base    prometheus.Gatherer
	slots   chan struct{}
	answers chan *answer // that are not in use
}

// spareAnswers is how many answers' memory is kept for later: two servers usually
// scrape a node.
const spareAnswers = 2

// answer is the body of a response, finished before the first byte is sent: a
// scraper that reads slowly keeps nobody else waiting.
type answer struct {
	body   bytes.Buffer
	zipper *gzip.Writer
}

// take returns an empty answer.
func (h *handler) take() *answer {
	select {
	case a := <-h.answers:
		a.body.Reset()
		return a
	default:
		return &answer{}
	}
}

// keptBody is the most memory that an answer keeps: enough for a compressed page of
// 5 000 ports.
const keptBody = 1 << 20

func (h *handler) giveBack(a *answer) {
	if a.body.Cap() > keptBody {
		a.body = bytes.Buffer{}
	}
	select {
	case h.answers <- a:
	default: // there are enough
	}
}

// fill writes the page, compressed while it is written: what is kept is then a
// twentieth.
func (h *handler) fill(a *answer, only []string, compressed bool) error {
	var out io.Writer = &a.body
	if compressed {
		if a.zipper == nil {
			// Speed goes before size: scrapes are frequent, pages repeat themselves.
			z, err := gzip.NewWriterLevel(&a.body, gzip.BestSpeed)
			if err != nil {
				return err
			}
			a.zipper = z
		}
		a.zipper.Reset(&a.body)
		out = a.zipper
	}
	err := h.engine.scrape(only, func(p *exposition.Page) error {
		_, err := p.WriteTo(out)
		return err
	})
	if err == nil && len(only) == 0 {
		err = writeBase(out, h.base)
	}
	if err == nil && compressed {
		err = a.zipper.Close()
	}
	return err
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
	a := h.take()
	defer h.giveBack(a)
	compressed := strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
	if err := h.fill(a, only, compressed); err != nil {
		http.Error(w, "scrape: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(a.body.Len()))
	if compressed {
		w.Header().Set("Content-Encoding", "gzip")
	}
	if _, err := w.Write(a.body.Bytes()); err != nil {
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
