package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"vigia/internal/config"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/scheduling"
)

// replace replaces a file in one step, as the kubelet does.
func replace(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// names lists contracts by owner and what they may send.
func names(s *contract.Set) string {
	var out []string
	for _, c := range s.All() {
		out = append(out, c.String()+"="+config.Rate(c.Send.GuaranteeBytesPerSecond).String())
	}
	return strings.Join(out, " ")
}

func configured(t *testing.T, file string) *Config {
	t.Helper()
	c := &Config{ContractsFile: file, Contracts: []contractKeys{{Tenant: "red", Guarantee: 1e6, Ceiling: 2e6}}}
	if err := c.convertContracts(); err != nil {
		t.Fatal(err)
	}
	return c
}

const bought = `version: 1
contracts:
  - {tenant: red, guarantee: 80Mbit, ceiling: 80Mbit}
  - {tenant: red, port: web/eth0, guarantee: 24Mbit, ceiling: 80Mbit, packets_per_second: 1000}
  - {tenant: blue, guarantee: 16Mbit, ceiling: 80Mbit}
`

// TestContractsOfTheFile are in force beside those of the configuration, which go first, and stay while
// the file cannot be read.
func TestContractsOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contracts.yaml")
	var said strings.Builder
	b := newContracts(configured(t, path), slog.New(slog.NewTextHandler(&said, nil)))
	var applied []string
	b.apply = func(_ []scheduling.Link, s *contract.Set) { applied = append(applied, names(s)) }
	if got := names(b.all()); got != "red=8Mbit" || !strings.Contains(said.String(), "level=WARN") {
		t.Errorf("without the file: %q %s", got, said.String())
	}
	look := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.look()
	}
	for _, step := range []struct {
		content, want string
		changed       bool
		says          string
	}{
		{bought, "red=8Mbit red/web/eth0=24Mbit blue=16Mbit", true, ""},
		{"version: 2\ncontracts: []\n", "red=8Mbit red/web/eth0=24Mbit blue=16Mbit", false, "is not a known version; write version: 1"},
		{strings.Replace(bought, "ceiling: 80Mbit, packets", "ceiling: 8Mbit, packets", 1), "red=8Mbit red/web/eth0=24Mbit blue=16Mbit", false, "contracts[1].ceiling"},
		{strings.Replace(bought, "16Mbit", "32Mbit", 1), "red=8Mbit red/web/eth0=24Mbit blue=32Mbit", true, ""},
		{"version: 1\ncontracts: []\n", "red=8Mbit", true, ""},
	} {
		said.Reset()
		replace(t, path, step.content)
		if changed := look(); changed != step.changed {
			t.Errorf("%s: changed %v", step.content, changed)
		}
		if got := names(b.all()); got != step.want {
			t.Errorf("%s: %q, want %q", step.content, got, step.want)
		}
		if !strings.Contains(said.String(), step.says) || (step.says == "") != (said.String() == "") {
			t.Errorf("%s: %s", step.content, said.String())
		}
		if again := look(); again {
			t.Errorf("%s: it changed twice", step.content)
		}
	}
	replace(t, path, bought)
	commit, err := b.prepare(configured(t, path))
	if err != nil {
		t.Fatal(err)
	}
	commit()
	if len(applied) != 1 || applied[0] != "red=8Mbit red/web/eth0=24Mbit blue=16Mbit" {
		t.Errorf("a reload applied %q", applied)
	}
}

// TestTheFileIsFollowed until the end.
func TestTheFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contracts.yaml")
	replace(t, path, bought)
	b := newContracts(configured(t, path), slog.New(slog.DiscardHandler))
	var mu sync.Mutex
	applied := ""
	b.apply = func(_ []scheduling.Link, s *contract.Set) {
		mu.Lock()
		defer mu.Unlock()
		applied = names(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { b.follow(ctx); close(done) }()
	becomes := func(what, want string) {
		t.Helper()
		testutil.WaitFor(t, what, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.HasSuffix(applied, want)
		})
	}
	replace(t, path, strings.Replace(bought, "16Mbit", "8Mbit", 1))
	becomes("the new contracts", "blue=8Mbit")
	// A reload names another file, behind a link, of which the kernel tells nothing.
	other := filepath.Join(t.TempDir(), "contracts.yaml")
	if err := os.Symlink("target.yaml", other); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(filepath.Dir(other), "target.yaml")
	replace(t, target, strings.Replace(bought, "16Mbit", "24Mbit", 1))
	commit, err := b.prepare(configured(t, other))
	if err != nil {
		t.Fatal(err)
	}
	commit()
	becomes("those of the other file", "blue=24Mbit")
	replace(t, target, strings.Replace(bought, "16Mbit", "32Mbit", 1))
	becomes("its new ones", "blue=32Mbit")
	cancel()
	<-done
}

func TestAPathThatIsNoneIsRefused(t *testing.T) {
	c := &Config{ContractsFile: "contracts.yaml"}
	const want = `contracts_file: "contracts.yaml": is not an absolute path; write for example /run/`
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}

// TestAContractOfTheFileIsInTheKernelsState: a port has what was bought for it while the enforcer runs, and a
// limit does not go below it.
func TestAContractOfTheFileIsInTheKernelsState(t *testing.T) {
	r := newRig(t)
	if code := r.d.Stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, r.d.Stderr)
	}
	path := r.write("contracts.yaml", "version: 1\ncontracts: []\n")
	content, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	r.write("enforcer.yaml", string(content)+"contracts_file: "+path+"\n")
	r.start()
	guaranteed := func() (bytes, packets uint64) {
		var s struct {
			Ports []struct {
				Tenant    string
				Guarantee *uint64 `json:"guarantee_bytes_per_second"`
				Packets   *uint64 `json:"pps_guarantee"`
			}
		}
		r.view("/v1/state", &s)
		for _, p := range s.Ports {
			if p.Tenant == "blue" && p.Guarantee != nil && p.Packets != nil {
				return *p.Guarantee, *p.Packets
			}
		}
		return 0, 0
	}
	if bytes, _ := guaranteed(); bytes != 0 {
		t.Fatalf("blue has %d before it bought anything", bytes)
	}
	replace(t, path, "version: 1\ncontracts: [{tenant: blue, guarantee: 16Mbit, ceiling: 80Mbit, packets_per_second: 700}]\n")
	testutil.WaitFor(t, "what blue bought", func() bool {
		bytes, packets := guaranteed()
		return bytes == 2_000_000 && packets == 700
	})
	replace(t, path, "version: 1\ncontracts: []\n")
	testutil.WaitFor(t, "blue to have nothing again", func() bool { bytes, _ := guaranteed(); return bytes == 0 })
}

// linked is a configuration with an uplink of 100 Mbit/s, 8 of which are red's.
func linked(t *testing.T, file string) *Config {
	t.Helper()
	c := configured(t, file)
	c.Contracts[0].Match = []matchKeys{{VXLAN: new(uint32(7))}}
	c.Links = []linkKeys{{Device: "up0", Rate: 12_500_000}}
	if err := errors.Join(c.convertContracts(), c.convertLinks()); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWhatCannotBeKeptBesideLinksIsLeftOut, and is said once: more than a link has, the frames of another, and
// more than there are classes for.
func TestWhatCannotBeKeptBesideLinksIsLeftOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contracts.yaml")
	const good = "version: 1\ncontracts: [{tenant: blue, guarantee: 16Mbit, ceiling: 80Mbit, match: [{vxlan: 8}]}]\n"
	replace(t, path, good)
	var said strings.Builder
	b := newContracts(linked(t, path), slog.New(slog.NewTextHandler(&said, nil)))
	b.room = func() int { return 64 }
	if got := names(b.all()); got != "red=8Mbit blue=16Mbit" || said.Len() > 0 {
		t.Fatalf("%q %s", got, said.String())
	}
	var many strings.Builder
	many.WriteString("version: 1\ncontracts:\n")
	for i := range 64 {
		fmt.Fprintf(&many, "  - {tenant: blue, port: p%d, guarantee: 1kbit, ceiling: 2Mbit}\n", i)
	}
	for _, bad := range []struct {
		content, says, who, want string
		left                     int
	}{
		{strings.Replace(good, "16Mbit", "79Mbit, receive: {guarantee: 90Mbit, ceiling: 90Mbit}", 1), "links[0].rate", "blue (keeps what it had)", "red=8Mbit blue=16Mbit", 1},
		{strings.Replace(good, "vxlan: 8", "vxlan: 7", 1), "is red's already", `err="blue: `, "red=8Mbit", 1},
		{many.String(), "65 contracts on 1 links are more than a running enforcer has room for", "blue/p8, blue/p9: ", "", 2},
		{good, "", "", "red=8Mbit blue=16Mbit", 0},
	} {
		said.Reset()
		replace(t, path, bad.content)
		b.mu.Lock()
		b.look()
		again := b.look()
		b.mu.Unlock()
		if got := names(b.all()); again || bad.want != "" && got != bad.want || b.leftOut() != bad.left {
			t.Errorf("%s: changed again %v, %q, %d left out", bad.says, again, got, b.leftOut())
		}
		if bad.says == "" {
			if said.Len() > 0 {
				t.Error(said.String())
			}
			continue
		}
		if !strings.Contains(said.String(), bad.who) {
			t.Errorf("%s is not named: %s", bad.who, said.String())
		}
		if !strings.Contains(said.String(), bad.says) || strings.Count(said.String(), "\n") != 1 {
			t.Errorf("%s: %s", bad.says, said.String())
		}
	}
	// What was refused for the link's rate is taken up with a link that has it.
	replace(t, path, strings.Replace(good, "16Mbit", "79Mbit, receive: {guarantee: 90Mbit, ceiling: 90Mbit}", 1))
	wider := linked(t, path)
	wider.links[0].RateBytesPerSecond *= 2
	commit, err := b.prepare(wider)
	if err != nil {
		t.Fatal(err)
	}
	commit()
	if got := names(b.all()); got != "red=8Mbit blue=79Mbit" {
		t.Errorf("on a faster link: %q", got)
	}
	// And what is in force does not fit the slower one any more.
	if _, err := b.prepare(linked(t, path)); err == nil || !strings.Contains(err.Error(), "contracts_file") {
		t.Errorf("on the slower link: %v", err)
	}
}

// TestThereIsRoomForAContractOfEachPort where a file may come to have them, whatever it has at the start.
func TestThereIsRoomForAContractOfEachPort(t *testing.T) {
	c := linked(t, "")
	if got := c.roomFor(c.contracts); got != 2 {
		t.Errorf("without a file: %d", got)
	}
	for ports, want := range map[int]int{0: 1026, 8: 10, 1 << 16: scheduling.MaxContracts + 2} {
		c.ContractsFile, c.Node.BPF.MaxPorts = "/x", ports
		if got := c.roomFor(c.contracts); got != want {
			t.Errorf("%d ports: room for %d, want %d", ports, got, want)
		}
	}
}

// TestNoMoreContractsThanALinkHasClassesFor are taken up: there is no class for the next.
func TestNoMoreContractsThanALinkHasClassesFor(t *testing.T) {
	c := linked(t, "")
	list := make([]contract.Contract, scheduling.MaxContracts+1)
	for i := range list {
		both := contract.Bandwidth{GuaranteeBytesPerSecond: 1, CeilingBytesPerSecond: 2}
		list[i] = contract.Contract{Owner: contract.Owner{Tenant: fmt.Sprint("t", i)}, Send: both, Receive: both}
	}
	for n, want := range map[int]string{scheduling.MaxContracts: "", len(list): `contracts: "16129": are more than a link has classes for; `} {
		set, err := contract.NewSet(list[:n])
		if err != nil {
			t.Fatal(err)
		}
		if err := c.admit(set); (err == nil) != (want == "") || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%d contracts: %v", n, err)
		}
	}
}

// TestAContractOfTheFileIsAClassOfTheLink: what a port bought is on the uplink as soon as the file says it.
func TestAContractOfTheFileIsAClassOfTheLink(t *testing.T) {
	r := newScheduledRig(t)
	if code := r.d.Stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, r.d.Stderr)
	}
	port := func(rate string) string {
		return "version: 1\ncontracts: [{tenant: blue, port: p-blue, guarantee: " + rate + ", ceiling: 50Mbit, match: [{vxlan: 8, mac: \"02:00:00:00:00:08\"}]}]\n"
	}
	path := r.write("contracts.yaml", port("8Mbit"))
	own, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	r.write("enforcer.yaml", string(own)+"contracts_file: "+path+"\n")
	r.start()
	classes := func() string { return testutil.Run(t, "tc", "-n", r.node, "class", "show", "dev", "up0") }
	if got := classes(); !strings.Contains(got, "rate 8Mbit ceil 50Mbit") {
		t.Fatalf("at the start:\n%s", got)
	}
	live := &reloaded{rig: r}
	if !live.matched(2, 8, 0x020000000008) {
		t.Error("its frames lead to no class")
	}
	replace(t, path, port("16Mbit"))
	testutil.WaitFor(t, "the new guarantee on the link", func() bool { return strings.Contains(classes(), "rate 16Mbit ceil 50Mbit") })
	replace(t, path, strings.Replace(port("90Mbit"), "ceiling: 50Mbit", "ceiling: 90Mbit", 1))
	testutil.WaitFor(t, "the refusal", func() bool {
		said := r.d.Stderr.String()
		return strings.Contains(said, "with the contracts of contracts_file: links[0].rate") && strings.Contains(said, "blue/p-blue (keeps what it had)") &&
			r.d.Metrics()["vigia_enforcer_contracts_left_out"] == 1
	})
	if got := classes(); !strings.Contains(got, "rate 16Mbit ceil 50Mbit") {
		t.Errorf("after what the link does not have:\n%s", got)
	}
	replace(t, path, "version: 1\ncontracts: []\n")
	testutil.WaitFor(t, "the class to go", func() bool { return !strings.Contains(classes(), "ceil 50Mbit") })
	if left, ok := r.d.Metrics()["vigia_enforcer_contracts_left_out"]; !ok || left != 0 {
		t.Errorf("%v left out, there %v", left, ok)
	}
	if got := classes(); !strings.Contains(got, "rate 8Mbit ceil 95Mbit") {
		t.Errorf("what the configuration says is gone:\n%s", got)
	}
	testutil.WaitFor(t, "its frames to lead to no class", func() bool { return !live.matched(2, 8, 0x020000000008) })
}
