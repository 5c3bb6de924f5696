package ovs

import (
	"bufio"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	maxLine  = 64 << 10
	maxItems = 4096 // of one kind in an answer
)

var errTooMany = fmt.Errorf("the answer has more than %d items", maxItems)

// datapath is a datapath in dpctl/show.
type datapath struct {
	name    string
	lookups []lookup
	flows   uint64
}

type lookup struct {
	result string // hit, missed or lost
	count  uint64
}

// lines hands over every line with its indentation, in spaces.
func lines(text string, each func(indent int, line string) error) error {
	s := bufio.NewScanner(strings.NewReader(text))
	s.Buffer(nil, maxLine)
	for s.Scan() {
		trimmed := strings.TrimLeft(s.Text(), " \t")
		if trimmed == "" {
			continue
		}
		if err := each(len(s.Text())-len(trimmed), strings.TrimRight(trimmed, " \r")); err != nil {
			return err
		}
	}
	return s.Err()
}

var labelRE = regexp.MustCompile(`^[A-Za-z0-9_@.:-]{1,64}$`)

// heading returns the name in "NAME:".
func heading(line string) (string, bool) {
	name, ok := strings.CutSuffix(line, ":")
	return name, ok && labelRE.MatchString(name)
}

func parseDatapaths(text string) ([]datapath, error) {
	var out []datapath
	err := lines(text, func(indent int, line string) error {
		if indent == 0 {
			name, ok := heading(line)
			if !ok {
				return fmt.Errorf("dpctl/show: %.60q is no datapath", line)
			}
			if len(out) == maxItems {
				return errTooMany
			}
			out = append(out, datapath{name: name})
			return nil
		}
		if len(out) == 0 {
			return errors.New("dpctl/show: no datapath before the first line")
		}
		d := &out[len(out)-1]
		if rest, ok := strings.CutPrefix(line, "lookups:"); ok {
			for _, field := range strings.Fields(rest) {
				result, number, _ := strings.Cut(field, ":")
				n, err := strconv.ParseUint(number, 10, 64)
				if err == nil && (result == "hit" || result == "missed" || result == "lost") {
					d.lookups = append(d.lookups, lookup{result, n})
				}
			}
		}
		if rest, ok := strings.CutPrefix(line, "flows:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			if err != nil {
				return fmt.Errorf("dpctl/show: flows: %w", err)
			}
			d.flows = n
		}
		return nil
	})
	return out, err
}

// upcalls is a datapath in upcall/show.
type upcalls struct {
	datapath       string
	current, limit uint64 // flows
	dump           time.Duration
}

var (
	flowsRE = regexp.MustCompile(`^flows\s*:\s*\(current (\d{1,18})\).*\(limit (\d{1,18})\)`)
	dumpRE  = regexp.MustCompile(`^dump duration\s*:\s*(\d{1,12})ms`)
)

func parseUpcalls(text string) ([]upcalls, error) {
	var out []upcalls
	err := lines(text, func(indent int, line string) error {
		if indent == 0 {
			name, ok := heading(line)
			if !ok {
				return nil
			}
			if len(out) == maxItems {
				return errTooMany
			}
			out = append(out, upcalls{datapath: name})
			return nil
		}
		if len(out) == 0 {
			return nil
		}
		u := &out[len(out)-1]
		if m := flowsRE.FindStringSubmatch(line); m != nil {
			u.current, _ = strconv.ParseUint(m[1], 10, 64) // 18 digits fit
			u.limit, _ = strconv.ParseUint(m[2], 10, 64)
		}
		if m := dumpRE.FindStringSubmatch(line); m != nil {
			ms, _ := strconv.ParseInt(m[1], 10, 64) // 12 digits fit
			u.dump = time.Duration(ms) * time.Millisecond
		}
		return nil
	})
	return out, err
}

var coverageRE = regexp.MustCompile(`^([a-z][a-z0-9_]{1,62})\s.*\stotal: (\d{1,19})$`)

// parseCoverage returns the totals of coverage/show. Events that never happened
// are not in it.
func parseCoverage(text string) (map[string]uint64, error) {
	out := make(map[string]uint64)
	err := lines(text, func(_ int, line string) error {
		m := coverageRE.FindStringSubmatch(line)
		if m == nil {
			return nil
		}
		if len(out) == maxItems {
			return errTooMany
		}
		n, err := strconv.ParseUint(m[2], 10, 64)
		out[m[1]] = n
		return err
	})
	return out, err
}

// thread is a forwarding thread in dpif-netdev/pmd-stats-show.
type thread struct {
	name                      string // main, or pmd-CORE
	received, upcalls, failed uint64
	busy, idle                uint64 // processor cycles
	hasCycles                 bool
}

var threadRE = regexp.MustCompile(`^pmd thread numa_id \d+ core_id (\d{1,5}):$`)

func parseThreads(text string) ([]thread, error) {
	var out []thread
	err := lines(text, func(indent int, line string) error {
		if indent == 0 {
			name := ""
			if m := threadRE.FindStringSubmatch(line); m != nil {
				name = "pmd-" + m[1]
			} else if line == "main thread:" {
				name = "main"
			} else {
				return nil
			}
			if len(out) == maxItems {
				return errTooMany
			}
			out = append(out, thread{name: name})
			return nil
		}
		if len(out) == 0 {
			return nil
		}
		return out[len(out)-1].take(line)
	})
	return out, err
}

func (t *thread) take(line string) error {
	key, value, ok := strings.Cut(line, ":")
	fields := strings.Fields(value)
	if !ok || len(fields) == 0 {
		return nil
	}
	into := map[string]*uint64{
		"packets received": &t.received, "miss with success upcall": &t.upcalls, "miss with failed upcall": &t.failed,
		"processing cycles": &t.busy, "idle cycles": &t.idle,
	}[key]
	if into == nil {
		return nil
	}
	n, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil {
		return fmt.Errorf("pmd-stats-show: %s: %w", key, err)
	}
	*into = n
	t.hasCycles = t.hasCycles || into == &t.busy || into == &t.idle
	return nil
}
