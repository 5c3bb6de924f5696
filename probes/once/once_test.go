package once

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/google/go-cmp/cmp"

	"vigia/internal/daemon"
	"vigia/internal/netns"
	"vigia/internal/testutil"
	"vigia/probes/reflector"
	"vigia/probes/sender"
	"vigia/probes/sockets"
)

// call runs the command as the program does and returns output and error.
func call(t *testing.T, ctx context.Context, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	app := kingpin.New("test", "")
	app.Terminate(func(int) { t.Error("terminated") })
	app.UsageWriter(io.Discard).ErrorWriter(io.Discard)
	command := Command()
	run := command.Register(app.Command(command.Name, command.Help))
	if _, err := app.Parse(append([]string{"once"}, args...)); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	err = run(ctx, &out, &errOut)
	return out.String(), errOut.String(), err
}

type silent struct{}

func (silent) Received()                 {}
func (silent) Reflected()                {}
func (silent) Rejected(reflector.Reason) {}
func (silent) Overflowed(uint32)         {}

// reflect runs a reflector until the end of the test.
func reflect(t *testing.T, ns string, at netip.AddrPort) {
	t.Helper()
	r, err := reflector.New(reflector.Options{
		Logger: slog.New(slog.DiscardHandler), RemoveCounters: func(sockets.Key) {},
		NewCounters: func(sockets.Key) reflector.Counters { return silent{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	err = r.Apply(reflector.Config{
		Listeners: []sockets.Key{{Netns: ns, Local: at}}, MaxRate: 100_000,
		Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	})
	if err != nil {
		t.Fatal(err)
	}
	testutil.Running(t, r)
}

func reflectOnLoopback(t *testing.T, network, host string) netip.AddrPort {
	t.Helper()
	at := testutil.FreePort(t, network, host)
	reflect(t, "", at)
	return at
}

// inFull calls until the output has what only probes with all of their stamps give: a starved reflector follows up on
// the last few alone.
func inFull(t *testing.T, has string, args ...string) (out string) {
	t.Helper()
	testutil.Attempts(t, 10, func() (err error) {
		out, _, err = call(t, t.Context(), append(args, "--deadline", "20s")...)
		if err == nil && !strings.Contains(out, has) {
			err = fmt.Errorf("the output lacks %q:\n%s", has, out)
		}
		return err
	})
	return out
}

func TestTwentyProbesGiveTwentyKernelDelays(t *testing.T) {
	at := reflectOnLoopback(t, "udp4", "127.0.0.1")
	out := inFull(t, "(20 samples)", "--to", at.String(), "--count", "20", "--interval", "5ms")
	line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(at.String()) + `: seq=\d+ size=64 rtt=[\d.]+(µs|ms|s) application=[\d.]+(µs|ms|s) residence=[\d.]+(µs|ms|s)$`)
	if n := len(line.FindAllString(out, -1)); n != 20 {
		t.Errorf("%d of 20 lines have a kernel RTT:\n%s", n, out)
	}
	for _, want := range []string{
		"--- " + at.String() + ": STAMP, 64 bytes every 0.005s ---\n",
		"20 sent, 20 received, 0 lost (0.00%)\n",
		"0 late, 0 duplicate, 0 reordered, 0 corrupt",
		"(20 samples)\nrtt, application: ",
		"jitter (RFC 3550): ",
		"time stamps:            tx kernel 20, rx kernel 20, reflector_rx kernel 20, reflector_tx kernel 20\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("the output has escape sequences")
	}
}

func TestSingleProbe(t *testing.T) {
	at := reflectOnLoopback(t, "udp4", "127.0.0.1")
	out := inFull(t, "(1 samples)", "--to", at.String(), "--count", "1")
	if !strings.Contains(out, "1 sent, 1 received") || strings.Contains(out, "jitter") {
		t.Errorf("%s", out)
	}
}

func TestJSON(t *testing.T) {
	at := reflectOnLoopback(t, "udp6", "::1")
	out := inFull(t, `"samples": 10`, "--to", "::1", "--reflector-port", fmt.Sprint(at.Port()), "--count", "10", "--interval", "5ms", "--size", "1000", "--json")
	var r result
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if dec.More() {
		t.Error("more than one document")
	}
	if r.Schema != schema || r.Address != at.String() || r.Size != 1000 || r.Sent != 10 || r.Received != 10 || r.Lost != 0 || len(r.LostByCause) != 6 || r.Reason != "" {
		t.Errorf("%+v", r)
	}
	if r.RTT.Samples != 10 || *r.RTT.Min <= 0 || *r.RTT.Min > *r.RTT.P50 || *r.RTT.P50 > *r.RTT.P99 || *r.RTT.P99 > *r.RTT.Max || *r.RTT.Max > *r.Application.Max {
		t.Errorf("distributions:\n%s", out)
	}
	if diff := cmp.Diff(map[string]uint64{"hardware": 0, "kernel": 10, "user": 0}, r.Timestamps["reflector_tx"]); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	for i, p := range r.Probes {
		if p.Sequence != uint64(i) || p.Outcome != "received" || p.RTT == nil || p.Residence == nil || p.Application == nil {
			t.Errorf("probe %d: %+v", i, p)
		}
	}
}

// TestNoAnswer checks that the reason is told and the summary is there, too.
func TestNoAnswer(t *testing.T) {
	refusing := testutil.FreePort(t, "udp", "127.0.0.1").String()
	mute, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	ns := testutil.NewNetNS(t)
	testutil.IP(t, "-n", ns, "route", "add", "unreachable", "10.8.0.0/24")
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"refused", []string{"--to", refusing}, "no answer from " + refusing + ": refused: nothing listens on that port"},
		{"timeout", []string{"--to", mute.LocalAddr().String()}, "no answer from " + mute.LocalAddr().String() + ": timeout"},
		{"unreachable", []string{"--to", "10.8.0.1", "--netns", ns}, "no answer from 10.8.0.1:862: unreachable: no route to host"},
		{"no route", []string{"--to", "10.7.0.1:99", "--netns", ns}, "no answer from 10.7.0.1:99: unreachable: network is unreachable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append(tc.args, "--count", "3", "--interval", "5ms", "--deadline", "300ms")
			out, _, err := call(t, t.Context(), args...)
			var usage *daemon.UsageError
			if err == nil || errors.As(err, &usage) || err.Error() != tc.want {
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
			if !strings.Contains(out, "3 sent, 0 received, 3 lost (100.00%): 3 ") || strings.Count(out, " lost (") != 4 {
				t.Errorf("output:\n%s", out)
			}
			out, _, _ = call(t, t.Context(), append(args, "--json")...)
			var r result
			if err := json.Unmarshal([]byte(out), &r); err != nil || r.Reason == "" || r.Lost != 3 || r.RTT.Min != nil || len(r.Probes) != 3 {
				t.Errorf("JSON: %v\n%s", err, out)
			}
		})
	}
}

func TestCannotBegin(t *testing.T) {
	busy, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no such namespace", []string{"--to", "10.0.0.1", "--netns", "vigia-test-absent"}, `network namespace "vigia-test-absent" does not exist`},
		{"source that is not ours", []string{"--to", "10.0.0.1", "--source", "192.0.2.9"}, "bind UDP socket to 192.0.2.9:0: cannot assign requested address"},
		{"busy source", []string{"--to", "127.0.0.1", "--source", busy.LocalAddr().String()}, "address already in use"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, _, err := call(t, t.Context(), tc.args...)
			var usage *daemon.UsageError
			if err == nil || errors.As(err, &usage) || !strings.Contains(err.Error(), tc.want) || out != "" {
				t.Errorf("got %v, output %q", err, out)
			}
			out, _, err = call(t, t.Context(), append(tc.args, "--json")...)
			var r result
			if jsonErr := json.Unmarshal([]byte(out), &r); err == nil || jsonErr != nil || !strings.Contains(r.Reason, tc.want) || r.Sent != 0 {
				t.Errorf("JSON: %v %v\n%s", err, jsonErr, out)
			}
		})
	}
}

func TestUsageErrors(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--to", ""}, "has no address"},
		{[]string{"--to", "a:b:c"}, `--to "a:b:c" is not an address; write IP, name, IP:port, name:port or [IPv6]:port`},
		{[]string{"--to", "10.0.0.1:0"}, "has no port from 1 to 65535"},
		{[]string{"--to", "10.0.0.1:70000"}, "has no port from 1 to 65535"},
		{[]string{"--to", "10.0.0.1:x"}, "has no port from 1 to 65535"},
		{[]string{"--to", "224.0.0.1"}, "is a multicast or broadcast address"},
		{[]string{"--to", "0.0.0.0"}, "write the address of one host"},
		{[]string{"--to", "10.0.0.1", "--count", "0"}, "--count 0 is out of bounds; write 1 to 1000000"},
		{[]string{"--to", "10.0.0.1", "--interval", "1us"}, "--interval 1µs is out of bounds; write 100µs to 1h0m0s"},
		{[]string{"--to", "10.0.0.1", "--deadline", "2m"}, "--deadline 2m0s is out of bounds"},
		{[]string{"--to", "10.0.0.1", "--size", "43"}, "--size 43 is not a possible size of a STAMP packet; write 44 to 65507"},
		{[]string{"--to", "10.0.0.1", "--size", "66"}, "--size 66 cannot be made up of whole TLVs (RFC 8972); write 68"},
		{[]string{"--to", "10.0.0.1", "--protocol", "icmp", "--size", "15"}, "--size 15 is not a possible size of an ICMP probe; write 16 to 65507"},
		{[]string{"--to", "10.0.0.1", "--protocol", "tcp-connect", "--size", "64"}, "--size 64 means nothing to a connection; leave it out"},
		{[]string{"--to", "10.0.0.1", "--protocol", "tcp-connect", "--deadline", "1s"}, "--deadline 1s is longer than the interval, and there is one probe at a time; write at most 100ms"},
		{[]string{"--to", "10.0.0.1", "--protocol", "tcp-connect", "--path-mtu"}, "--path-mtu means nothing to a connection; leave it out"},
		{[]string{"--to", "10.0.0.1", "--protocol", "icmp", "--key-file", "/x"}, "--key-file has no meaning for probes of protocol icmp; leave it out"},
		{[]string{"--to", "10.0.0.1:862", "--protocol", "icmp"}, "port 862: ICMP does not have ports; write the address alone"},
		{[]string{"--to", "10.0.0.1", "--protocol", "icmp", "--source", "10.0.0.2:5"}, `--source "10.0.0.2:5" has a port, and probes of protocol icmp choose none or their own; write the address alone`},
		{[]string{"--to", "10.0.0.1", "--dscp", "64"}, "--dscp 64 is out of bounds; write 0 to 63"},
		{[]string{"--to", "10.0.0.1", "--netns", "../x"}, "--netns: network namespace"},
		{[]string{"--to", "10.0.0.1", "--source", "eth0"}, `--source "eth0" is not an IP address`},
		{[]string{"--to", "10.0.0.1", "--source", "::1"}, "--source [::1]:0 is of another family than the target's address"},
	} {
		_, _, err := call(t, t.Context(), tc.args...)
		var usage *daemon.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: got %v, want a usage error that says %q", tc.args, err, tc.want)
		}
	}
}

func TestResolve(t *testing.T) {
	var asked string
	answer := func(addresses ...string) func(context.Context, string, string) ([]netip.Addr, error) {
		return func(_ context.Context, network, host string) ([]netip.Addr, error) {
			asked = network + " " + host
			var out []netip.Addr
			for _, a := range addresses {
				out = append(out, netip.MustParseAddr(a))
			}
			if len(out) == 0 {
				return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
			}
			return out, nil
		}
	}
	for _, tc := range []struct{ source, question, want string }{
		{"", "ip b.example", "10.0.0.9"},
		{"10.0.0.1:0", "ip4 b.example", "10.0.0.9"},
		{"[fd00::1]:0", "ip6 b.example", "fd00::9"},
	} {
		tg := sender.Target{Host: "b.example"}
		if tc.source != "" {
			tg.Source = netip.MustParseAddrPort(tc.source)
		}
		if err := resolve(t.Context(), &tg, answer(tc.want)); err != nil || tg.Host != tc.want || asked != tc.question {
			t.Errorf("from %q: %v, asked %q, got %s", tc.source, err, asked, tg.Host)
		}
	}
	tg := sender.Target{Host: "b.example"}
	if err := resolve(t.Context(), &tg, answer()); err == nil || !strings.HasPrefix(err.Error(), "no answer from b.example: unresolvable: ") {
		t.Errorf("got %v", err)
	}
}

// TestInterrupted ends the command early: what was measured is printed.
func TestInterrupted(t *testing.T) {
	at := reflectOnLoopback(t, "udp4", "127.0.0.1")
	for patience := 500 * time.Millisecond; patience < time.Minute; patience *= 2 { // until a stalled machine has sent two
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		began := time.Now()
		out, _, err := call(t, ctx, "--to", at.String(), "--count", "1000000", "--interval", "10ms", "--deadline", "20s")
		took := time.Since(began)
		cancel()
		m := regexp.MustCompile(`(?m)^(\d+) sent, (\d+) received, 0 lost`).FindStringSubmatch(out)
		if err != nil || m == nil {
			t.Fatalf("%v\n%s", err, out)
		}
		n, err := strconv.Atoi(m[1])
		if most := int(took/(10*time.Millisecond)) + 10; err != nil || n > most {
			t.Fatalf("%d sent in %v: %v", n, took, err)
		}
		if n >= 2 {
			return
		}
	}
	t.Error("not two probes were sent in half a minute")
}

// TestWithoutRoot runs a probe as nobody: stamps and all.
func TestWithoutRoot(t *testing.T) {
	testutil.RequireRoot(t)
	at := reflectOnLoopback(t, "udp4", "127.0.0.1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "vigia-test-once-") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "once.test")
	if err := os.WriteFile(binary, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", binary, "-test.run", "^TestHelperProcess$", "-test.v")
	cmd.Env = append(os.Environ(), "VIGIA_TEST_TO="+at.String())
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	// A reflector that is behind answers with its own stamps.
	m := regexp.MustCompile(`tx kernel 20, rx kernel 20, .*reflector_tx kernel ([1-9]\d*)`).FindSubmatch(out)
	if err != nil || !strings.Contains(string(out), "20 sent, 20 received") || m == nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestHelperProcess is not a test of its own: TestWithoutRoot runs it as another
// user.
func TestHelperProcess(t *testing.T) {
	to := os.Getenv("VIGIA_TEST_TO")
	if to == "" {
		return
	}
	if os.Geteuid() == 0 {
		t.Fatal("still root")
	}
	out, stderr, err := call(t, t.Context(), "--to", to, "--count", "20", "--interval", "5ms", "--deadline", "20s")
	fmt.Println(out, stderr)
	if err != nil {
		t.Fatal(err)
	}
}

func TestDistribution(t *testing.T) {
	var samples []int64
	for i := int64(100); i > 0; i-- {
		samples = append(samples, i*1000)
	}
	d := distributionOf(samples)
	if *d.Min != 1e-6 || *d.P50 != 50e-6 || *d.P99 != 99e-6 || *d.Max != 100e-6 || d.Samples != 100 {
		t.Errorf("%s", d)
	}
	if got := d.String(); got != "min 1.0µs  p50 50.0µs  p99 99.0µs  max 100.0µs  (100 samples)" {
		t.Errorf("%q", got)
	}
	if got := distributionOf(nil).String(); got != "no samples" {
		t.Errorf("%q", got)
	}
	one := distributionOf([]int64{7})
	if *one.Min != 7e-9 || *one.P99 != 7e-9 {
		t.Errorf("%+v", one)
	}
	for ns, want := range map[int64]string{0: "0.0µs", 1_234: "1.2µs", 9_999_949: "9999.9µs", 12_345_678: "12.35ms", 2_500_000_000: "2.500s"} {
		if got := micros(ns); got != want {
			t.Errorf("%d: %s, want %s", ns, got, want)
		}
	}
}

// TestOtherProtocols probes with ICMP and TCP, which leave no stamps at the other end.
func TestOtherProtocols(t *testing.T) {
	near, far := testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, near, "v0", far, "v0")
	testutil.IP(t, "-n", near, "addr", "add", "10.9.0.1/24", "dev", "v0")
	testutil.IP(t, "-n", far, "addr", "add", "10.9.0.2/24", "dev", "v0")
	var l net.Listener
	if err := netns.Do(far, func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp4", "10.9.0.2:7777")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for _, tc := range []struct {
		protocol, to string
		want         []string
	}{
		{"icmp", "10.9.0.2", []string{"\n--- 10.9.0.2: ICMP, 56 bytes every 1s ---\n", "10.9.0.2: seq=0 size=56 rtt=", "tx kernel 2, rx kernel 2\n"}},
		{"tcp-connect", "10.9.0.2:7777", []string{"\n--- 10.9.0.2:7777: TCP connect every 1s ---\n", "10.9.0.2:7777: seq=0 rtt="}},
	} {
		// A handshake has as long as the interval is.
		out, _, err := call(t, t.Context(), "--protocol", tc.protocol, "--to", tc.to, "--netns", near, "--count", "2", "--interval", "1s")
		if err != nil {
			t.Errorf("%s: %v", tc.protocol, err)
		}
		for _, want := range append(tc.want, "2 sent, 2 received, 0 lost (0.00%)\n", "(2 samples)\nrtt, application:") {
			if !strings.Contains(out, want) {
				t.Errorf("%s: the output lacks %q:\n%s", tc.protocol, want, out)
			}
		}
		if strings.Contains(out, "residence=") {
			t.Errorf("%s: a residence in a reflector that there is not:\n%s", tc.protocol, out)
		}
	}
	out, _, err := call(t, t.Context(), "--protocol", "icmp", "--to", "10.9.0.2", "--netns", near, "--count", "1", "--json")
	var r result
	if jsonErr := json.Unmarshal([]byte(out), &r); err != nil || jsonErr != nil || len(r.Probes) != 1 || r.Probes[0].RTT == nil || r.Probes[0].Residence != nil || r.Address != "10.9.0.2" {
		t.Errorf("%v, %v\n%s", err, jsonErr, out)
	}
	if out, _, err = call(t, t.Context(), "--protocol", "icmp", "--to", "10.9.0.2", "--netns", near, "--path-mtu", "--path-mtu-max", "2000"); err != nil || !strings.Contains(out, "10.9.0.2: path MTU 1500 bytes") {
		t.Errorf("%v\n%s", err, out)
	}
}
