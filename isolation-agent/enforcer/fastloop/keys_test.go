package fastloop

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

func TestKeyFilesAreHeldToTheirRules(t *testing.T) {
	secret, other := strings.Repeat("ab", 32), strings.Repeat("cd", 40)
	keys, err := LoadKeys(write(t, "# in use, and the next\n7 n2 "+secret+"\n7 n3 "+secret+"\n\n8 n2 "+other+"\n8 n3 "+secret+"\n", 0o600))
	if err != nil || len(keys.ids) != 2 || keys.ids[0] != 7 || len(keys.of("n2")) != 2 || len(keys.of("n2")[8]) != 40 || len(keys.of("n3")) != 2 || keys.of("n9") != nil {
		t.Fatalf("%+v %v", keys, err)
	}
	for name, tc := range map[string]struct {
		content string
		mode    os.FileMode
		want    string
	}{
		"readable":      {"7 n2 " + secret, 0o644, "mode 0644"},
		"three numbers": {"1 n2 " + secret + "\n2 n2 " + secret + "\n3 n2 " + secret, 0o600, "holds keys of 3 numbers"},
		"one of two":    {"1 n2 " + secret + "\n2 n2 " + secret + "\n1 n3 " + secret, 0o600, "no key 2 for node n3"},
		"twice":         {"1 n2 " + secret + "\n1 n2 " + secret, 0o600, "a second key 1 for node n2"},
		"short":         {"1 n2 abcd", 0o600, "at least 32 bytes"},
		"no number":     {"x n2 " + secret, 0o600, "at least 32 bytes"},
		"too large":     {"65536 n2 " + secret, 0o600, "at least 32 bytes"},
		"no hex":        {"1 n2 " + strings.Repeat("zz", 32), 0o600, "at least 32 bytes"},
		"a master key":  {"1 " + secret, 0o600, "a master key stays off the nodes"},
		"more words":    {"1 n2 " + secret + " x", 0o600, "at least 32 bytes"},
	} {
		_, err := LoadKeys(write(t, tc.content, tc.mode))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error shows the key", name)
		}
	}
	if _, err := LoadKeys("/nonexistent"); err == nil {
		t.Error("a missing file was read")
	}
}

func TestMasterKeyFilesAreHeldToTheirRules(t *testing.T) {
	secret := strings.Repeat("ab", 32)
	keys, err := LoadMaster(write(t, "# in use, and the next\n7 "+secret+"\n\n8 "+strings.Repeat("cd", 40)+"\n", 0o600))
	if err != nil || len(keys) != 2 || keys[0].ID != 7 || len(keys[1].Secret) != 40 {
		t.Fatalf("%+v %v", keys, err)
	}
	for name, tc := range map[string]struct {
		content string
		mode    os.FileMode
		want    string
	}{
		"readable":     {"7 " + secret, 0o640, "mode 0640"},
		"empty":        {"", 0o600, "holds 0 keys"},
		"three":        {"1 " + secret + "\n2 " + secret + "\n3 " + secret, 0o600, "holds 3 keys"},
		"same numbers": {"1 " + secret + "\n1 " + secret, 0o600, "different numbers"},
		"short":        {"1 abcd", 0o600, "at least 32 bytes"},
		"no number":    {"x " + secret, 0o600, "at least 32 bytes"},
		"a node's":     {"1 n2 " + secret, 0o600, "at least 32 bytes"},
	} {
		_, err := LoadMaster(write(t, tc.content, tc.mode))
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestANodeHasTheKeysOfItsOwnPairsAlone: with all that a node has nothing can be said that
// another pair would believe.
func TestANodeHasTheKeysOfItsOwnPairsAlone(t *testing.T) {
	s := wideSite()
	masters := []MasterKey{master(masterA), master(masterB)}
	names := []string{"n1", "n2", "n3", "n4"}
	all := map[string]*Keys{}
	var files []string
	for _, name := range names {
		all[name] = issuedTo(t, name, s, masters...)
		var file bytes.Buffer
		if err := all[name].Write(&file); err != nil {
			t.Fatal(err)
		}
		files = append(files, file.String())
		again, err := LoadKeys(write(t, file.String(), 0o600))
		if err != nil || again.ids[0] != masters[0].ID || len(again.pairs) != 3 {
			t.Fatalf("%s: %+v, %v", name, again, err)
		}
		for peer, keys := range all[name].pairs {
			for id, key := range keys {
				if !bytes.Equal(again.of(peer)[id], key) {
					t.Errorf("%s with %s: written %x, read %x", name, peer, key, again.of(peer)[id])
				}
			}
		}
	}
	holders := map[string]int{}
	for _, name := range names {
		for peer, keys := range all[name].pairs {
			for id, key := range keys {
				holders[string(key)]++
				if !bytes.Equal(all[peer].of(name)[id], key) {
					t.Errorf("%s and %s have different keys", name, peer)
				}
			}
		}
	}
	if len(holders) != 2*6 {
		t.Errorf("%d keys for six pairs and two numbers", len(holders))
	}
	for key, n := range holders {
		if n != 2 {
			t.Errorf("key %x is held by %d nodes", key, n)
		}
	}
	for _, m := range masters {
		for i, file := range files {
			if strings.Contains(file, hex.EncodeToString(m.Secret)) {
				t.Errorf("%s has the master key", names[i])
			}
		}
	}
	if _, err := Issue(s, "n9", masters); err == nil || !strings.Contains(err.Error(), "n9") {
		t.Errorf("keys for a node that is not there: %v", err)
	}
}
