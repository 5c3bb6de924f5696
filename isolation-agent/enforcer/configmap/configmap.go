// Package configmap keeps one key of a ConfigMap in a file of this node. The kubelet does so, too, but takes up to a minute;
// this watches the one object, with the rights to see it and nothing else, and falls back on what the kubelet brought.
package configmap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// MaxBytes is the most that a ConfigMap holds.
const MaxBytes = 1 << 20

// pauses are how long the API server is left alone after it failed. Every node of a cluster asks it the same: whoever is refused
// asks more and more seldom, and not at the moment when all others do.
type pauses struct {
	first, most time.Duration // on average, before jitter
	lasts       time.Duration // a watch that stood for as long worked: the next pause is the first one again
}

var usual = pauses{first: time.Second, most: 15 * time.Second, lasts: 10 * time.Second}

// after returns a pause of d on average, from half of it to one and a half.
func after(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// Config says what is followed, and where to.
type Config struct {
	APIServer APIServer
	Namespace string
	Name      string // of the ConfigMap
	Key       string
	Brought   string // the same key as a file of the kubelet's; it may come later
	File      string // what is written: one step from one content to the next
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	var errs []error
	for _, f := range []struct{ flag, value string }{
		{"--namespace", c.Namespace}, {"--config-map", c.Name}, {"--key", c.Key},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("%s is empty; write a name", f.flag))
		}
	}
	for _, f := range []struct{ flag, value string }{{"--brought", c.Brought}, {"--file", c.File}} {
		if !filepath.IsAbs(f.value) {
			errs = append(errs, fmt.Errorf("%s %q is not an absolute path; write for example /run/vigia/contracts/contracts.yaml", f.flag, f.value))
		}
	}
	return errors.Join(append(errs, c.APIServer.validate())...)
}

// Follower follows a ConfigMap.
type Follower struct {
	config  Config
	logger  *slog.Logger
	client  *client
	written string // content of the file
	there   bool   // whether there is a file
	brought string // what the kubelet had brought when it was last looked at
	pauses  pauses
	pause   func(ctx context.Context, d time.Duration)

	mu   sync.Mutex // a watch that works is said so by a timer
	said string
}

// New returns a follower that has not read anything yet.
func New(c Config, logger *slog.Logger) (*Follower, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	client, err := newClient(c.APIServer)
	if err != nil {
		return nil, err
	}
	return &Follower{config: c, logger: logger, client: client, pauses: usual, pause: sleep}, nil
}

// Seed takes up a file that is there, and else what the kubelet has brought.
func (f *Follower) Seed() error {
	content, err := read(f.config.File)
	if err == nil {
		f.written, f.there = content, true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	brought, err := read(f.config.Brought)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f.brought = brought
	if f.there {
		return nil // it is as new, or newer: the kubelet takes its time
	}
	return f.write(brought)
}

// Run follows the ConfigMap until ctx ends. What it said last stays in the file, whatever happens.
func (f *Follower) Run(ctx context.Context) error {
	if err := f.Seed(); err != nil {
		return err
	}
	wait := f.pauses.first
	for {
		lasted, err := f.round(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if lasted {
			wait = f.pauses.first
		}
		if lasted || err != nil {
			f.complain(err)
		}
		if lasted && err == nil {
			continue
		}
		f.pause(ctx, after(wait))
		if ctx.Err() != nil {
			return nil
		}
		wait = min(2*wait, f.pauses.most)
		if err := f.look(); err != nil {
			f.logger.Error("cannot read what the kubelet brought", "err", err)
		}
	}
}

// round reads the ConfigMap and follows it until the API server ends that; lasted says whether the watch stood for long enough to
// say that it works. A list alone says nothing of the watch.
func (f *Follower) round(ctx context.Context) (lasted bool, err error) {
	var began time.Time
	var well *time.Timer
	said := make(chan struct{})
	err = f.client.follow(ctx, &f.config, func() {
		began, well = time.Now(), time.AfterFunc(f.pauses.lasts, func() { defer close(said); f.complain(nil) })
	}, f.write)
	if well == nil {
		return false, err
	}
	if !well.Stop() {
		<-said // before anything else is said of it
	}
	return time.Since(began) >= f.pauses.lasts, err
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// look takes up what the kubelet has brought since, for as long as the API server does not say it itself.
func (f *Follower) look() error {
	brought, err := read(f.config.Brought)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || brought == f.brought {
		return err
	}
	f.brought = brought
	return f.write(brought)
}

// complain says once what is wrong, and once that it is not any more.
func (f *Follower) complain(err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if said == f.said {
		return
	}
	if said != "" {
		f.logger.Warn("cannot follow the ConfigMap; what the kubelet brings is used meanwhile", "config_map", f.config.Namespace+"/"+f.config.Name, "err", err)
	} else {
		f.logger.Info("following the ConfigMap again", "config_map", f.config.Namespace+"/"+f.config.Name)
	}
	f.said = said
}

// write replaces the file.
func (f *Follower) write(content string) error {
	if f.there && content == f.written {
		return nil
	}
	to, err := os.CreateTemp(filepath.Dir(f.config.File), "."+filepath.Base(f.config.File)+".*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.config.File, err)
	}
	_, err = to.WriteString(content)
	err = errors.Join(err, to.Chmod(0o644), to.Close()) // the enforcer is another user, without the right to pass over modes
	if err == nil {
		err = os.Rename(to.Name(), f.config.File)
	}
	if err != nil {
		_ = os.Remove(to.Name())
		return fmt.Errorf("cannot write %s: %w", f.config.File, err)
	}
	f.written, f.there = content, true
	f.logger.Info("took up the ConfigMap", "file", f.config.File, "bytes", len(content))
	return nil
}

// read returns a file that is no larger than a ConfigMap.
func read(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Size() > MaxBytes {
		return "", fmt.Errorf("%s has %d bytes; a ConfigMap has at most %d", path, info.Size(), MaxBytes)
	}
	raw, err := os.ReadFile(path)
	return string(raw), err
}
