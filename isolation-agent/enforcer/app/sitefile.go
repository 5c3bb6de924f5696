package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigia/internal/config"
	"vigia/isolation-agent/enforcer/fastloop"
)

// siteShare bounds what a site costs that changes all the time: no more than one part of so many of a processor.
const siteShare = 20

// siteFile keeps the fast loop up with its site file, which vigia-identity may write anew whenever a port comes, goes or moves.
type siteFile struct {
	node   string
	logger *slog.Logger
	peers  *prometheus.GaugeVec
	set    func(*fastloop.Site, *fastloop.Keys) error
	wake   chan struct{}

	mu        sync.Mutex
	keys      *fastLoopKeys
	file      *config.File[fastloop.Site, *fastloop.Site]
	site      *fastloop.Site // in force, with the nodes that have no key here
	strangers []string       // these
	shown     map[string]bool
	said      string
}

func newSiteFile(c *Config, peers *prometheus.GaugeVec, logger *slog.Logger) *siteFile {
	f := &siteFile{node: c.Node.Name, logger: logger, peers: peers, wake: make(chan struct{}, 1), shown: map[string]bool{}}
	f.keys, f.file = c.FastLoop, newSite(c.FastLoop)
	return f
}

func newSite(k *fastLoopKeys) *config.File[fastloop.Site, *fastloop.Site] {
	return config.NewFile[fastloop.Site](k.SiteFile, "vigia-identity makes it in sites_dir, or write it by hand")
}

// load reads the files that a section names.
func (f *siteFile) load(k *fastLoopKeys, file *config.File[fastloop.Site, *fastloop.Site]) (*fastloop.Site, *fastloop.Keys, error) {
	site, err := file.Read()
	if err != nil {
		return nil, nil, fmt.Errorf("site_file: %w", err)
	}
	if !site.Lists(f.node) {
		return nil, nil, fmt.Errorf("site_file %s does not list node %s; list every node, this one too", k.SiteFile, f.node)
	}
	keys, err := fastloop.LoadKeys(k.KeysFile)
	if err == nil {
		err = ofThisSite(site, keys, f.node)
	}
	if err == nil && keys.Empty() && len(site.Nodes) > 1 && f.site != nil && len(f.strangers) < len(f.site.Nodes)-1 {
		err = errors.New("has no key any more; write it anew by vigia-enforcer issue-keys") // half written, perhaps
	}
	if err != nil {
		return nil, nil, fmt.Errorf("keys_file %s %w", k.KeysFile, err)
	}
	return site, keys, nil
}

// reload takes up another section.
func (f *siteFile) reload(k *fastLoopKeys) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	file := f.file
	if k.SiteFile != f.keys.SiteFile {
		file = newSite(k)
	}
	site, keys, err := f.load(k, file)
	if err != nil {
		return err
	}
	if err := f.take(site, keys); err != nil {
		return err
	}
	f.keys, f.file = k, file
	select {
	case f.wake <- struct{}{}: // another file may have to be watched
	default:
	}
	return nil
}

// take has the loop work by a site, without the nodes that have no key here; mu is held.
func (f *siteFile) take(site *fastloop.Site, keys *fastloop.Keys) error {
	strangers := site.Strangers(keys, f.node)
	if err := f.set(site.Without(strangers), keys); err != nil {
		return err
	}
	f.taken(site, strangers)
	return nil
}

// taken shows every other node of the site that is in force, and none that is not any more. With who has no key here, nobody
// can agree on limits.
func (f *siteFile) taken(site *fastloop.Site, strangers []string) {
	before := f.shown
	f.shown = make(map[string]bool, len(site.Nodes))
	for _, n := range site.Nodes {
		if n.Node == f.node {
			continue
		}
		stranger := slices.Contains(strangers, n.Node)
		f.shown[n.Node] = stranger
		if was, known := before[n.Node]; !known || was != stranger {
			f.peer(n.Node, stranger)
		}
	}
	for node := range before {
		if _, there := f.shown[node]; !there {
			f.peers.DeleteLabelValues(node)
		}
	}
	f.site, f.strangers = site, strangers
	f.say(withoutKeys(strangers))
}

func (f *siteFile) peer(node string, unresponsive bool) {
	v := 0.0
	if unresponsive {
		v = 1
	}
	f.peers.WithLabelValues(node).Set(v)
}

// say logs an error that it did not say last.
func (f *siteFile) say(err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != f.said && said != "" {
		f.logger.Error("the fast loop does not work by all of its site_file", "err", err)
	}
	f.said = said
}

func withoutKeys(strangers []string) error {
	if len(strangers) == 0 {
		return nil
	}
	names := strings.Join(strangers[:min(len(strangers), mostNamed)], ", ")
	if more := len(strangers) - mostNamed; more > 0 {
		names = fmt.Sprintf("%s and %d more", names, more)
	}
	return errors.New("keys_file has no key for " + names + ", which are left out; write it anew by vigia-enforcer issue-keys")
}

// follow keeps up with the file until ctx ends.
func (f *siteFile) follow(ctx context.Context) {
	config.Follow(ctx, f.path, f.wake, f.look)
}

func (f *siteFile) path() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys.SiteFile
}

// look takes up the site if it has changed, or if keys are here that were missing. What is in force stays while the files
// cannot be read. It returns for how long it need not look again.
func (f *siteFile) look() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	begun := time.Now()
	f.follows()
	return siteShare * time.Since(begun)
}

func (f *siteFile) follows() {
	site, keys, err := f.load(f.keys, f.file)
	if err != nil {
		f.say(err)
		return
	}
	if site == f.site && slices.Equal(site.Strangers(keys, f.node), f.strangers) {
		f.say(withoutKeys(f.strangers))
		return
	}
	if err := f.take(site, keys); err != nil {
		f.say(fmt.Errorf("site_file: %w", err))
		return
	}
	f.logger.Info("took up site_file", "nodes", len(site.Nodes), "ports", len(site.Ports))
}
