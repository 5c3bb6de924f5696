package sender

import (
	"bufio"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"vigia/probes/delay"
)

// plainReflector runs the reflector that was written from RFC 8762 alone.
func plainReflector(t *testing.T, mode string) netip.AddrPort {
	t.Helper()
	cmd := exec.Command("python3", "testdata/plain_reflector.py", mode)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(strings.TrimSpace(line), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
}

// TestPlainReflector probes a reflector without identifiers and TLVs with two
// targets from one socket: they can only be told apart by the echoed time stamp.
// Its stamps are of user space, so there is loss and application delay, and no
// kernel delay.
func TestPlainReflector(t *testing.T) {
	for _, mode := range []string{"short", "symmetric"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			at := plainReflector(t, mode)
			f := newSender(t, Options{})
			const n = 50
			a, b := target("b", at), target("b", at)
			a.Count, b.Count, b.Labels.Probe, b.Size = n, n, "big", 400
			f.apply(a, b)
			f.waitFor("answers", func() bool {
				st := f.status(a.Labels)
				if st.Waiting != 0 {
					t.Fatalf("%d probes wait for stamps that never come", st.Waiting)
				}
				return st.Counts.Received > n/2
			})
			for _, tg := range []Target{a, b} {
				st, settled := f.finish(tg.Labels)
				if st.Counts.Received != n || st.Counts.Corrupt != 0 || st.Quarantined[delay.NoKernelStamp] != n {
					t.Errorf("%s: %+v, quarantined %v", tg.Labels.Probe, st.Counts, st.Quarantined)
				}
				for _, p := range settled {
					s := p.Stamps
					if p.Application <= 0 || s.Kernel != delay.T1|delay.T4 || s.T2 < s.T1-1000 || s.T3 < s.T2 || s.T4 < s.T3-1000 {
						t.Fatalf("%s: %+v", tg.Labels.Probe, p)
					}
				}
			}
			_, totals, err := f.Snapshot(nil)
			if err != nil {
				t.Fatal(err)
			}
			want := [NumPoints][NumSources]uint64{
				TX: {Kernel: 2 * n}, RX: {Kernel: 2 * n}, ReflectorRX: {User: 2 * n}, ReflectorTX: {User: 2 * n},
			}
			if totals.Stamps != want || totals.Stray != 0 {
				t.Errorf("sources %v, stray %d", totals.Stamps, totals.Stray)
			}
		})
	}
}
