package ports

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Bounds on what the results of CNI plugins may be.
const (
	maxCNIResults = 8192    // a pod has two with containerd: one is of its loopback
	maxCNIResult  = 1 << 20 // bytes
)

// cniResult is what matters of a result that libcni keeps: containerd and CRI-O both
// write one for every interface of a pod before its containers start, and remove it
// with the pod.
//
// https://github.com/containernetworking/cni/blob/main/libcni/api.go (cachedInfo)
type cniResult struct {
	Kind        string      `json:"kind"`
	ContainerID string      `json:"containerId"`
	IfName      string      `json:"ifName"`
	Network     string      `json:"networkName"`
	Args        [][2]string `json:"cniArgs"`
	Result      struct {
		Interfaces []struct {
			Name    string `json:"name"`
			Sandbox string `json:"sandbox"` // empty for those on the node
		} `json:"interfaces"`
	} `json:"result"`
}

const (
	cniKind = "cniCacheV1"
	// loopback is the network by which containerd brings up a pod's lo.
	loopback = "cni-loopback"
)

// parseCNI reads a result and returns what it says by device of the node. Names of
// bridges are among those; they are no ports by their kind.
func parseCNI(r io.Reader) (map[string]identity, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxCNIResult+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxCNIResult {
		return nil, fmt.Errorf("longer than %d bytes", maxCNIResult)
	}
	var c cniResult
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, err
	}
	if c.Kind != cniKind {
		return nil, fmt.Errorf("its kind is %q, not %q", c.Kind, cniKind)
	}
	args := make(map[string]string, len(c.Args))
	for _, a := range c.Args {
		args[a[0]] = a[1]
	}
	out := make(map[string]identity)
	namespace := args["K8S_POD_NAMESPACE"]
	if namespace == "" {
		return out, nil // of no pod
	}
	// Whoever restarts a pod's sandbox keeps the pod's UID: its counters go on.
	id := identity{
		Port: cmp.Or(args["K8S_POD_UID"], c.ContainerID) + "/" + c.IfName, Tenant: namespace,
		Network: c.Network, Workload: args["K8S_POD_NAME"], Source: "cni",
	}
	for _, i := range c.Result.Interfaces {
		if i.Sandbox == "" && i.Name != "" {
			out[i.Name] = id
		}
	}
	return out, nil
}

// cniResults reads the results of CNI plugins. The runtime's own socket, which could
// say the same, would make whoever may ask it root on the node.
func cniResults(dir string) folder {
	return folder{
		dir: dir, key: "cni_results_dir", usual: "/var/lib/cni/results", platform: "CNI", what: "result",
		most: maxCNIResults, parse: parseCNI, exclusive: true, settles: resyncInterval,
		wanted: func(name string) bool { return !strings.HasPrefix(name, loopback) },
	}
}

// podSide are the kinds of devices on a node that lead to one pod. Bridges and tunnels,
// which plugins name beside them, lead to all.
func podSide(kind string) bool { return slices.Contains([]string{"veth", "tun", "netkit"}, kind) }
