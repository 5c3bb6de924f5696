package vport

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	// rcuExpedited is the kernel's switch to end RCU grace periods at once. For
	// every TCX link that comes or goes the kernel waits for a grace period, under
	// the lock of all network configuration: 10 to 30 ms each.
	rcuExpedited = "/sys/kernel/rcu_expedited"
	// expeditedMark lies in the pin directory while the switch is on, so that the
	// next process turns it off if this one dies.
	expeditedMark = "expediting"
	// expediteFrom is how many interfaces make it worth the interrupts that expedited
	// grace periods send to every processor.
	expediteFrom = 16
)

// ExpediteRCU speeds up attaching or detaching so many interfaces, and returns what
// ends it. Where the switch may not be written, or an administrator has it on, or there
// are few interfaces, it does nothing.
func (m *Manager) ExpediteRCU(interfaces int) (end func() error) {
	nothing := func() error { return nil }
	if interfaces < expediteFrom {
		return nothing
	}
	now, err := os.ReadFile(m.rcuExpedited)
	if err != nil || strings.TrimSpace(string(now)) != "0" {
		return nothing
	}
	if err := os.Mkdir(m.expeditedMark(), 0o700); err != nil {
		return nothing // another process is at it
	}
	if err := m.setExpedited("1"); err != nil {
		return func() error { return os.Remove(m.expeditedMark()) }
	}
	return m.endExpedited
}

func (m *Manager) expeditedMark() string { return filepath.Join(m.pinDir, expeditedMark) }

func (m *Manager) setExpedited(value string) error {
	return os.WriteFile(m.rcuExpedited, []byte(value), 0o644)
}

func (m *Manager) endExpedited() error {
	if err := m.setExpedited("0"); err != nil {
		return fmt.Errorf("end expedited RCU grace periods: %w", err)
	}
	if err := os.Remove(m.expeditedMark()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("end expedited RCU grace periods: %w", err)
	}
	return nil
}

// endLeftExpedited turns off what a process that died left on.
func (m *Manager) endLeftExpedited() error {
	if _, err := os.Stat(m.expeditedMark()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return m.endExpedited()
}
