package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// beats is how often systemd's watchdog is told in the time that it waits.
const beats = 4

// watchdog returns when to tell systemd's watchdog that the program works; nothing where
// there is none: WatchdogSec= of the unit sets it (sd_watchdog_enabled(3)). It is told once
// at once: the program may have much to do before it comes to its loop.
func watchdog(logger *slog.Logger) (beat <-chan time.Time, stop func()) {
	every := expected(logger)
	if every == 0 {
		return nil, func() {}
	}
	ticker := time.NewTicker(every)
	return ticker.C, ticker.Stop
}

// expected returns how often systemd's watchdog is to be told, 0 where there is none, and tells it for the first time.
func expected(logger *slog.Logger) time.Duration {
	waits, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		logger.Warn("cannot read what systemd's watchdog expects", "err", err)
	}
	if err != nil || waits == 0 {
		return 0
	}
	alive(logger)
	return waits / beats
}

// Pulse tells systemd's watchdog that a command works which has a loop of its own, and serves nothing. The zero value
// tells nobody.
type Pulse struct {
	logger *slog.Logger
	every  time.Duration // at which it has to be told; 0 without a watchdog
	last   time.Time
}

// NewPulse returns one for systemd's watchdog, if there is any, and tells it at once.
func NewPulse(logger *slog.Logger) *Pulse {
	return &Pulse{logger: logger, every: expected(logger), last: time.Now()}
}

// Beat says that the command works. It costs nothing to say that often.
func (p *Pulse) Beat() {
	if p.every > 0 && time.Since(p.last) >= p.every/2 {
		p.last = time.Now()
		alive(p.logger)
	}
}

// Sleep returns after a while, or when the context ends: nothing hangs meanwhile.
func (p *Pulse) Sleep(ctx context.Context, d time.Duration) {
	for end := time.Now().Add(d); ctx.Err() == nil; p.Beat() {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		if p.every > 0 {
			left = min(left, p.every)
		}
		select {
		case <-ctx.Done():
		case <-time.After(left):
		}
	}
}

// alive tells systemd's watchdog that the program works.
func alive(logger *slog.Logger) {
	if _, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog); err != nil {
		logger.Warn("cannot tell systemd's watchdog that the program works", "err", err)
	}
}
