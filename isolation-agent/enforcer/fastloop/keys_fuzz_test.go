package fastloop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vigia/isolation-agent/enforcer/notice"
)

// FuzzKeys reads any bytes as a node's keys and as master keys: what is taken has one or two numbers and keys
// that are long enough, and no error shows what could be a key.
func FuzzKeys(f *testing.F) {
	key := strings.Repeat("5a", notice.MinKey)
	for _, seed := range []string{
		"", "1 lb2 " + key + "\n", "1 " + key + "\n", "1 lb2 " + key + "\n2 lb2 " + key + "\n", "1 " + key + "\n2 " + key + "\n", "# none\n",
		"1 lb2 " + key + "\n1 lb2 " + key + "\n", "1 lb2 5a\n", "-1 lb2 " + key, "65536 lb2 " + key, "1\tlb2\t" + key + "\r\n", "1 lb2 " + key + " more\n", "\x00",
		"1 lb2 " + key + "\n2 lb3 " + key + "\n3 lb4 " + key + "\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		silent := func(err error) {
			for word := range strings.FieldsSeq(string(content)) {
				if len(word) >= 2*notice.MinKey && strings.Contains(err.Error(), word) {
					t.Fatalf("the error shows %q: %v", word, err)
				}
			}
		}
		if k, err := LoadKeys(path); err != nil {
			silent(err)
		} else {
			if len(k.ids) > maxKeys {
				t.Fatalf("%d numbers were taken", len(k.ids))
			}
			for node, keys := range k.pairs {
				for id, raw := range keys {
					if len(raw) < notice.MinKey || node == "" {
						t.Fatalf("key %d of node %q has %d bytes", id, node, len(raw))
					}
				}
			}
		}
		keys, err := LoadMaster(path)
		if err != nil {
			silent(err)
			return
		}
		if len(keys) < 1 || len(keys) > maxKeys || len(keys) == 2 && keys[0].ID == keys[1].ID {
			t.Fatalf("%d master keys were taken", len(keys))
		}
	})
}
