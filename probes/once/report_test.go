package once

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigia/probes/accounting"
	"vigia/probes/delay"
	"vigia/probes/protocol"
	stampprobe "vigia/probes/protocol/stamp"
	"vigia/probes/sender"
)

func TestReasons(t *testing.T) {
	for lastError, want := range map[error]string{
		nil:                              "timeout",
		errors.New("anything"):           "timeout",
		syscall.Errno(unix.ECONNREFUSED): "refused: nothing listens on that port",
		syscall.Errno(unix.EHOSTUNREACH): "unreachable: no route to host",
		syscall.Errno(unix.ENETUNREACH):  "unreachable: network is unreachable",
		syscall.Errno(unix.EPERM):        "unreachable: the local firewall refuses to send (operation not permitted)",
		syscall.Errno(unix.EMSGSIZE):     "unreachable: the probes are larger than the path allows (message too long)",
		fmt.Errorf("send: %w", unix.EIO): "timeout, after the error: input/output error",
	} {
		if got := reason(&sender.Status{LastError: lastError}); got != want {
			t.Errorf("%v: %q, want %q", lastError, got, want)
		}
	}
}

func TestProbeLines(t *testing.T) {
	good := delay.Stamps{T2: 1000, T3: 3000, T4: 5500}
	for _, tc := range []struct {
		probe protocol.Probe
		want  string
	}{
		{protocol.Probe{Sequence: 1, State: protocol.Answered, Application: 80_000, Stamps: good}, "b: seq=1 size=64 rtt=3.5µs application=80.0µs residence=2.0µs\n"},
		{protocol.Probe{Sequence: 2, State: protocol.Answered, Application: 80_000, Verdict: delay.NoKernelStamp}, "b: seq=2 size=64 application=80.0µs rtt=- (no_kernel_stamp)\n"},
		{protocol.Probe{Sequence: 4, State: protocol.Answered, Application: 80_000, Stamps: delay.Stamps{T4: 5500, OneClock: true}}, "b: seq=4 size=64 rtt=5.5µs application=80.0µs\n"},
		{protocol.Probe{Sequence: 3, State: protocol.Lost, Cause: accounting.SendError}, "b: seq=3 lost (send_error)\n"},
	} {
		var out bytes.Buffer
		printProbe(&out, &tc.probe, "b", 64)
		if out.String() != tc.want {
			t.Errorf("got %q, want %q", out.String(), tc.want)
		}
	}
}

// TestSummaryOfAMixedRun makes a result by hand and reads every line of it.
func TestSummaryOfAMixedRun(t *testing.T) {
	st := sender.Status{
		Target:  sender.Target{Protocol: stampprobe.Protocol{}, Size: 64, Interval: 100 * time.Millisecond, Deadline: time.Second},
		Address: netip.MustParseAddrPort("10.0.0.1:862"),
		Counts: accounting.Counts{
			Sent: 8, Received: 5, Late: 1, Duplicate: 2, Reordered: 3, Corrupt: 4, Skipped: 5,
			Lost: [accounting.NumCauses]uint64{accounting.SendError: 1, accounting.Unknown: 2},
		},
		Jitter: 1.5e-6,
	}
	var totals sender.Totals
	totals.Stamps[sender.TX][sender.Kernel] = 5
	totals.Stamps[sender.ReflectorTX][sender.User] = 3
	probes := []protocol.Probe{
		{Sequence: 1, State: protocol.Answered, Application: 90_000, Stamps: delay.Stamps{T4: 7_000}},
		{Sequence: 0, State: protocol.Answered, Application: 80_000, Stamps: delay.Stamps{T4: 5_000}},
		{Sequence: 2, State: protocol.Lost, Cause: accounting.Unknown},
		{Sequence: 3, State: protocol.Answered, Application: 70_000, Verdict: delay.ClockStep},
	}
	r := newResult(probes, st, totals)
	var out bytes.Buffer
	r.print(&out)
	want := `
--- 10.0.0.1:862: STAMP, 64 bytes every 0.1s ---
8 sent, 5 received, 3 lost (37.50%): 1 send_error, 2 unknown
1 late, 2 duplicate, 3 reordered, 4 corrupt, 5 skipped
rtt, kernel timestamps: min 5.0µs  p50 5.0µs  p99 7.0µs  max 7.0µs  (2 samples)
rtt, application:       min 70.0µs  p50 80.0µs  p99 90.0µs  max 90.0µs  (3 samples)
jitter (RFC 3550):      1.5µs
time stamps:            tx kernel 5, reflector_tx user 3
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	for i, p := range r.Probes {
		if p.Sequence != uint64(i) {
			t.Errorf("record %d is of probe %d", i, p.Sequence)
		}
	}
	if p := r.Probes[3]; p.Quarantine != "clock_step" || p.RTT != nil || p.Application == nil {
		t.Errorf("%+v", p)
	}
	if p := r.Probes[2]; p.Cause != "unknown" || p.Outcome != "lost" {
		t.Errorf("%+v", p)
	}
}

func TestSummaryOfNothing(t *testing.T) {
	r := newResult(nil, sender.Status{Target: sender.Target{Protocol: stampprobe.Protocol{}}}, sender.Totals{})
	var out bytes.Buffer
	r.print(&out)
	if !strings.Contains(out.String(), "0 sent, 0 received, 0 lost (0.00%)\n") || !strings.Contains(out.String(), "time stamps:            none") {
		t.Errorf("%s", out.String())
	}
}
