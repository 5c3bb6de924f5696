package registry

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"vigia/probes/accounting"
	"vigia/probes/protocol"
)

// TestRows demands of every protocol what the rest of the program relies on.
func TestRows(t *testing.T) {
	name := regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	seen := make(map[string]bool)
	for _, p := range All() {
		traits := p.Traits()
		t.Run(traits.Name, func(t *testing.T) {
			if !name.MatchString(traits.Name) || seen[traits.Name] {
				t.Errorf("the name %q is taken, or no name", traits.Name)
			}
			seen[traits.Name] = true
			if traits.Title == "" || !strings.HasPrefix(traits.Noun, "a ") && !strings.HasPrefix(traits.Noun, "an ") {
				t.Errorf("%+v", traits)
			}
			if !reflect.TypeOf(p).Comparable() || p != protocol.Protocol(p) {
				t.Error("targets of this protocol cannot be compared")
			}
			if (traits.Port == 0) != (traits.Flows == protocol.OneFlow) {
				t.Error("either there are ports, or there is one flow")
			}
			if problem, fix := p.CheckSize(traits.Size); problem != "" {
				t.Errorf("the default size %d %s; %s", traits.Size, problem, fix)
			}
			if traits.HasSizes() {
				if problem, fix := p.CheckSize(1 << 20); problem == "" || !strings.HasPrefix(fix, "write ") {
					t.Errorf("a size of 1 MiB: %q %q", problem, fix)
				}
			}
		})
	}
}

// TestSessions demands that a protocol is of one kind, and that its sessions are its own.
func TestSessions(t *testing.T) {
	for _, p := range All() {
		traits := p.Traits()
		s := &protocol.Session{Size: traits.Size, Port: traits.Port, Interval: time.Second, Deadline: time.Second}
		s.Window = accounting.NewWindow[protocol.Probe](new(accounting.Counts), 1)
		own := p.NewSession(s)
		_, packets := p.(protocol.Packets)
		_, exchange := own.(protocol.Exchange)
		if packets == exchange {
			t.Errorf("%s: single packets %v, an exchange %v; want one of the two", traits.Name, packets, exchange)
		}
		if packets && s.MaxAnswer < traits.Size {
			t.Errorf("%s: answers of at most %d bytes to probes of %d", traits.Name, s.MaxAnswer, traits.Size)
		}
		if l, ok := own.(protocol.LossLocator); ok && l.AnswersNeeded() < 1 {
			t.Errorf("%s: an evidence of %d answers", traits.Name, l.AnswersNeeded())
		}
		if own == p.NewSession(s) {
			t.Errorf("%s: two sessions share their state", traits.Name)
		}
	}
}
