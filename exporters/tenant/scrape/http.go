package scrape

import (
	"fmt"
	"io"
	"net/http"

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
	return &handler{engine: e, base: base, slots: make(chan struct{}, maxRequests), answers: make(chan *exposition.Body, spareAnswers)}
}

type handler struct {
	engine  *Engine
	base    prometheus.Gatherer
	slots   chan struct{}
	answers chan *exposition.Body // that are not in use
}

// spareAnswers is how many answers' memory is kept for later: two servers usually
// scrape a node.
const spareAnswers = 2

// take returns an empty answer to a request.
func (h *handler) take(r *http.Request) *exposition.Body {
	var a *exposition.Body
	select {
	case a = <-h.answers:
	default:
		a = new(exposition.Body)
	}
	a.Reset(r)
	return a
}

func (h *handler) giveBack(a *exposition.Body) {
	select {
	case h.answers <- a:
	default: // there are enough
	}
}

func (h *handler) fill(a *exposition.Body, only []string) error {
	err := h.engine.scrape(only, func(p *exposition.Page) error {
		_, err := p.WriteTo(a)
		return err
	})
	if err == nil && len(only) == 0 {
		err = writeBase(a, h.base)
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
	a := h.take(r)
	defer h.giveBack(a)
	if err := h.fill(a, only); err != nil {
		http.Error(w, "scrape: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	if err := a.SendTo(w, http.StatusOK); err != nil {
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
