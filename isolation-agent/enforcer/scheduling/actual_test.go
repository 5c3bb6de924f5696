package scheduling

import (
	"fmt"
	"strings"
	"testing"

	"vigia/internal/tc"
	"vigia/internal/testutil"
	"vigia/isolation-agent/enforcer/contract"
)

func TestActualIsWhatTheKernelHas(t *testing.T) {
	n := newNode(t)
	class := n.mustSet(0, owner("a"), 3*mbit)
	got, err := n.Actual()
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got[0].Device != "up0" || got[0].Direction != "from_tenant" || got[1].Device != IFBName(n.link) || got[1].Direction != "to_tenant" {
		t.Errorf("devices %+v", got)
	}
	type figures struct{ guarantee, ceiling uint64 }
	want := []map[string]figures{
		{
			"1150:1": {95 * mbit, 95 * mbit}, "1150:2": {95 * mbit / 100, 95 * mbit}, "1150:3": {95 * mbit / 1000, 95 * mbit},
			tc.MakeHandle(Major, minor("a")).String(): {60 * mbit, 95 * mbit}, tc.MakeHandle(Major, minor("a")+leafOffset).String(): {60 * mbit / 100, 95 * mbit},
			tc.MakeHandle(Major, minor("b")).String(): {20 * mbit, 95 * mbit}, tc.MakeHandle(Major, minor("b")+leafOffset).String(): {20 * mbit / 100, 95 * mbit},
			tc.Handle(class).String(): {3 * mbit / 100, 3 * mbit},
		},
		{
			"1150:1": {95 * mbit, 95 * mbit}, "1150:2": {95 * mbit / 100, 95 * mbit}, "1150:3": {95 * mbit / 1000, 95 * mbit},
			tc.MakeHandle(Major, minor("a")+leafOffset).String(): {71 * mbit, 95 * mbit},
			tc.MakeHandle(Major, minor("b")+leafOffset).String(): {23 * mbit, 50 * mbit},
		},
	}
	for i, device := range got {
		if len(device.Classes) != len(want[i]) {
			t.Errorf("%s has %d classes, want %d: %+v", device.Device, len(device.Classes), len(want[i]), device.Classes)
		}
		for _, c := range device.Classes {
			if w := want[i][c.Class]; c.Guarantee != w.guarantee || c.Ceiling != w.ceiling {
				t.Errorf("%s: %+v, want %+v", device.Device, c, w)
			}
		}
	}
	named := map[string]int{}
	for _, device := range got {
		for _, c := range device.Classes {
			named[c.Contract]++
		}
	}
	if named["a"] != 3 || named["b"] != 3 || named[""] != 7 {
		t.Errorf("classes by contract: %v", named)
	}
}

func TestActualNamesThePortsContract(t *testing.T) {
	n := newNode(t)
	own := contract.Contract{Owner: contract.Owner{Tenant: "a", Port: "db"}, Send: bandwidth(5, 10), Receive: bandwidth(5, 10)}
	n.Set([]Link{link()}, set(t, append(pair(), own)...))
	n.look()
	got, err := n.Actual()
	if err != nil {
		t.Fatal(err)
	}
	if shown := fmt.Sprint(got); strings.Count(shown, " a/db ") != 3 {
		t.Errorf("the port's contract has an inner class and a leaf to send, and a leaf to receive:\n%s", shown)
	}
}

func TestActualOfADeviceThatIsGoneIsAnError(t *testing.T) {
	n := newNode(t)
	testutil.IP(t, "-n", n.ns, "link", "del", "up0")
	if got, err := n.Actual(); err == nil || !strings.Contains(err.Error(), "read schedulers") {
		t.Errorf("%+v, %v", got, err)
	}
	n.Set(nil, nil)
	if got, err := n.Actual(); err != nil || len(got) != 0 {
		t.Errorf("without links: %+v, %v", got, err)
	}
}
