package fastloop

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"vigia/isolation-agent/enforcer/notice"
)

// maxKeys live at once: the one in use, and the one before or after it.
const maxKeys = 2

// MasterKey is what the site derives the keys of all pairs of nodes from. No node has it: a
// node that did could speak for every other one.
type MasterKey struct {
	ID     uint16
	Secret []byte
}

// Keys are what a node has: a key for each other node, known to these two alone, or two while
// they are changed.
type Keys struct {
	ids   []uint16 // the first is used to send; the second is still, or already, heard
	pairs map[string]map[uint16][]byte
}

// sends returns the number of the key to send by.
func (k *Keys) sends() uint16 {
	if len(k.ids) == 0 { // of a site of one node
		return 0
	}
	return k.ids[0]
}

// of returns the keys with another node by number.
func (k *Keys) of(peer string) map[uint16][]byte { return k.pairs[peer] }

// Empty tells whether there are none.
func (k *Keys) Empty() bool { return len(k.pairs) == 0 }

// Issue derives the keys of a node of the site.
func Issue(site *Site, node string, masters []MasterKey) (*Keys, error) {
	k := &Keys{pairs: map[string]map[uint16][]byte{}}
	if !site.Lists(node) {
		return nil, fmt.Errorf("node %q is not in the site file; list it, or correct the name", node)
	}
	for _, m := range masters {
		k.ids = append(k.ids, m.ID)
		for _, n := range site.Nodes {
			if n.Node == node {
				continue
			}
			key, err := notice.PairKey(m.Secret, node, n.Node, m.ID)
			if err != nil {
				return nil, err
			}
			if k.pairs[n.Node] == nil {
				k.pairs[n.Node] = map[uint16][]byte{}
			}
			k.pairs[n.Node][m.ID] = key
		}
	}
	return k, nil
}

// Write writes the file that LoadKeys reads.
func (k *Keys) Write(to io.Writer) error {
	var peers []string
	for p := range k.pairs {
		peers = append(peers, p)
	}
	slices.Sort(peers)
	for _, id := range k.ids {
		for _, p := range peers {
			if _, err := fmt.Fprintf(to, "%d %s %x\n", id, p, k.pairs[p][id]); err != nil {
				return fmt.Errorf("write keys: %w", err)
			}
		}
	}
	return nil
}

// LoadKeys reads the keys of a node, a line each: a number, the other node, and at least 32
// bytes in hexadecimal. There are one or two numbers, the same for each node, of which the first is used to send.
// Errors never contain a key.
func LoadKeys(path string) (*Keys, error) {
	k := &Keys{pairs: map[string]map[uint16][]byte{}}
	err := eachLine(path, func(line int, words []string) error {
		if len(words) == 2 {
			return fmt.Errorf("has a line %d without a node: a master key stays off the nodes; write each its own keys by vigia-enforcer issue-keys", line)
		}
		if len(words) != 3 {
			return fmt.Errorf("has a line %d that is not a number, a node and at least %d bytes in hexadecimal", line, notice.MinKey)
		}
		id, raw, ok := parseKey(words[0], words[2])
		peer := words[1]
		if !ok {
			return fmt.Errorf("has a line %d that is not a number, a node and at least %d bytes in hexadecimal", line, notice.MinKey)
		}
		if k.pairs[peer] == nil {
			k.pairs[peer] = map[uint16][]byte{}
		}
		if k.pairs[peer][id] != nil {
			return fmt.Errorf("has a line %d with a second key %d for node %s", line, id, peer)
		}
		k.pairs[peer][id] = raw
		if !slices.Contains(k.ids, id) {
			k.ids = append(k.ids, id)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(k.ids) > maxKeys {
		return nil, fmt.Errorf("holds keys of %d numbers; one or two are wanted", len(k.ids))
	}
	for _, peer := range slices.Sorted(maps.Keys(k.pairs)) {
		for _, id := range k.ids {
			if k.pairs[peer][id] == nil {
				return nil, fmt.Errorf("has no key %d for node %s, though it has one for others; write it anew by vigia-enforcer issue-keys", id, peer)
			}
		}
	}
	return k, nil
}

// LoadMaster reads one or two master keys, a line each: a number and at least 32 bytes in
// hexadecimal. The first becomes the one that nodes send by. Errors never contain a key.
func LoadMaster(path string) ([]MasterKey, error) {
	var keys []MasterKey
	err := eachLine(path, func(line int, words []string) error {
		if len(words) != 2 {
			return fmt.Errorf("has a line %d that is not a number and at least %d bytes in hexadecimal", line, notice.MinKey)
		}
		id, raw, ok := parseKey(words[0], words[1])
		if !ok {
			return fmt.Errorf("has a line %d that is not a number and at least %d bytes in hexadecimal", line, notice.MinKey)
		}
		keys = append(keys, MasterKey{id, raw})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 || len(keys) > maxKeys || (len(keys) == maxKeys && keys[0].ID == keys[1].ID) {
		return nil, fmt.Errorf("holds %d keys; one or two with different numbers are wanted", len(keys))
	}
	return keys, nil
}

func parseKey(number, secret string) (id uint16, raw []byte, ok bool) {
	n, err := strconv.ParseUint(number, 10, 16)
	raw, hexErr := hex.DecodeString(secret)
	return uint16(n), raw, err == nil && hexErr == nil && len(raw) >= notice.MinKey
}

// eachLine calls fn with the words of every line of a secret file that has any.
func eachLine(path string, fn func(line int, words []string) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("has mode %04o, so that others may read or change it", info.Mode().Perm())
	}
	lines := bufio.NewScanner(f)
	for line := 1; lines.Scan(); line++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if err := fn(line, words); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	return nil
}
