// Package podresources asks the kubelet which pod holds which device. A pod's SR-IOV
// VF has no device on the node that would say whose it is: only the kubelet knows.
//
// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
package podresources

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/podresources/v1"

	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
	"vigia/internal/ports"
)

const (
	// Every is how often the kubelet is asked.
	Every = 10 * time.Second
	// maxAnswer is what the kubelet's own client takes.
	maxAnswer  = 16 << 20
	maxDevices = 1 << 16
)

// Owner is the pod that holds a device.
type Owner struct{ Namespace, Pod string }

// Source asks the kubelet in the background and tells others what it says; it has
// no series of its own but those about itself.
type Source struct {
	conn   *grpc.ClientConn
	poller *source.Poller[map[string]Owner]
}

// New returns the source that asks by the kubelet's socket, given by its path. The
// kubelet need not run yet.
func New(socket string) (*Source, error) {
	// The socket is root's and local: there is nothing to encrypt.
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("kubelet_socket %s: %w", socket, err)
	}
	s := &Source{conn: conn}
	client := kubelet.NewPodResourcesListerClient(conn)
	s.poller = source.NewPoller(Every, func(ctx context.Context) (map[string]Owner, error) { return list(ctx, client) })
	return s, nil
}

// Run asks until ctx ends.
func (s *Source) Run(ctx context.Context) { s.poller.Run(ctx) }

// Age returns the age of the newest answer.
func (s *Source) Age() (time.Duration, bool) { return s.poller.Age() }

// Close hangs up.
func (s *Source) Close() error { return s.conn.Close() }

// Collect tells whether the kubelet answers.
func (s *Source) Collect(*source.View, *exposition.Page) error {
	_, err := s.poller.Latest()
	return err
}

// Owners returns who holds which device, by the device's id: an SR-IOV device
// plugin's are PCI addresses. It is nil while the kubelet does not answer.
func (s *Source) Owners() map[string]Owner {
	owners, err := s.poller.Latest()
	if err != nil {
		return nil
	}
	return owners
}

func list(ctx context.Context, client kubelet.PodResourcesListerClient) (map[string]Owner, error) {
	answer, err := client.List(ctx, &kubelet.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet for pods' devices: %w", err)
	}
	owners := make(map[string]Owner)
	for _, pod := range answer.GetPodResources() {
		owner := Owner{Namespace: pod.GetNamespace(), Pod: pod.GetName()}
		if !ports.ValidID(owner.Namespace) || !ports.ValidID(owner.Pod) {
			continue
		}
		for _, container := range pod.GetContainers() {
			for _, devices := range container.GetDevices() {
				for _, id := range devices.GetDeviceIds() {
					if len(owners) >= maxDevices {
						return nil, fmt.Errorf("the kubelet lists more than %d devices", maxDevices)
					}
					owners[id] = owner
				}
			}
		}
	}
	return owners, nil
}
