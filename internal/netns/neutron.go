package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// neutronPrefix begins what stands for the namespace that Neutron itself has on this node for a network; the network's
// id ends it. So what names one can be the same on all nodes, and with all of Neutron's drivers.
const neutronPrefix = "neutron:"

var networkRE = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// agents are what names of namespaces begin with that Neutron's agents make for a network: that of DHCP, and with OVN
// that of metadata. Where both are there, the first is meant.
var agents = []string{"qdhcp-", "ovnmeta-"}

// neutronPath returns the file of the namespace that Neutron has for a network; where there is none, the first that
// there could be.
func neutronPath(name string) (string, error) {
	network := strings.TrimPrefix(name, neutronPrefix)
	if !networkRE.MatchString(network) {
		return "", fmt.Errorf("network namespace %q: write %s and the network's id, 36 characters", name, neutronPrefix)
	}
	paths := neutronPaths(network)
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			return path, nil
		}
	}
	return paths[0], nil
}

func neutronPaths(network string) (paths []string) {
	for _, agent := range agents {
		paths = append(paths, filepath.Join(Dir, agent+network))
	}
	return paths
}

// missing says that a namespace is not there, and what can be done.
func missing(name, path string, err error) error {
	if network, is := strings.CutPrefix(name, neutronPrefix); is {
		return fmt.Errorf("network namespace %q does not exist (%s); none of Neutron's agents serves the network on this node, "+
			"or correct netns: %w", name, strings.Join(neutronPaths(network), ", "), err)
	}
	return fmt.Errorf("network namespace %q does not exist (%s); create it or correct netns: %w", name, path, err)
}
