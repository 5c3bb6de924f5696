package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Bounds of what is read.
const (
	maxSize  = 16 << 20 // bytes of one document
	maxFiles = 1000
	maxPeers = 50_000
	timeout  = 10 * time.Second
)

// Peer is a node that was discovered.
type Peer struct {
	Name string // label node, else the host of the target
	Rack string // label rack
	Zone string // label zone
	Host string // of the target
	// Others are further addresses of the node: the labels at_NAME, as "NAME=HOST:PORT" in lines
	// in the order of their names. It is a text so that peers can be compared.
	Others string
}

// otherLabel begins the labels that have a node's further addresses.
const otherLabel = "at_"

// Other returns a further address of the node, HOST or HOST:PORT; empty without one of that name.
func (p *Peer) Other(name string) string {
	for line := range strings.Lines(p.Others) {
		if known, address, _ := strings.Cut(strings.TrimSpace(line), "="); known == name {
			return address
		}
	}
	return ""
}

// others joins further addresses.
func others(labels map[string]string) string {
	var lines []string
	for label, address := range labels {
		if name, ok := strings.CutPrefix(label, otherLabel); ok && name != "" && !strings.ContainsAny(name+address, "=\n") {
			lines = append(lines, name+"="+address+"\n")
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// Source says where to look.
type Source struct {
	Files   []string // patterns as of path.Match in the last element; JSON or YAML
	URL     string   // or an HTTP endpoint, JSON
	Refresh time.Duration
	Grace   time.Duration // how long a vanished node is remembered
}

// key identifies the source over a reload.
func (s *Source) key() string { return strings.Join(s.Files, "\n") + "\n" + s.URL }

// group is what both formats consist of.
type group struct {
	Targets []string          `yaml:"targets"`
	Labels  map[string]string `yaml:"labels"`
}

// fetch reads the source. Peers are in order of name and unique.
func (s *Source) fetch(ctx context.Context) ([]Peer, error) {
	var groups []group
	var err error
	if s.URL != "" {
		groups, err = s.fetchURL(ctx)
	} else {
		groups, err = s.readFiles()
	}
	if err != nil {
		return nil, err
	}
	return peers(groups)
}

func (s *Source) readFiles() (groups []group, err error) {
	var paths []string
	for _, pattern := range s.Files {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		if len(found) == 0 && !strings.ContainsAny(pattern, "*?[") {
			return nil, fmt.Errorf("%s does not exist", pattern)
		}
		paths = append(paths, found...)
	}
	if len(paths) > maxFiles {
		return nil, fmt.Errorf("%d files match, at most %d are read", len(paths), maxFiles)
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		more, err := parse(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		groups = append(groups, more...)
	}
	return groups, nil
}

func (s *Source) fetchURL(ctx context.Context) ([]group, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("X-Prometheus-Refresh-Interval-Seconds", fmt.Sprint(s.Refresh.Seconds()))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", request.URL.Redacted(), response.Status)
	}
	if kind := response.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		return nil, fmt.Errorf("%s answers with content type %q, not application/json", request.URL.Redacted(), kind)
	}
	groups, err := parse(response.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", request.URL.Redacted(), err)
	}
	return groups, nil
}

// parse reads groups; JSON is YAML, too.
func parse(r io.Reader) (groups []group, err error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxSize {
		return nil, fmt.Errorf("is larger than %d bytes", maxSize)
	}
	if err := yaml.Unmarshal(raw, &groups); err != nil {
		return nil, fmt.Errorf("is not a list of groups with targets and labels: %w", err)
	}
	return groups, nil
}

// peers flattens groups.
func peers(groups []group) ([]Peer, error) {
	byName := make(map[string]Peer)
	for _, g := range groups {
		for _, target := range g.Targets {
			host := target
			if h, _, err := net.SplitHostPort(target); err == nil {
				host = h
			}
			if host == "" {
				return nil, fmt.Errorf("target %q has no host", target)
			}
			p := Peer{Name: g.Labels["node"], Rack: g.Labels["rack"], Zone: g.Labels["zone"], Host: strings.Trim(host, "[]"), Others: others(g.Labels)}
			if p.Name == "" {
				p.Name = p.Host
			}
			if other, twice := byName[p.Name]; twice && other != p {
				return nil, fmt.Errorf("node %q is there twice, as %s and %s", p.Name, other.Host, p.Host)
			}
			byName[p.Name] = p
		}
	}
	if len(byName) > maxPeers {
		return nil, fmt.Errorf("%d nodes, at most %d are taken", len(byName), maxPeers)
	}
	out := make([]Peer, 0, len(byName))
	for _, p := range byName {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	if len(out) == 0 {
		return nil, errors.New("there is no node in it")
	}
	return out, nil
}

// Read reads the nodes of one document.
func Read(r io.Reader) ([]Peer, error) {
	groups, err := parse(r)
	if err != nil {
		return nil, err
	}
	return peers(groups)
}
