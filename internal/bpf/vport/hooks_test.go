package vport_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vigia/internal/bpf/vport"
	"vigia/internal/bpf/vport/vporttest"
	"vigia/internal/testutil"
	"vigia/internal/testutil/frame"
)

// pins lists the links' pins of the port by their kinds.
func (r *rig) pins() (names []string) {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.PinDir, "links"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		index, name, _ := strings.Cut(e.Name(), "-")
		if index != fmt.Sprint(r.Index) {
			r.t.Errorf("%s is of another interface", e.Name())
		}
		names = append(names, name)
	}
	return names
}

// TestEachHookHasItsPrograms changes between all of them.
func TestEachHookHasItsPrograms(t *testing.T) {
	eachAttachment(t, func(t *testing.T, r *rig) {
		m := r.open()
		for _, hook := range []vport.Hook{vport.TCX, vport.XDP, vport.TCXTenant, vport.XDP, vport.TCX} {
			if err := m.Attach(r.Index, hook); err != nil {
				t.Fatal(err)
			}
			want := map[vport.Hook][]string{
				vport.TCX: {"egress", "ingress"}, vport.XDP: {"egress", "ingress-passed", "xdp"}, vport.TCXTenant: {"egress-tenant", "ingress-tenant"},
			}[hook]
			if r.attachment == vport.ClsactFilters {
				want = append(slices.Clone(want), "qdisc")
			}
			slices.Sort(want)
			if got := r.pins(); !slices.Equal(got, want) {
				t.Errorf("%s has %v, want %v", hook, got, want)
			}
			if attached, err := m.Attached(); err != nil || attached[r.Index] != hook {
				t.Errorf("attached %v, %v", attached, err)
			}
		}
	})
}

// TestALostProgramIsPutBack removes each pin of each hook: the kernel lets go of a link
// when the last one that holds it has.
func TestALostProgramIsPutBack(t *testing.T) {
	r := newRig(t)
	r.attachment = vport.TCXLinks
	m := r.open()
	for _, hook := range []vport.Hook{vport.TCX, vport.XDP} {
		if err := m.Attach(r.Index, hook); err != nil {
			t.Fatal(err)
		}
		whole := r.pins()
		for _, name := range whole {
			if err := os.Remove(filepath.Join(r.PinDir, "links", fmt.Sprintf("%d-%s", r.Index, name))); err != nil {
				t.Fatal(err)
			}
			testutil.WaitFor(t, "the program to be put back", func() bool {
				return m.Attach(r.Index, hook) == nil && slices.Equal(r.pins(), whole)
			})
		}
		testutil.WaitFor(t, "everything to be counted once", func() bool {
			before := r.counters(m)
			if r.Send(20, 100) != 20 || r.Receive(10, 100) != 10 {
				return false
			}
			after := r.counters(m)
			return after.Packets[vport.FromTenant][udp]-before.Packets[vport.FromTenant][udp] == 20 &&
				after.Packets[vport.ToTenant][udp]-before.Packets[vport.ToTenant][udp] == 10
		})
	}
}

// TestTagsCountWhereverTheyAre has a tag beside the frame, one in it, and both.
func TestTagsCountWhereverTheyAre(t *testing.T) {
	const n, size, headers = 25, 200, 14 + 20 + 8
	for _, at := range everywhere() {
		for _, tags := range [][]uint16{nil, {frame.TypeVLAN}, {frame.TypeVLAN, frame.TypeQinQ}} {
			t.Run(fmt.Sprintf("%s, %s, %d tags", at.hook, at.attachment, len(tags)), func(t *testing.T) {
				r := newRig(t)
				r.attachment = at.attachment
				m := r.open()
				if err := m.Attach(r.Index, at.hook); err != nil {
					t.Fatal(err)
				}
				if len(tags) > 0 {
					defer vporttest.PushTags(t, r.Tenant, "eth0", tags...)()
				}
				// The node has no device of the VLAN: nothing arrives at a socket.
				if got := r.Send(n, size); got != n && len(tags) == 0 {
					t.Fatalf("%d of %d datagrams arrived", got, n)
				}
				want := uint64(n * (size + headers + 4*len(tags)))
				testutil.WaitFor(t, fmt.Sprintf("%d bytes to be counted", want), func() bool {
					return r.counters(m).Bytes[vport.FromTenant][udp] == want
				})
				if c := r.counters(m); c.Packets[vport.FromTenant][udp] != n {
					t.Errorf("%d packets, sent %d", c.Packets[vport.FromTenant][udp], n)
				}
			})
		}
	}
}

// TestALimitDropsAtEveryHookAndCountsOnce looks at what is counted where XDP drops and tc
// counts the rest.
func TestALimitDropsAtEveryHookAndCountsOnce(t *testing.T) {
	const sent, pass, size = 60, 7, 1000
	attachedEverywhere(t, func(t *testing.T, r *rig, m *vport.Manager, at where) {
		if err := m.SetLimit(r.Index, vport.LimitRequest{ID: [16]byte{1}, Rate: 1, Burst: pass * (size + 42), TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if got := r.Send(sent, size); got != pass {
			t.Errorf("%d datagrams passed, want %d", got, pass)
		}
		c := r.counters(m)
		if c.Packets[vport.FromTenant][udp] != sent || c.Bytes[vport.FromTenant][udp] != sent*(size+42) {
			t.Errorf("counted %d packets, %d bytes; sent %d", c.Packets[vport.FromTenant][udp], c.Bytes[vport.FromTenant][udp], sent)
		}
		if c.PolicedPackets != sent-pass || c.PolicedBytes != (sent-pass)*(size+42) {
			t.Errorf("policed %d packets, %d bytes; want %d", c.PolicedPackets, c.PolicedBytes, sent-pass)
		}
		sizes := uint64(0)
		for _, n := range c.Sizes[vport.FromTenant] {
			sizes += n
		}
		if want := c.Packets[vport.FromTenant]; sizes != want[0]+want[1]+want[2]+want[3]+want[4]+want[5] {
			t.Errorf("%d frames by size, packets %v", sizes, want)
		}
	})
}
