package daemon

import (
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestAConnectionWithoutARequestDoesNotHoldUpTheEnd has one beside those that are served.
func TestAConnectionWithoutARequestDoesNotHoldUpTheEnd(t *testing.T) {
	in := start(t, &fake{})
	c, err := net.Dial("tcp", strings.TrimPrefix(in.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// It was accepted before the one that is answered.
	if code, body := in.do(http.MethodGet, "/-/healthy"); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	if code := in.wait(); code != ExitOK {
		t.Errorf("exit code %d\n%s", code, in.stderr)
	}
	if said := in.stderr.String(); strings.Contains(said, "cannot finish every request") {
		t.Errorf("a request was waited for that nobody had made:\n%s", said)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the connection was answered by %d bytes, %v", n, err)
	}
}

func TestConnectionsAreForgottenWithTheirFirstRequest(t *testing.T) {
	var u unasked
	kept, left := net.Pipe()
	defer kept.Close()
	defer left.Close()
	for _, state := range []http.ConnState{http.StateActive, http.StateHijacked, http.StateClosed} {
		u.changed(kept, http.StateNew)
		if len(u.connections) != 1 {
			t.Fatalf("%d connections, want the new one", len(u.connections))
		}
		u.changed(kept, state)
		if len(u.connections) != 0 {
			t.Errorf("%s: the connection is still there", state)
		}
	}
	u.changed(kept, http.StateNew)
	u.close()
	late, other := net.Pipe()
	defer late.Close()
	u.changed(late, http.StateNew)
	for name, c := range map[string]net.Conn{"one": left, "one that comes later": other} {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s is open", name)
		}
	}
}
