package pages

import (
	"fmt"
	"testing"
	"time"

	"vigia/probes/sender"
)

func TestStates(t *testing.T) {
	at := time.Unix(1, 0)
	for want, st := range map[string]sender.Status{
		"closed":     {Up: true},
		"unresolved": {Open: true},
	} {
		if got := state(&st); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	v := view(&sender.Status{LastError: fmt.Errorf("x"), LastErrorAt: at})
	if v.LastError != "x" || !v.LastErrorAt.Equal(at) || len(v.Lost) != 6 {
		t.Errorf("%+v", v)
	}
}
