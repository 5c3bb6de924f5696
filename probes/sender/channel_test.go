package sender

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpflink "github.com/cilium/ebpf/link"

	"vigia/internal/netns"
	"vigia/internal/testutil"
)

// capture runs tcpdump until the test ends and returns what it prints of packets.
func capture(t *testing.T, ns, device, filter string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", ns, "tcpdump", "-e", "-n", "-l", "--immediate-mode", "-i", device, filter)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	ready, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	scan := bufio.NewScanner(ready)
	for scan.Scan() && !strings.Contains(scan.Text(), "listening on") {
	}
	lines := make(chan string, 1000)
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			select {
			case lines <- s.Text():
			default:
			}
		}
	}()
	return lines
}

// firstLine returns the first line of a capture.
func firstLine(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case l := <-lines:
		return l
	case <-time.After(patience):
		t.Fatal("nothing was captured")
		return ""
	}
}

// TestPriorityOnTheWire has a class's priority mapped to a VLAN's priority code point
// and captures what arrives at the other end of the link.
func TestPriorityOnTheWire(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	tg := overVeth(left, 0)
	if err := exec.Command("ip", "-n", left, "link", "add", "link", "veth0", "name", "veth0.5", "type", "vlan", "id", "5", "egress-qos-map", "3:5").Run(); err == nil {
		testutil.IP(t, "-n", right, "link", "add", "link", "veth0", "name", "veth0.5", "type", "vlan", "id", "5")
		for ns, address := range map[string]string{left: "10.9.5.1/24", right: "10.9.5.2/24"} {
			testutil.IP(t, "-n", ns, "addr", "add", address, "dev", "veth0.5")
			testutil.IP(t, "-n", ns, "link", "set", "veth0.5", "up")
		}
		tg.Source, tg.Host = netip.MustParseAddrPort("10.9.5.1:0"), "10.9.5.2"
	} else {
		// The kernel has no VLAN devices (CONFIG_VLAN_8021Q): a program in their
		// place does what egress-qos-map 3:5 does.
		pushTag(t, left, "veth0", 3, 5, 5)
	}
	tg.Channel.Priority = 3
	lines := capture(t, right, "veth0", "vlan 5 and udp dst port 862")
	f := newSender(t, Options{})
	f.apply(tg)
	if l := firstLine(t, lines); !strings.Contains(l, "vlan 5, p 5,") {
		t.Errorf("captured %q, want priority 5 in VLAN 5", l)
	}
	// Without the priority, nothing maps to 5. Sizes tell packets apart, whose lines may come late: those with the
	// priority that are sent last say that all lines of the others have come.
	const without, last = 200, 300
	tg.Channel.Priority, tg.Labels.Dst, tg.Size = 0, "plain", without
	f.apply(tg)
	f.waitFor("probes without priority", func() bool { return f.status(tg.Labels).Counts.Handed > 5 })
	tg.Channel.Priority, tg.Labels.Dst, tg.Size = 3, "last", last
	f.apply(tg)
	for l := ""; !strings.HasSuffix(l, fmt.Sprintf("length %d", last)); {
		if l = firstLine(t, lines); strings.HasSuffix(l, fmt.Sprintf("length %d", without)) && strings.Contains(l, ", p 5,") {
			t.Errorf("without a priority: %q", l)
		}
	}
}

// pushTag gives packets of a socket priority that leave by a device the tag of a VLAN
// with a priority code point.
func pushTag(t *testing.T, ns, device string, priority, vlan, code int32) {
	t.Helper()
	const (
		offsetPriority = 32     // struct __sk_buff
		etherType      = 0x0081 // ETH_P_8021Q in network byte order
		next           = -1     // TCX_NEXT
	)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, offsetPriority, asm.Word),
			asm.JNE.Imm(asm.R2, priority, "out"),
			asm.Mov.Imm(asm.R2, etherType),
			asm.Mov.Imm(asm.R3, code<<13|vlan),
			asm.FnSkbVlanPush.Call(),
			asm.Mov.Imm(asm.R0, next).WithSymbol("out"),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	if err := netns.Do(ns, func() error {
		d, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		l, err := bpflink.AttachTCX(bpflink.TCXOptions{Interface: d.Index, Program: program, Attach: ebpf.AttachTCXEgress})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestMarkAndDeviceOnTheWire counts what leaves with which mark by which device.
func TestMarkAndDeviceOnTheWire(t *testing.T) {
	t.Parallel()
	left, right := link(t)
	testutil.NewVethPair(t, left, "veth1", right, "veth1")
	testutil.IP(t, "-n", left, "addr", "add", "10.9.0.3/24", "dev", "veth1") // the route by veth0 is older and wins
	nftRules(t, left, "output", "oifname veth0 meta mark 0 counter", "oifname veth0 meta mark 42 counter", "oifname veth1 counter", "meta priority 0:6 counter")
	reflect(t, right, right862)
	plain, marked, bound, urgent := overVeth(left, 20), overVeth(left, 20), overVeth(left, 20), overVeth(left, 20)
	marked.Labels.Dst, marked.Channel.Mark = "marked", 42
	bound.Labels.Dst, bound.Channel.Device = "bound", "veth1"
	urgent.Labels.Dst, urgent.Channel.Priority = "urgent", 6
	f := newSender(t, Options{})
	for i, tg := range []Target{plain, marked, bound, urgent} {
		before := nftCounts(t, left)
		f.apply(tg)
		st, _ := f.finish(tg.Labels)
		sent := make([]bool, 0, 4)
		for rule, n := range nftCounts(t, left) {
			sent = append(sent, n-before[rule] >= 20)
		}
		want := [][]bool{{true, false, false, false}, {false, true, false, false}, {false, false, true, false}, {true, false, false, true}}[i]
		for rule := range want {
			if sent[rule] != want[rule] {
				t.Errorf("%s: rule %d matches %v, want %v; %+v", tg.Labels.Dst, rule, sent[rule], want[rule], st.Counts)
			}
		}
	}
}
