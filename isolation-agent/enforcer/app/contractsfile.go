package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"vigia/internal/config"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/scheduling"
)

const mostNamed = 8 // contracts or nodes that a line of the log names

// contractsFile is a file of contracts that somebody else keeps up to date, such as
// vigia-identity from a cluster's NetworkGuarantees or from Neutron's policies of QoS.
type contractsFile struct {
	Version   int            `yaml:"version"`
	Contracts []contractKeys `yaml:"contracts"`

	list []contract.Contract
}

// Validate checks and converts the contracts. They need no match: without one they are the
// floor of limits at their ports.
func (f *contractsFile) Validate() error {
	var faults faults
	if f.Version != 1 {
		faults.add("version", f.Version, "is not a known version", "write version: 1")
	}
	f.list = make([]contract.Contract, 0, len(f.Contracts))
	for i := range f.Contracts {
		f.list = append(f.list, f.Contracts[i].contract(i, &faults))
	}
	return errors.Join(append(faults, contract.Validate(f.list))...)
}

// contracts are those in force: of the configuration, and of the file for whom that has none.
type contracts struct {
	logger *slog.Logger
	apply  func([]scheduling.Link, *contract.Set)
	room   func() int // classes that the kernel has room for; 0 before it was asked, and without links
	wake   chan struct{}

	mu     sync.Mutex
	config *Config
	file   *config.File[contractsFile, *contractsFile]
	tried  *contractsFile // what the file last said
	wrong  error          // why nothing of that is in force
	left   []leftOut      // what of it is not in force, for want of room
	whole  error          // why not all of it is
	read   *contractsFile // what is in force of it
	set    *contract.Set  // both together
	said   string
}

// newContracts returns the contracts of a configuration; nothing is applied yet.
func newContracts(c *Config, logger *slog.Logger) *contracts {
	b := &contracts{
		logger: logger, apply: func([]scheduling.Link, *contract.Set) {}, room: func() int { return 0 },
		wake: make(chan struct{}, 1), config: c, set: c.contracts, file: newContractsFile(c),
	}
	b.look()
	return b
}

func newContractsFile(c *Config) *config.File[contractsFile, *contractsFile] {
	return config.NewFile[contractsFile](c.ContractsFile, "vigia-identity makes it; remove contracts_file without it")
}

// prepare returns what puts another configuration in force, or why that cannot be: it may not go
// together with what the file says.
func (b *contracts) prepare(c *Config) (commit func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	file, read := b.file, b.read
	if c.ContractsFile != b.config.ContractsFile {
		if file, read = newContractsFile(c), nil; file != nil {
			if read, err = file.Read(); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("contracts_file: %w", err)
			}
		}
	}
	set, err := c.join(read, b.room())
	if err != nil {
		return nil, err
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.config, b.file, b.read, b.set = c, file, read, set
		b.tried, b.wrong = nil, nil // what was refused may be good now
		b.look()
		b.apply(c.links, b.set)
		select {
		case b.wake <- struct{}{}: // another file may have to be watched
		default:
		}
	}, nil
}

// all returns the contracts in force.
func (b *contracts) all() *contract.Set {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.set
}

// join returns the contracts of the configuration and, for owners that have none there, those of a file,
// or why they do not go together; room is how many classes the kernel has room for, 0 if it is not known.
func (c *Config) join(file *contractsFile, room int) (*contract.Set, error) {
	set := c.contracts
	if file != nil {
		list := slices.Clone(set.All())
		names := make(map[string]bool, len(list))
		for i := range list {
			names[list[i].String()] = true
		}
		for i := range file.list {
			if !names[file.list[i].String()] {
				list = append(list, file.list[i])
			}
		}
		joined, err := contract.NewSet(list)
		if err != nil { // each is good, but a frame may be of two
			return nil, fmt.Errorf("contracts_file beside contracts, which come first: %w", err)
		}
		set = joined
		if err := c.admit(set); err != nil {
			return nil, fmt.Errorf("with the contracts of contracts_file: %w", err)
		}
	}
	if n := c.classes(set); room > 0 && n > room {
		return nil, fmt.Errorf("contracts: %d contracts on %d links are more than a running enforcer has room for; restart it", len(set.All()), len(c.links))
	}
	return set, nil
}

// look reads the file if it has changed, and says whether its contracts have; mu is held. What is
// in force stays while the file cannot be read, or its contracts not be kept.
func (b *contracts) look() (changed bool) {
	content, err := b.file.Read()
	if err == nil {
		changed = b.take(content)
		err = b.wrong
	}
	level, message := slog.LevelError, "cannot take up contracts_file; its last contracts stay in force"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		level = slog.LevelWarn
	case err == nil && len(b.left) > 0:
		err, message = b.withoutRoom(), "contracts of contracts_file are left out, the others are in force"
	}
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != b.said && said != "" {
		b.logger.Log(context.Background(), level, message, "err", err)
	}
	b.said = said
	return changed
}

// take tries what the file says, once for each content, and says whether it is in force anew; mu is held.
func (b *contracts) take(content *contractsFile) bool {
	if content == b.tried {
		return false
	}
	b.tried, b.left = content, nil
	set, whole := b.config.join(content, b.room())
	if whole != nil {
		content, b.left = b.config.fit(content, b.read, b.room())
		b.whole = whole
		if set, b.wrong = b.config.join(content, b.room()); b.wrong != nil {
			return false
		}
	}
	b.wrong = nil
	if content == b.read {
		return false
	}
	b.read, b.set = content, set
	return true
}

// withoutRoom says who is left out and why the file is not in force as a whole; mu is held.
func (b *contracts) withoutRoom() error {
	names := make([]string, 0, mostNamed+1)
	for i := range b.left {
		if i == mostNamed {
			names = append(names, fmt.Sprintf("and %d more", len(b.left)-i))
			break
		}
		names = append(names, b.left[i].String())
	}
	return fmt.Errorf("%s: %w", strings.Join(names, ", "), b.whole)
}

// leftOut returns how many contracts of the file are not in force as it says.
func (b *contracts) leftOut() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.left)
}

// follow keeps up with the file until ctx ends.
func (b *contracts) follow(ctx context.Context) {
	config.Follow(ctx, b.path, b.wake, b.followed)
}

func (b *contracts) path() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.config.ContractsFile
}

// followed looks at the file, and puts in force what it says anew.
func (b *contracts) followed() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.look() {
		b.apply(b.config.links, b.set)
		b.logger.Info("took up contracts_file", "contracts", len(b.set.All()))
	}
	return 0
}
