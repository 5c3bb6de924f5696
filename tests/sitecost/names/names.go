// Package names has the names of a simulated site: each kind is of one width, so that a page of one node becomes that of
// any other by overwriting names in place.
package names

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Generations is how many ports one place has before their names begin anew.
const Generations = 1 << 12

var (
	// Pattern finds every name.
	Pattern = regexp.MustCompile(`node-[0-9]{5}|d0bd5c28a1f04a8f9d0c4e5f6a7b[0-9a-f]{4}|6d5a5c3e-[0-9a-f]{4}-4[0-9a-f]{3}-9d2b-[0-9a-f]{12}`)
	port    = regexp.MustCompile(`^6d5a5c3e-([0-9a-f]{4})-4([0-9a-f]{3})-9d2b-([0-9a-f]{12})$`)
)

// Node returns the name of a node, of at most 100 000.
func Node(i int) string { return fmt.Sprintf("node-%05d", i) }

// Tenant returns the identifier of a tenant, of at most 65 536.
func Tenant(i int) string { return fmt.Sprintf("d0bd5c28a1f04a8f9d0c4e5f6a7b%04x", i) }

// Port returns the identifier of the generation-th port at a place of a node.
func Port(node, place, generation int) string {
	return fmt.Sprintf("6d5a5c3e-%04x-4%03x-9d2b-%012x", node, generation, place)
}

// ParsePort returns what a port's identifier was made of.
func ParsePort(id string) (node, place, generation int, ok bool) {
	found := port.FindStringSubmatch(id)
	if found == nil {
		return 0, 0, 0, false
	}
	var numbers [3]int64
	for i, s := range found[1:] {
		n, err := strconv.ParseInt(s, 16, 64)
		if err != nil {
			return 0, 0, 0, false
		}
		numbers[i] = n
	}
	return int(numbers[0]), int(numbers[2]), int(numbers[1]), true
}

// Generation returns which port is at a place at a time, when each stays for life. They do not all change at once. A
// life of zero has no end.
func Generation(node, place int, at time.Time, life time.Duration) int {
	if life <= 0 {
		return 0
	}
	phase := (int64(node)*7919 + int64(place)*104729) % 1000 * (int64(life) / 1000)
	return int((at.UnixNano() + phase) / int64(life) % Generations)
}
