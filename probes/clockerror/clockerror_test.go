package clockerror

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// linked are two namespaces joined by a link; the machine's own clock is nobody's
// business in there.
func linked(t *testing.T) (left, right string) {
	t.Helper()
	left, right = testutil.NewNetNS(t), testutil.NewNetNS(t)
	testutil.NewVethPair(t, left, "v0", right, "v0")
	testutil.IP(t, "-n", left, "addr", "add", "10.9.0.1/24", "dev", "v0")
	testutil.IP(t, "-n", right, "addr", "add", "10.9.0.2/24", "dev", "v0")
	return left, right
}

// daemon runs a program in a namespace until the test ends. dir has its sockets: unix
// socket paths are short.
func daemon(t *testing.T, ns, dir string, config string, command ...string) {
	t.Helper()
	path := filepath.Join(dir, filepath.Base(command[0])+"."+ns+".conf")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(path + ".log")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ip", append(append([]string{"netns", "exec", ns}, command...), path)...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s in %s:\n%.3000s", command[0], ns, text)
		}
	})
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "vigia-clock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// asked asks in a namespace.
func asked(ns string, ask func(context.Context) (Reading, error)) (r Reading, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = netns.Do(ns, func() (err error) { r, err = ask(ctx); return err })
	return r, err
}

const chronyCommon = "user root\nmakestep 0.1 -1\ncmdport 323\nbindcmdaddress %s\nbindcmdaddress 127.0.0.1\npidfile %s\nallow\n"

// TestRealChrony has chronyd follow another, without touching the clock (-x), and asks
// it over UDP and its unix socket; chronyc must say the same.
func TestRealChrony(t *testing.T) {
	t.Parallel()
	left, right := linked(t)
	dir := shortDir(t)
	socket := filepath.Join(dir, "right.sock")
	server := fmt.Sprintf(chronyCommon, filepath.Join(dir, "left.sock"), filepath.Join(dir, "left.pid")) + "local stratum 1\n"
	client := fmt.Sprintf(chronyCommon, socket, filepath.Join(dir, "right.pid")) + "server 10.9.0.1 iburst minpoll -2 maxpoll -2 xleave\n"
	daemon(t, left, dir, server, "chronyd", "-x", "-d", "-f")
	daemon(t, right, dir, client, "chronyd", "-x", "-d", "-f")
	over := func(address string) func(context.Context) (Reading, error) {
		return func(ctx context.Context) (Reading, error) { return Chrony(ctx, address) }
	}
	var r Reading
	for _, address := range []string{DefaultChrony, socket} {
		// Its first measurements may be bad ones, on a busy machine.
		testutil.WaitFor(t, "chronyd to follow the other within a second by "+address, func() bool {
			var err error
			r, err = asked(right, over(address))
			return err == nil && r.Synchronized && r.Bound < time.Second
		})
		if r.Source != SourceChrony || r.Bound <= 0 {
			t.Errorf("%s: %+v", address, r)
		}
	}
	// Reference, name, stratum, time, offset, last, rms, freq, resid, skew, root
	// delay, root dispersion, interval, leap.
	testutil.Attempts(t, 20, func() error { // a measurement of a busy machine may be far off the ones before and after
		out := testutil.Run(t, "ip", "netns", "exec", right, "chronyc", "-c", "-h", socket, "tracking")
		fields := strings.Split(strings.TrimSpace(out), ",")
		number := func(i int) float64 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				t.Fatalf("chronyc says %q", out)
			}
			return v
		}
		theirs := math.Abs(number(4)) + number(11) + number(10)/2
		before := r
		var err error
		if r, err = asked(right, over(socket)); err != nil {
			return err
		}
		// The two were asked one after the other, with updates in between.
		if low, high := min(before.Bound, r.Bound).Seconds()/20, max(before.Bound, r.Bound).Seconds()*20; theirs < low || theirs > high {
			return fmt.Errorf("chronyc says %g s, we read %v and %v", theirs, before.Bound, r.Bound)
		}
		return nil
	})
	left0, err := filepath.Glob(filepath.Join(dir, "vigia-probe.*"))
	if len(left0) > 0 || err != nil {
		t.Errorf("sockets stay behind: %v, %v", left0, err)
	}
}

// TestChronyThatFollowsNobody is not synchronised.
func TestChronyThatFollowsNobody(t *testing.T) {
	t.Parallel()
	ns := testutil.NewNetNS(t)
	dir := shortDir(t)
	daemon(t, ns, dir, fmt.Sprintf(chronyCommon, filepath.Join(dir, "a.sock"), filepath.Join(dir, "a.pid")), "chronyd", "-x", "-d", "-f")
	var r Reading
	testutil.WaitFor(t, "chronyd to answer", func() bool {
		var err error
		r, err = asked(ns, func(ctx context.Context) (Reading, error) { return Chrony(ctx, DefaultChrony) })
		return err == nil
	})
	if r.Synchronized {
		t.Errorf("%+v", r)
	}
}

// TestRealPTP has ptp4l follow another over a link with software stamps, and leave the
// clock alone (free_running). Both read the same clock, so the offset is small, and a
// bound that is not above the offset would be none.
func TestRealPTP(t *testing.T) {
	t.Parallel()
	left, right := linked(t)
	dir := shortDir(t)
	config := func(name string, priority int, only int) string {
		return fmt.Sprintf("[global]\nfree_running 1\ntime_stamping software\nuds_address %s\nslaveOnly %d\npriority1 %d\n"+
			"logAnnounceInterval -2\nlogSyncInterval -3\nlogMinDelayReqInterval -3\n[v0]\n", filepath.Join(dir, name), only, priority)
	}
	daemon(t, left, dir, config("master", 1, 0), "ptp4l", "-m", "-f")
	daemon(t, right, dir, config("slave", 200, 1), "ptp4l", "-m", "-f")
	kernel := func() Reading { t.Error("the kernel is asked although stamps are of its clock"); return Reading{} }
	ask := func(ns, name string) (Reading, error) {
		return asked(ns, func(ctx context.Context) (Reading, error) { return PTP(ctx, filepath.Join(dir, name), kernel) })
	}
	var r Reading
	testutil.WaitFor(t, "ptp4l to follow the other", func() bool {
		var err error
		r, err = ask(right, "slave")
		return err == nil && r.Synchronized && r.Bound < 10*time.Second
	})
	if r.Source != SourcePTP || r.Bound <= 0 {
		t.Errorf("%+v", r)
	}
	var master Reading
	testutil.WaitFor(t, "the grandmaster to answer", func() bool {
		var err error
		master, err = ask(left, "master")
		return err == nil
	})
	if master.Synchronized {
		t.Errorf("the grandmaster follows nobody: %+v", master)
	}
	if _, err := ask(right, "nobody"); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("nobody listens: %v", err)
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPTPMessages has a question for the current data set as pmc 3.1.1 asks it, without
// the empty data that it appends, and an answer of the standard's layout.
func TestPTPMessages(t *testing.T) {
	const question = "0d02003600000000000000000000000000000000000000000000000000000001047fffffffffffffffffffff" + "00000000" + "000100022001"
	if got := encodePTP(currentDataSet, 1); hex.EncodeToString(got) != question {
		t.Errorf("%x", got)
	}
	answer := "0d0200480000000000000000000000000000000000000000000000000001000104 7f" +
		"00000000000000000000" + "00000200" + "00010014 2001" + "0001" + "ffffffffff380000" + "0000000005dc8000"
	b := unhex(t, answer)
	data, err := parsePTP(b, currentDataSet, 1)
	var a ptpAnswers
	if err != nil || a.read(currentDataSet, data) != nil || a.offset != -200 || a.delay != 1500 {
		t.Errorf("%v, %+v, %x", err, a, data)
	}
	for cut := range b {
		if _, err := parsePTP(b[:cut], currentDataSet, 1); err == nil {
			t.Errorf("%d bytes are an answer", cut)
		}
	}
	if _, err := parsePTP(b, currentDataSet, 2); !errors.Is(err, errForeign) {
		t.Errorf("the answer to another question: %v", err)
	}
}

func TestChronyFloats(t *testing.T) {
	for v, want := range map[uint32]float64{
		0: 0, 0x04800000: 1, 0x05800000: -1, 0x02800000: 0.5, 0x04c00000: 1.5, 0xc8800000: 1.0 / (1 << 30),
	} {
		if got := chronyFloat(v); got != want {
			t.Errorf("%#x: %g, want %g", v, got, want)
		}
	}
}

// TestTracking reads an answer made up by the field, and what is none.
func TestTracking(t *testing.T) {
	answer := func(change func([]byte)) []byte {
		b := make([]byte, replyHeader+trackingSize)
		b[0], b[1], b[5], b[7] = chronyVersion, chronyReply, chronyTracking, replyTracking
		copy(b[16:], []byte{1, 2, 3, 4})
		copy(b[replyHeader+40:], []byte{0xf5, 0x80, 0, 0}) // offset: -2^-8 s
		copy(b[replyHeader+64:], []byte{0xf2, 0x80, 0, 0}) // root delay: 2^-9 s
		copy(b[replyHeader+68:], []byte{0xee, 0x80, 0, 0}) // root dispersion: 2^-11 s
		if change != nil {
			change(b)
		}
		return b
	}
	const sequence = 0x01020304
	want := 1.0/256 + 1.0/512/2 + 1.0/2048
	if r, err := parseTracking(answer(nil), sequence); err != nil || !r.Synchronized || math.Abs(r.Bound.Seconds()-want) > 2e-9 {
		t.Errorf("%+v, %v, want %g s", r, err, want)
	}
	if r, err := parseTracking(answer(func(b []byte) { b[replyHeader+27] = leapUnsynced }), sequence); err != nil || r.Synchronized {
		t.Errorf("not synchronised: %+v, %v", r, err)
	}
	for name, b := range map[string][]byte{
		"another question": answer(func(b []byte) { b[19]++ }), "a request": answer(func(b []byte) { b[1] = chronyRequest }),
		"another version": answer(func(b []byte) { b[0] = 5 }), "refused": answer(func(b []byte) { b[9] = 2 }),
		"cut": answer(nil)[:replyHeader+trackingSize-1], "nothing": nil,
	} {
		if r, err := parseTracking(b, sequence); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestWatch: who is asked, how long an answer is good for, and what is said meanwhile.
func TestWatch(t *testing.T) {
	w := New()
	now := time.Unix(1_800_000_000, 0)
	w.now = func() time.Time { return now }
	w.kernel = func() Reading { return Reading{Bound: time.Millisecond, Synchronized: true, Source: SourceKernel} }
	put := func(r Reading) { w.last.Store(&sample{Reading: r, at: now}) }
	if r := w.Read(); r.Source != SourceKernel {
		t.Errorf("before anybody was asked: %+v", r)
	}
	put(Reading{Bound: time.Microsecond, Synchronized: true, Source: SourceChrony})
	now = now.Add(10 * time.Second)
	for range 2 { // reading does not age it
		if r := w.Read(); r.Source != SourceChrony || r.Bound != time.Microsecond+5*time.Millisecond {
			t.Errorf("ten seconds old: %+v", r)
		}
	}
	now = now.Add(maxAge)
	if r := w.Read(); r.Source != SourceKernel {
		t.Errorf("too old: %+v", r)
	}
	put(Reading{Bound: time.Microsecond, Source: SourceChrony})
	if r := w.Read(); r.Source != SourceKernel {
		t.Errorf("chronyd follows nobody: %+v", r)
	}
	w.Set(Config{Source: SourcePTP, PTPPath: "/nonexistent/ptp4l"})
	if r := w.Read(); r.Synchronized || r.Source != SourcePTP {
		t.Errorf("ptp4l alone, and not asked yet: %+v", r)
	}
	if err := w.Ask(t.Context()); err == nil || w.Err() == nil || !strings.Contains(w.Err().Error(), "/nonexistent/ptp4l") {
		t.Errorf("ptp4l alone, and it is not there: %v, %v", err, w.Err())
	}
	w.Set(Config{Stated: time.Nanosecond})
	if bound, synchronized := w.Bound(); bound != time.Nanosecond || !synchronized || w.Read().Source != SourceConfigured || w.Err() != nil {
		t.Errorf("stated: %v, %v", bound, synchronized)
	}
}

// TestWatchAsks finds a real daemon at another address, and lets it die.
func TestWatchAsks(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	w := New()
	w.Set(Config{Source: SourceChrony, Chrony: server.LocalAddr().String()})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := w.Ask(ctx); err == nil || w.Read().Synchronized {
		t.Errorf("a daemon that says nothing: %v, %+v", err, w.Read())
	}
}

// TestWatchRunsUntilToldToEnd, and asks whenever it is told of another source.
func TestWatchRunsUntilToldToEnd(t *testing.T) {
	w := New()
	if r := w.Read(); r.Source != SourceKernel {
		t.Errorf("before it runs: %+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	for _, path := range []string{"/nonexistent/first", "/nonexistent/second", "/nonexistent/first"} {
		w.Set(Config{Source: SourcePTP, PTPPath: path})
		testutil.WaitFor(t, "the answer about "+path, func() bool {
			err := w.Err()
			return err != nil && strings.Contains(err.Error(), path)
		})
	}
	w.Set(Config{Source: SourceKernel})
	testutil.WaitFor(t, "the kernel alone", func() bool { return w.Read().Source == SourceKernel && w.Err() == nil })
	cancel()
	<-ended
}

func TestAddresses(t *testing.T) {
	for s, ok := range map[string]bool{
		"": true, "127.0.0.1:323": true, "[::1]:323": true, "/run/chrony/chronyd.sock": true,
		"chronyd.sock": false, "127.0.0.1": false, "localhost:323": false, "127.0.0.1:": false,
	} {
		if (CheckAddress(s) == "") != ok {
			t.Errorf("%q: %q", s, CheckAddress(s))
		}
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(make([]byte, replyHeader+trackingSize))
	f.Add(encodePTP(currentDataSet, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseTracking(b, 0); err == nil && (r.Bound < 0 || r.Bound > unknown) {
			t.Fatalf("%+v", r)
		}
		for _, id := range []uint16{currentDataSet, timeStatus, portProperties} {
			if data, err := parsePTP(b, id, 0); err == nil {
				_ = new(ptpAnswers).read(id, data)
			}
		}
	})
}
