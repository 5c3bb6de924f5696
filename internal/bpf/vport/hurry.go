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
	// hurryMark lies in the pin directory while the switch is on, so that the next
	// process turns it off if this one dies.
	hurryMark = "hurry"
	// hurryFrom is how many interfaces make it worth the interrupts that expedited
	// grace periods send to every processor.
	hurryFrom = 16
)

// Hurry speeds up attaching or detaching so many interfaces, and returns what ends
// it. Where the switch may not be written, or an administrator has it on, or there
// are few interfaces, it does nothing.
func (m *Manager) Hurry(interfaces int) (done func() error) {
	nothing := func() error { return nil }
	if interfaces < hurryFrom {
		return nothing
	}
	now, err := os.ReadFile(m.rcuExpedited)
	if err != nil || strings.TrimSpace(string(now)) != "0" {
		return nothing
	}
	if err := os.Mkdir(m.hurryMark(), 0o700); err != nil {
		return nothing // another process is at it
	}
	if err := m.expedite("1"); err != nil {
		return func() error { return os.Remove(m.hurryMark()) }
	}
	return m.calmDown
}

func (m *Manager) hurryMark() string { return filepath.Join(m.pinDir, hurryMark) }

func (m *Manager) expedite(value string) error {
	return os.WriteFile(m.rcuExpedited, []byte(value), 0o644)
}

func (m *Manager) calmDown() error {
	if err := m.expedite("0"); err != nil {
		return fmt.Errorf("end the hurry: %w", err)
	}
	if err := os.Remove(m.hurryMark()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("end the hurry: %w", err)
	}
	return nil
}

// recoverHurry turns off what a process that died left on.
func (m *Manager) recoverHurry() error {
	if _, err := os.Stat(m.hurryMark()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return m.calmDown()
}
