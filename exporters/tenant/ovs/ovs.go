// Package ovs is the source of ovs-vswitchd's internals: datapath lookups,
// upcalls, the flow limit, and the coverage counters of what goes wrong.
package ovs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"vigia/exporters/tenant/source"
	"vigia/internal/exposition"
	"vigia/internal/unixctl"
)

// report is what the daemon said.
type report struct {
	datapaths []datapath
	upcalls   []upcalls
	coverage  map[string]uint64
	threads   []thread
}

// Source asks the daemon at an interval and emits the newest answers.
type Source struct {
	runDir string
	poller *source.Poller[report]

	lookups, flows, dpFlows, flowLimit, dump, coverage *exposition.Family
	threadPackets, threadUpcalls, threadCycles         *exposition.Family
}

// New returns the source that asks the ovs-vswitchd whose pid file is in runDir.
func New(f source.Families, runDir string, every time.Duration) *Source {
	s := &Source{
		runDir:        runDir,
		lookups:       source.Family(f, "vigia_ovs_datapath_lookups_total"),
		dpFlows:       source.Family(f, "vigia_ovs_datapath_flows"),
		flows:         source.Family(f, "vigia_ovs_upcall_flows"),
		flowLimit:     source.Family(f, "vigia_ovs_flow_limit"),
		dump:          source.Family(f, "vigia_ovs_flow_dump_duration_seconds"),
		coverage:      source.Family(f, "vigia_ovs_coverage_events_total"),
		threadPackets: source.Family(f, "vigia_ovs_thread_packets_total"),
		threadUpcalls: source.Family(f, "vigia_ovs_thread_upcalls_total"),
		threadCycles:  source.Family(f, "vigia_ovs_thread_cycles_total"),
	}
	s.poller = source.NewPoller(every, s.read)
	return s
}

// Age returns the age of the newest answers.
func (s *Source) Age() (time.Duration, bool) { return s.poller.Age() }

// Run asks until ctx ends.
func (s *Source) Run(ctx context.Context) { s.poller.Run(ctx) }

func (s *Source) read(ctx context.Context) (r report, err error) {
	socket, err := unixctl.Socket(s.runDir, "ovs-vswitchd")
	if err != nil {
		return r, err
	}
	for _, q := range []struct {
		command  string
		take     func(text string) error
		optional bool // only with a userspace datapath
	}{
		{"dpctl/show", func(t string) (err error) { r.datapaths, err = parseDatapaths(t); return err }, false},
		{"upcall/show", func(t string) (err error) { r.upcalls, err = parseUpcalls(t); return err }, false},
		{"coverage/show", func(t string) (err error) { r.coverage, err = parseCoverage(t); return err }, false},
		{"dpif-netdev/pmd-stats-show", func(t string) (err error) { r.threads, err = parseThreads(t); return err }, true},
	} {
		text, err := unixctl.Call(ctx, socket, q.command)
		if q.optional && errors.Is(err, unixctl.ErrRefused) {
			continue
		}
		if err == nil {
			err = q.take(text)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// Collect emits the newest answers.
func (s *Source) Collect(v *source.View, out *exposition.Page) error {
	r, err := s.poller.Latest()
	if err != nil {
		return err
	}
	for _, d := range r.datapaths {
		for _, l := range d.lookups {
			out.Emit(s.lookups, float64(l.count), d.name, l.result)
		}
		out.Emit(s.dpFlows, float64(d.flows), d.name)
	}
	for _, u := range r.upcalls {
		out.Emit(s.flows, float64(u.current), u.datapath)
		out.Emit(s.flowLimit, float64(u.limit), u.datapath)
		out.Emit(s.dump, u.dump.Seconds(), u.datapath)
	}
	for event, count := range r.coverage {
		if v.Detail || telling(event) {
			out.Emit(s.coverage, float64(count), event)
		}
	}
	for i := range r.threads {
		t := &r.threads[i]
		out.Emit(s.threadPackets, float64(t.received), t.name)
		out.Emit(s.threadUpcalls, float64(t.upcalls), t.name, "success")
		out.Emit(s.threadUpcalls, float64(t.failed), t.name, "failed")
		if t.hasCycles {
			out.Emit(s.threadCycles, float64(t.busy), t.name, "busy")
			out.Emit(s.threadCycles, float64(t.idle), t.name, "idle")
		}
	}
	return nil
}

// telling tells whether a coverage counter is one of loss or overload; a version
// of Open vSwitch has about 180 of them.
func telling(event string) bool {
	for _, prefix := range []string{"datapath_drop_", "drop_action_", "upcall_", "ofproto_dpif_expired", "vhost_"} {
		if strings.HasPrefix(event, prefix) {
			return true
		}
	}
	return slices.Contains([]string{
		"handler_duplicate_upcall", "revalidate_missed_dp_flow", "dpif_execute_error", "dpif_flow_put_error", "dpif_flow_del_error",
		"netlink_overflow", "rev_flow_table", "rev_reconfigure", "xlate_actions", "xlate_actions_oversize", "mac_learning_evicted",
		"packet_in_overflow", "netdev_vxlan_tso_drops", "netdev_geneve_tso_drops", "netdev_push_header_drops", "lockfile_error",
	}, event)
}
