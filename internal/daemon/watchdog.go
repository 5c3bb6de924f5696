package daemon

import (
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
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		logger.Warn("cannot read what systemd's watchdog expects", "err", err)
	}
	if err != nil || every == 0 {
		return nil, func() {}
	}
	alive(logger)
	ticker := time.NewTicker(every / beats)
	return ticker.C, ticker.Stop
}

// alive tells systemd's watchdog that the program works.
func alive(logger *slog.Logger) {
	if _, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog); err != nil {
		logger.Warn("cannot tell systemd's watchdog that the program works", "err", err)
	}
}
