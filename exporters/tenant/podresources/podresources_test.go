package podresources

import (
	"context"
	"errors"
	"maps"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kubelet "k8s.io/kubelet/pkg/apis/podresources/v1"

	"vigia/exporters/tenant/source"
	"vigia/internal/testutil"
)

// node is a kubelet as its socket shows it.
type node struct {
	kubelet.UnimplementedPodResourcesListerServer
	pods   []*kubelet.PodResources
	broken atomic.Bool
}

func (n *node) List(context.Context, *kubelet.ListPodResourcesRequest) (*kubelet.ListPodResourcesResponse, error) {
	if n.broken.Load() {
		return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	return &kubelet.ListPodResourcesResponse{PodResources: n.pods}, nil
}

// serve runs the kubelet's service on a unix socket until it is stopped.
func (n *node) serve(t *testing.T, socket string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	kubelet.RegisterPodResourcesListerServer(server, n)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	return func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func pod(namespace, name string, ids ...string) *kubelet.PodResources {
	return &kubelet.PodResources{Namespace: namespace, Name: name, Containers: []*kubelet.ContainerResources{
		{Name: "init"},
		{Name: "app", Devices: []*kubelet.ContainerDevices{{ResourceName: "intel.com/sriov_net", DeviceIds: ids}}, CpuIds: []int64{2, 3}},
	}}
}

func TestTheKubeletSaysWhoHoldsADevice(t *testing.T) {
	n := &node{pods: []*kubelet.PodResources{
		pod("red", "web-0", "0000:3b:02.1"), pod("blue", "db", "0000:3b:02.2", "0000:3b:02.3"), pod("red", "idle"), pod("bad\n", "x", "0000:3b:02.4"),
	}}
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	s, err := New(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	defer func() {
		cancel()
		<-ended
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	testutil.WaitFor(t, "the kubelet's absence to be noticed", func() bool {
		err := s.Collect(nil, nil)
		return err != nil && !errors.Is(err, source.ErrNotYet)
	})
	if s.Owners() != nil {
		t.Error("devices are held though nobody says so")
	}
	stop := n.serve(t, socket)
	want := map[string]Owner{"0000:3b:02.1": {"red", "web-0"}, "0000:3b:02.2": {"blue", "db"}, "0000:3b:02.3": {"blue", "db"}}
	testutil.WaitFor(t, "the owners", func() bool { return s.Collect(nil, nil) == nil && maps.Equal(s.Owners(), want) })
	if _, known := s.Age(); !known {
		t.Error("the answer has no age")
	}

	// The kubelet restarts, and refuses once.
	stop()
	n.broken.Store(true)
	stop = n.serve(t, socket)
	defer func() { stop() }()
	testutil.WaitFor(t, "the refusal", func() bool {
		err := s.poller.Refresh(ctx)
		return err != nil && strings.Contains(err.Error(), "rejected by rate limit")
	})
	if s.Collect(nil, nil) == nil || s.Owners() != nil {
		t.Error("an old answer is shown as if it were new")
	}
	n.broken.Store(false)
	testutil.WaitFor(t, "the owners again", func() bool { return s.poller.Refresh(ctx) == nil && maps.Equal(s.Owners(), want) })
}
