package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"vigia/internal/bpf/classify"
	"vigia/internal/bpf/drops"
	"vigia/internal/bpf/vport"
	"vigia/internal/daemon"
	"vigia/internal/node"
)

// uninstallCommand takes the node back to where it was before Vigia's programs.
func uninstallCommand() daemon.Command {
	return daemon.Command{
		Name: "uninstall",
		Help: "Detach every program from the node's ports and remove all pins, vigia-enforcer's limits among them. Stop both programs first.",
		Register: func(cmd *kingpin.CmdClause) func(context.Context, io.Writer, io.Writer) error {
			pinDir := cmd.Flag("pin-dir", "bpf.pin_dir of the configuration.").Default("/sys/fs/bpf/vigia").String()
			netns := cmd.Flag("netns", "netns of the configuration; empty for the own namespace.").String()
			return func(_ context.Context, stdout, _ io.Writer) error {
				return uninstall(*pinDir, *netns, stdout)
			}
		},
	}
}

func uninstall(pinDir, netns string, stdout io.Writer) error {
	if _, err := os.Stat(pinDir); errors.Is(err, fs.ErrNotExist) {
		_, err = fmt.Fprintf(stdout, "%s does not exist: nothing is installed\n", pinDir)
		return err
	}
	ports, err := attachedPorts(pinDir)
	if err != nil {
		return err
	}
	m, err := vport.Open(vport.Options{PinDir: pinDir, NetNS: netns})
	if err != nil {
		return err
	}
	if err := errors.Join(m.Uninstall(), m.Close()); err != nil {
		return err
	}
	if err := drops.Uninstall(pinDir); err != nil {
		return err
	}
	// What vigia-enforcer has left: the term of the leader it obeyed, and what tells tenants apart on uplinks.
	for _, dir := range []string{node.EnforcerPins(pinDir), classify.Dir(pinDir)} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove pins of vigia-enforcer: %w", err)
		}
	}
	for _, dir := range []string{"maps", "links", ""} {
		if err := os.Remove(filepath.Join(pinDir, dir)); err != nil {
			return fmt.Errorf("remove %s, which should be empty now: %w", filepath.Join(pinDir, dir), err)
		}
	}
	_, err = fmt.Fprintf(stdout, "detached from %d ports; removed %s\n", ports, pinDir)
	return err
}

// attachedPorts counts the interfaces that have pinned links, named INDEX-HOOK.
func attachedPorts(pinDir string) (int, error) {
	entries, err := os.ReadDir(filepath.Join(pinDir, "links"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("list links: %w", err)
	}
	seen := make(map[string]bool)
	for _, e := range entries {
		index, _, _ := strings.Cut(e.Name(), "-")
		seen[index] = true
	}
	return len(seen), nil
}
