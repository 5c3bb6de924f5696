package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"vigia/tests/sitecost/names"
)

// site answers for all nodes.
type site struct {
	nodes   int
	life    time.Duration
	pages   map[pageKey][]*rendered // by personality
	zippers sync.Pool
}

// pageKey is an agent and the path of one of its pages.
type pageKey struct{ agent, path string }

// paths of pages, and the names of their captures.
var paths = map[string]string{"/metrics": "metrics", "/metrics/fast": "fast"}

// load reads the captures: AGENT-PAGE.0 and AGENT-PAGE.1, each the headers Content-Type and, if there is one,
// Content-Encoding, a line each, and an empty line before the page, and the seconds between the two in AGENT-PAGE.seconds.
func load(folder string, nodes int, life, refresh time.Duration, personalities int) (*site, error) {
	s := &site{nodes: nodes, life: life, pages: make(map[pageKey][]*rendered)}
	for agent := range agents {
		for path, name := range paths {
			base := filepath.Join(folder, agent+"-"+name)
			if _, err := os.Stat(base + ".1"); os.IsNotExist(err) {
				continue // the agent has no such page
			}
			every := refresh
			if name == "fast" {
				every = min(every, time.Second)
			}
			for p := range personalities {
				page, err := capture(base, uint64(p))
				if err != nil {
					return nil, fmt.Errorf("page %s of %s: %w", path, agent, err)
				}
				key := pageKey{agent, path}
				s.pages[key] = append(s.pages[key], &rendered{page: page, every: every})
			}
		}
	}
	if len(s.pages) == 0 {
		return nil, fmt.Errorf("%s has no captured page", folder)
	}
	return s, nil
}

func (s *site) agents() []string {
	found := make(map[string]bool)
	for key := range s.pages {
		found[key.agent] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// rendered is a page as it is now, with the places of its names.
type rendered struct {
	every time.Duration

	mu    sync.Mutex
	page  *page
	at    time.Time
	body  []byte
	slots []slot
}

// slot is a name at an offset.
type slot struct {
	offset int
	kind   byte // n node, t tenant, p port
	number int
}

// now returns the page's bytes and slots, which nobody changes any more.
func (r *rendered) now(at time.Time) ([]byte, []slot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if since := at.Sub(r.at); since >= r.every {
		if !r.at.IsZero() {
			r.page.advance(since.Seconds())
		}
		body, err := r.page.render()
		if err != nil {
			return nil, nil, err
		}
		r.at, r.body, r.slots = at, body, slotsOf(body)
	}
	return r.body, r.slots, nil
}

// slotsOf finds the names of the captured node.
func slotsOf(body []byte) []slot {
	var out []slot
	for _, at := range names.Pattern.FindAllIndex(body, -1) {
		name := string(body[at[0]:at[1]])
		s := slot{offset: at[0]}
		switch name[:5] {
		case "node-":
			s.kind = 'n'
			s.number, _ = strconv.Atoi(name[5:]) // five digits, by the pattern
		case "6d5a5":
			s.kind = 'p'
			_, s.number, _, _ = names.ParsePort(name)
		default:
			number, _ := strconv.ParseUint(name[len(name)-4:], 16, 32)
			s.kind, s.number = 't', int(number)
		}
		out = append(out, s)
	}
	return out
}

// tenantsOfNode is how many tenants further the next node's begin, so that tenants have ports on several nodes.
const tenantsOfNode = 3

// minNames keeps the names of one page different where a site is smaller than what a node probes.
const minNames = 64

// write makes the captured node's page that of another node.
func (s *site) write(body []byte, slots []slot, node int, at time.Time) []byte {
	out := slices.Clone(body)
	for _, slot := range slots {
		var name string
		switch slot.kind {
		case 'n':
			name = names.Node((node + slot.number) % max(s.nodes, minNames))
		case 't':
			name = names.Tenant((node*tenantsOfNode + slot.number) % max(s.nodes*tenantsOfNode, minNames))
		default:
			name = names.Port(node, slot.number, names.Generation(node, slot.number, at, s.life))
		}
		copy(out[slot.offset:], name)
	}
	return out
}

// nodeOf returns the number of the node that an address is of: 127.1.0.0 is that of the first.
func nodeOf(address net.Addr) (int, bool) {
	tcp, ok := address.(*net.TCPAddr)
	if !ok || tcp.IP.To4() == nil {
		return 0, false
	}
	ip := tcp.IP.To4()
	return int(binary.BigEndian.Uint16(ip[2:])) - 1, ip[0] == 127 && ip[1] >= 1
}

func (s *site) handler(agent string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pages := s.pages[pageKey{agent, r.URL.Path}]
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		node, ok := nodeOf(local)
		if pages == nil || !ok || node < 0 || node >= s.nodes {
			http.NotFound(w, r)
			return
		}
		at := time.Now()
		p := pages[node%len(pages)]
		body, slots, err := p.now(at)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		s.answer(w, r, p.page, s.write(body, slots, node, at))
	})
}

// answer sends a page compressed where the agent does.
func (s *site) answer(w http.ResponseWriter, r *http.Request, p *page, body []byte) {
	w.Header().Set("Content-Type", p.contentType)
	if p.packed && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		var buffer bytes.Buffer
		z, ok := s.zippers.Get().(*gzip.Writer)
		if !ok {
			z, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is one of its own
		}
		defer s.zippers.Put(z)
		z.Reset(&buffer)
		_, _ = z.Write(body) // memory takes it all
		_ = z.Close()
		body = buffer.Bytes()
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // a scraper that left is no failure
}
