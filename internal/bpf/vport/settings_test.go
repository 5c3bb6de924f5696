package vport

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"vigia/internal/config"
	"vigia/internal/testutil"
)

func TestSettingsOfAnotherProcessStay(t *testing.T) {
	pins := testutil.NewBPFFS(t)
	m, err := Open(Options{PinDir: pins, MaxPorts: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	read := func() (v vportSettings) {
		t.Helper()
		if err := m.objects.VportSet.Lookup(uint32(0), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if read() != (vportSettings{}) {
		t.Errorf("settings before anybody wrote them: %+v", read())
	}
	own := Settings{MinPackets: 7, MinPorts: 8, MaxReplyPercent: 9, Quiet: 3 * time.Second}
	want := vportSettings{MinPackets: 7, MinPorts: 8, MaxReplyPercent: 9, QuietNs: 3_000_000_000}
	for _, ensured := range []Settings{own, DefaultSettings()} { // the first one wins
		if err := m.EnsureSettings(ensured); err != nil || read() != want {
			t.Errorf("%+v, %v; want %+v", read(), err, want)
		}
	}
	if err := m.SetSettings(DefaultSettings()); err != nil || read().MinPackets != 200 || read().QuietNs != 2_000_000_000 {
		t.Errorf("set to %+v, %v", read(), err)
	}
}

// TestSettingsDecideWhatAFloodIs sends the same with one threshold out of reach at a time.
func TestSettingsDecideWhatAFloodIs(t *testing.T) {
	low := Settings{MinPackets: 20, MinPorts: 10, MaxReplyPercent: 50, Quiet: time.Second}
	for _, tc := range []struct {
		name   string
		change func(s *Settings)
		flood  bool
	}{
		{"as it is", func(*Settings) {}, true},
		{"too few packets", func(s *Settings) { s.MinPackets = 1_000_000 }, false},
		{"too few ports", func(s *Settings) { s.MinPorts = 1_000_000 }, false},
		{"too many replies", func(s *Settings) { s.MaxReplyPercent = 0 }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			s := low
			tc.change(&s)
			if err := b.SetSettings(s); err != nil {
				t.Fatal(err)
			}
			atWindowStart(t)
			for i := range 3000 {
				b.run(b.objects.VportTcxFrom, udpFrame("10.0.0.2", uint16(i*7), 20))
				if i%4 == 0 {
					b.run(b.objects.VportTcxTo, replyFrame("10.0.0.2", 20))
				}
			}
			if got := b.signals().FloodSinceNs != 0; got != tc.flood {
				t.Errorf("flood: %v, want %v; %+v", got, tc.flood, b.signals())
			}
		})
	}
}

// TestAFloodAfterAPauseIsANewOne by a pause of next to nothing.
func TestAFloodAfterAPauseIsANewOne(t *testing.T) {
	flood := func(b *bench) Signals {
		atWindowStart(t)
		b.send(300, "10.0.0.2", func(i int) uint16 { return uint16(i * 7) })
		return b.signals()
	}
	for _, tc := range []struct {
		quiet time.Duration
		again bool
	}{{time.Nanosecond, true}, {time.Hour, false}} {
		b := newBench(t)
		if err := b.SetSettings(Settings{MinPackets: 10, MinPorts: 5, MaxReplyPercent: 5, Quiet: tc.quiet}); err != nil {
			t.Fatal(err)
		}
		first := flood(b)
		second := flood(b)
		if first.FloodSinceNs == 0 || second.FloodLastNs <= first.FloodLastNs || (second.FloodSinceNs > first.FloodLastNs) != tc.again {
			t.Errorf("after a pause of at least %s: since %d until %d, and since %d until %d", tc.quiet, first.FloodSinceNs, first.FloodLastNs, second.FloodSinceNs, second.FloodLastNs)
		}
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	for _, tc := range []struct {
		c     Config
		field string // at fault; empty = none
		fix   string
	}{
		{Config{PinDir: "/sys/fs/bpf/vigia"}, "", ""},
		{Config{PinDir: "/sys/fs/bpf/vigia", MaxPorts: 1 << 16}, "", ""},
		{Config{PinDir: "vigia"}, "bpf.pin_dir", "write a directory on a bpffs"},
		{Config{}, "bpf.pin_dir", "write a directory on a bpffs"},
		{Config{PinDir: "/x", MaxPorts: -1}, "bpf.max_ports", "write 1 to 65536"},
		{Config{PinDir: "/x", MaxPorts: 1<<16 + 1}, "bpf.max_ports", "write 1 to 65536"},
		{Config{PinDir: "/x", Attachment: "TCX"}, "bpf.attachment", "write auto, tcx or clsact"},
	} {
		err := tc.c.Validate()
		var fault *config.FieldError
		switch {
		case tc.field == "":
			if err != nil {
				t.Errorf("%+v: %v", tc.c, err)
			}
		case !errors.As(err, &fault) || fault.Field != tc.field || !strings.Contains(fault.Fix, tc.fix):
			t.Errorf("%+v: %v; want the field %s and %q", tc.c, err, tc.field, tc.fix)
		}
	}
	if err := (&Config{PinDir: "x", MaxPorts: -1, Attachment: "y"}).Validate(); strings.Count(err.Error(), "bpf.") != 3 {
		t.Errorf("not every mistake is named: %v", err)
	}
}

func TestPortsAre1024UnlessSaid(t *testing.T) {
	for said, want := range map[int]int{0: 1024, 1: 1, 1 << 16: 1 << 16} {
		if got := (&Config{MaxPorts: said}).Ports(); got != want {
			t.Errorf("max_ports %d: %d", said, got)
		}
	}
}

func TestPinDirectoriesBelongOnABPFFS(t *testing.T) {
	mounted := testutil.NewBPFFS(t)
	deep := filepath.Join(mounted, "a", "b", "c")
	if err := CheckBPFFS(deep); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(deep); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("made as %v, %v", info, err)
	}
	if err := CheckBPFFS(deep); err != nil {
		t.Errorf("that is there: %v", err)
	}
	plain := t.TempDir()
	if err := CheckBPFFS(filepath.Join(plain, "x", "y")); err == nil || !strings.Contains(err.Error(), "run: mount -t bpf bpf "+plain) {
		t.Errorf("a plain folder: %v", err)
	}
	if _, err := os.Stat(filepath.Join(plain, "x")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a refused folder was made")
	}
	if err := CheckBPFFS("relative"); err == nil || !strings.Contains(err.Error(), "write an absolute path") {
		t.Errorf("a relative one: %v", err)
	}
	file := filepath.Join(plain, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckBPFFS(filepath.Join(file, "x")); err == nil || !strings.Contains(err.Error(), "look at bpf.pin_dir") {
		t.Errorf("below a file: %v", err)
	}
}

// TestAPinOfAnEarlierVersionGoes whose map no program has any more; what it had counted stays.
func TestAPinOfAnEarlierVersionGoes(t *testing.T) {
	options := Options{PinDir: testutil.NewBPFFS(t), MaxPorts: 4}
	b := &bench{Manager: open(t, options), t: t}
	b.slot = b.put(loopback)
	b.run(b.objects.VportTcxFrom, tcpFrame("10.0.0.2"))
	before := b.read()
	maps := filepath.Join(options.PinDir, "maps")
	old, err := ebpf.NewMapWithOptions(&ebpf.MapSpec{
		Name: "vport_pair", Type: ebpf.Hash, KeySize: 8, ValueSize: 112, MaxEntries: 4, Pinning: ebpf.PinByName,
	}, ebpf.MapOptions{PinPath: maps})
	if err != nil {
		t.Fatal(err)
	}
	old.Close()
	b.Manager = open(t, options)
	if entries, err := filepath.Glob(filepath.Join(maps, "vport_pair")); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if after := b.read(); after != before {
		t.Errorf("counted %+v, before %+v", after, before)
	}
}

func TestErrorsOfTheKernelNameTheCure(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{explainLoad(unix.EPERM, "4.19.0"), "needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"},
		{explainLoad(unix.EINVAL, "5.10.0-28-amd64"), "the node's kernel, 5.10.0-28-amd64, is too old; run Linux 5.18 or later: invalid argument"},
		{explainLoad(unix.EINVAL, "4.18.0-553.el8.x86_64"), "run Linux 5.18 or later"},
		{explainAttach(unix.EBUSY), "an XDP program of another owner"},
		{explainAttach(unix.EEXIST), "an XDP program of another owner"},
		{explainAttach(unix.ENODEV), "no such device"},
	} {
		if !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%v, want %q", tc.err, tc.want)
		}
	}
	for _, release := range []string{"5.18.0", "6.1.0-18-amd64", "10.2", "", "x", kernelRelease()} {
		if err := explainLoad(unix.EINVAL, release); err != error(unix.EINVAL) {
			t.Errorf("release %q: %v", release, err)
		}
	}
	if !regexp.MustCompile(`^\d+\.\d+`).MatchString(kernelRelease()) {
		t.Errorf("release %q", kernelRelease())
	}
}

func TestHooksDirectionsAndSizesHaveNames(t *testing.T) {
	for hook, want := range map[Hook]string{TCX: "tcx", XDP: "xdp", TCXTenant: "tcx-tenant", 9: "hook(9)"} {
		if hook.String() != want {
			t.Errorf("%d is %s, want %s", uint32(hook), hook, want)
		}
	}
	if d := Directions(); d[FromTenant] != "from_tenant" || d[ToTenant] != "to_tenant" {
		t.Errorf("directions %v", d)
	}
	names := Protocols()
	for i, want := range map[int]string{protocolTCP: "tcp", protocolUDP: "udp", indexICMP: "icmp", indexARPND: "arp_nd", protocolFragment: "fragment", indexOther: "other"} {
		if names[i] != want {
			t.Errorf("protocol %d is %s, want %s", i, names[i], want)
		}
	}
	bounds := SizeBounds()
	if !slices.IsSorted(bounds[:]) {
		t.Errorf("bounds %v", bounds)
	}
	for _, hook := range []Hook{TCX, XDP, TCXTenant} {
		from, to := 0, 0
		for _, name := range linkNames(hook) {
			if isEgress(name) {
				to++
			} else {
				from++
			}
		}
		if want := map[Hook]int{TCX: 1, XDP: 2, TCXTenant: 1}[hook]; from != want || to != 1 {
			t.Errorf("%s has %d links where frames come in and %d where they go out", hook, from, to)
		}
	}
}

func TestInstantsBecomeWallTime(t *testing.T) {
	now := Monotonic()
	before := time.Now().Add(-time.Minute)
	if got := WallTime(now - uint64(time.Minute)); got.Before(before.Add(-time.Second)) || got.After(time.Now().Add(-time.Minute+time.Second)) {
		t.Errorf("a minute ago is %s, now is %s", got, time.Now())
	}
	if later := Monotonic(); later < now {
		t.Errorf("the clock went from %d to %d", now, later)
	}
}

func TestPortsOfSpreadBits(t *testing.T) {
	for _, ports := range []uint32{1, 10, 100, 1000, 3000} {
		got := linearCount(SpreadBits(ports))
		if got < float64(ports)*0.97-1 || got > float64(ports)*1.03+1 {
			t.Errorf("%d ports set %d bits, which stand for %.1f", ports, SpreadBits(ports), got)
		}
	}
	if got := fmt.Sprintf("%.0f", linearCount(spreadBits)); got != "7098" {
		t.Errorf("a full bitmap stands for %s", got)
	}
}
