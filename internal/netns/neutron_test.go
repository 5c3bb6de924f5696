package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"vigia/internal/testutil"
)

// network returns the id of a network that no other test has.
func network() string {
	n := rand.Uint64()
	return fmt.Sprintf("%08x-%04x-4a5f-8c0d-%012x", uint32(n), uint16(n>>32), n>>16)
}

// served has an agent of Neutron serve a network on this node, until the test ends.
func served(t *testing.T, agent, network string) {
	t.Helper()
	testutil.RequireRoot(t)
	t.Cleanup(func() { _ = Delete(agent + network) })
	if err := Create(agent + network); err != nil {
		t.Fatal(err)
	}
}

func TestTheNamespaceThatNeutronHasForANetwork(t *testing.T) {
	for _, agent := range agents {
		id := network()
		served(t, agent, id)
		if got, err := Path("neutron:" + id); err != nil || got != Dir+"/"+agent+id {
			t.Errorf("%s: %q, %v", agent, got, err)
		}
		there, err := Open(agent + id)
		if err != nil {
			t.Fatal(err)
		}
		defer there.Close()
		wanted, err := there.Inode()
		if err != nil {
			t.Fatal(err)
		}
		if err := Do("neutron:"+id, func() error {
			info, err := os.Stat("/proc/thread-self/ns/net")
			if err == nil && !strings.Contains(readlink(t), fmt.Sprint(wanted)) {
				t.Errorf("%s: in %v, not in %d", agent, info.Name(), wanted)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}

func readlink(t *testing.T) string {
	t.Helper()
	target, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// TestAnAgentThatComesAndGoes: names are looked up anew each time, and that of DHCP goes before that of metadata.
func TestAnAgentThatComesAndGoes(t *testing.T) {
	id := network()
	name := "neutron:" + id
	_, err := Open(name)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "qdhcp-"+id) || !strings.Contains(err.Error(), "ovnmeta-"+id) {
		t.Errorf("without any: %v", err)
	}
	for _, step := range []struct{ agent, want string }{{"ovnmeta-", "ovnmeta-"}, {"qdhcp-", "qdhcp-"}} {
		served(t, step.agent, id)
		if got, err := Path(name); err != nil || got != Dir+"/"+step.want+id {
			t.Errorf("after %s came: %q, %v", step.agent, got, err)
		}
	}
	if err := Delete("qdhcp-" + id); err != nil {
		t.Fatal(err)
	}
	if got, err := Path(name); err != nil || got != Dir+"/ovnmeta-"+id {
		t.Errorf("after qdhcp- went: %q, %v", got, err)
	}
	if out, err := exec.Command("ip", "netns", "list").Output(); err != nil || strings.Contains(string(out), "qdhcp-"+id) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestWhatIsNoIDOfANetworkIsRefused(t *testing.T) {
	for _, id := range []string{"", "red", "../x", network() + "0", strings.ToUpper("a" + network()[1:]), "qdhcp-" + network(), network()[:35]} {
		_, err := Path("neutron:" + id)
		if err == nil || !strings.Contains(err.Error(), "36 characters") {
			t.Errorf("%q: %v", id, err)
		}
	}
}
