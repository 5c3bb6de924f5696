package app

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vigia/isolation-agent/enforcer/contract"
	"vigia/isolation-agent/enforcer/scheduling"
)

// at returns the contract of a port, in Mbit/s, of frames with its own MAC address.
func at(port, send, receive int) string {
	return fmt.Sprintf("{tenant: t, port: p%d, guarantee: %dMbit, ceiling: 10Gbit, receive: {guarantee: %dMbit, ceiling: 10Gbit}, match: [{vxlan: 9, mac: \"02:00:00:00:00:%02x\"}]}",
		port, send, receive, port)
}

func fileOf(contracts ...string) string {
	return "version: 1\ncontracts:\n  - " + strings.Join(contracts, "\n  - ") + "\n"
}

// following are the contracts of a node with a link of 100 Mbit/s, of which a file may have 86.05 (94.05 less red's 8).
type following struct {
	*contracts
	t    *testing.T
	path string
}

func followed(t *testing.T) following {
	path := filepath.Join(t.TempDir(), "contracts.yaml")
	return following{newContracts(linked(t, path), slog.New(slog.DiscardHandler)), t, path}
}

// says replaces the file and returns the names of those of it that are in force, and who is left out.
func (f following) says(contracts ...string) (inForce, left string) {
	f.t.Helper()
	replace(f.t, f.path, fileOf(contracts...))
	f.mu.Lock()
	f.look()
	f.mu.Unlock()
	if f.wrong != nil {
		f.t.Fatal(f.wrong)
	}
	got := strings.Fields(names(f.all()))[1:]
	slices.Sort(got)
	var who []string
	for _, l := range f.left {
		who = append(who, l.String())
	}
	return strings.Join(got, " "), strings.Join(who, " ")
}

func TestATooLargeContractFreezesNobodyElse(t *testing.T) {
	for _, step := range []struct {
		name           string
		before, file   []string
		inForce, alone string
	}{
		{"a new one", []string{at(1, 10, 10)}, []string{at(0, 1000, 1000), at(1, 20, 20), at(2, 30, 30)}, "t/p1=20Mbit t/p2=30Mbit", "t/p0"},
		{"after a restart", nil, []string{at(0, 1000, 1000), at(1, 20, 20), at(2, 30, 30)}, "t/p1=20Mbit t/p2=30Mbit", "t/p0"},
		{"one direction is enough", nil, []string{at(0, 1, 1000), at(1, 80, 80)}, "t/p1=80Mbit", "t/p0"},
		{"who has one keeps it", []string{at(1, 60, 60)}, []string{at(1, 60, 60), at(2, 30, 30), at(3, 20, 20)}, "t/p1=60Mbit t/p3=20Mbit", "t/p2"},
		{"who wants more keeps what he had", []string{at(1, 60, 60)}, []string{at(1, 90, 90), at(2, 20, 20)}, "t/p1=60Mbit t/p2=20Mbit", "t/p1 (keeps what it had)"},
		{"more goes before new", []string{at(1, 40, 40)}, []string{at(1, 60, 60), at(2, 40, 40)}, "t/p1=60Mbit", "t/p2"},
		{"less makes room", []string{at(1, 80, 80)}, []string{at(2, 60, 60), at(1, 20, 20), at(3, 1000, 1)}, "t/p1=20Mbit t/p2=60Mbit", "t/p3"},
		{"more one way and less the other", []string{at(1, 10, 80)}, []string{at(1, 80, 10), at(2, 1, 70), at(3, 99, 99)}, "t/p1=80Mbit t/p2=1Mbit", "t/p3"},
		{"all go together", []string{at(1, 80, 80)}, []string{at(1, 40, 40), at(2, 46, 46)}, "t/p1=40Mbit t/p2=46Mbit", ""},
	} {
		f := followed(t)
		if step.before != nil {
			if _, left := f.says(step.before...); left != "" {
				t.Fatalf("%s: %s is left out before", step.name, left)
			}
		}
		if got, left := f.says(step.file...); got != step.inForce || left != step.alone {
			t.Errorf("%s: %q in force, %q left out, want %q and %q", step.name, got, left, step.inForce, step.alone)
		}
		if got, left := f.says(at(4, 5, 5)); got != "t/p4=5Mbit" || left != "" {
			t.Errorf("%s: %q in force and %q left out of a file that fits", step.name, got, left)
		}
	}
}

// TestWhatIsLeftOutIsTakenUpWithRoom: the configuration gets a faster link while the file stays.
func TestWhatIsLeftOutIsTakenUpWithRoom(t *testing.T) {
	f := followed(t)
	if _, left := f.says(at(1, 60, 60), at(2, 70, 70)); left != "t/p2" {
		t.Fatalf("%q is left out", left)
	}
	wider := linked(t, f.path)
	wider.links[0].RateBytesPerSecond *= 2
	commit, err := f.prepare(wider)
	if err != nil {
		t.Fatal(err)
	}
	commit()
	if got := names(f.all()); got != "red=8Mbit t/p1=60Mbit t/p2=70Mbit" || f.leftOut() != 0 {
		t.Errorf("%q, %d left out", got, f.leftOut())
	}
	// The slower link would take from who has: the reload is refused, and everything stays.
	if _, err := f.prepare(linked(t, f.path)); err == nil {
		t.Error("a link that has not what is in force")
	}
	if got := names(f.all()); got != "red=8Mbit t/p1=60Mbit t/p2=70Mbit" {
		t.Error(got)
	}
}

// TestWhoFitsIsNoMatterOfOrder over random files, one after the other: what is in force goes together, nobody loses what he
// had and still wants, and a file in another order gives the same.
func TestWhoFitsIsNoMatterOfOrder(t *testing.T) {
	c := linked(t, "")
	random := rand.New(rand.NewPCG(1, 2))
	var before *contractsFile
	never := true
	for round := range 300 {
		var file contractsFile
		for port := range 12 {
			if random.IntN(3) == 0 {
				continue
			}
			rate := func() contract.Bandwidth {
				return contract.Bandwidth{GuaranteeBytesPerSecond: uint64(1+random.IntN(30)) * 125_000, CeilingBytesPerSecond: 1e9}
			}
			file.list = append(file.list, contract.Contract{Owner: contract.Owner{Tenant: "t", Port: fmt.Sprint("p", port)}, Send: rate(), Receive: rate()})
		}
		fitting, left := c.fit(&file, before, 0)
		set, err := c.join(fitting, 0)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		without := slices.DeleteFunc(slices.Clone(left), func(l leftOut) bool { return l.keeps })
		if len(fitting.list)+len(without) != len(file.list) {
			t.Fatalf("round %d: %d of %d in force, left out %v", round, len(fitting.list), len(file.list), left)
		}
		never = never && len(left) == 0
		wanted := make(map[contract.Owner]contract.Contract)
		for _, k := range file.list {
			wanted[k.Owner] = k
		}
		if before != nil {
			for _, had := range before.list {
				want, still := wanted[had.Owner]
				now := set.Of(had.Tenant, had.Port)
				if !still {
					continue
				}
				least := min(had.Send.GuaranteeBytesPerSecond, want.Send.GuaranteeBytesPerSecond)
				if now == nil || now.Owner != had.Owner || now.Send.GuaranteeBytesPerSecond < least {
					t.Fatalf("round %d: %s had %v and wants %v, now %v", round, had, had.Send, want.Send, now)
				}
			}
		}
		other := contractsFile{list: slices.Clone(file.list)}
		random.Shuffle(len(other.list), func(i, j int) { other.list[i], other.list[j] = other.list[j], other.list[i] })
		again, _ := c.fit(&other, before, 0)
		if sorted(again) != sorted(fitting) {
			t.Fatalf("round %d: %s in one order, %s in another", round, sorted(fitting), sorted(again))
		}
		before = fitting
	}
	if never {
		t.Error("nobody was ever left out")
	}
}

func sorted(f *contractsFile) string {
	var out []string
	for _, k := range f.list {
		out = append(out, fmt.Sprint(k.String(), k.Send, k.Receive))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestAFullNodeIsChosenInOneGo: as many contracts as a link has classes for, one of which is too large.
func TestAFullNodeIsChosenInOneGo(t *testing.T) {
	c := linked(t, "")
	var file contractsFile
	for i := range scheduling.MaxContracts + 100 {
		b := contract.Bandwidth{GuaranteeBytesPerSecond: 200, CeilingBytesPerSecond: 2000}
		file.list = append(file.list, contract.Contract{Owner: contract.Owner{Tenant: fmt.Sprint("t", i)}, Send: b, Receive: b})
	}
	file.list[0].Send.GuaranteeBytesPerSecond = 1 << 63
	fitting, left := c.fit(&file, nil, 0)
	if len(fitting.list) != scheduling.MaxContracts-1 || len(left) != 101 || left[len(left)-1].owner.Tenant != "t0" {
		t.Errorf("%d in force, %d left out, the last %v", len(fitting.list), len(left), left[len(left)-1])
	}
	if set, err := c.join(fitting, 0); err != nil || len(set.All()) != scheduling.MaxContracts {
		t.Errorf("%v", err)
	}
}
