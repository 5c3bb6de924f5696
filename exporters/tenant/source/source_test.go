package source

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"vigia/internal/ports"
)

func TestDirectionIsTheTenants(t *testing.T) {
	for _, tc := range []struct {
		where                 string
		view                  Viewpoint
		received, transmitted string
	}{
		{"tap of a virtual machine", SwitchSide, FromTenant, ToTenant},
		{"OVS port in OpenFlow", SwitchSide, FromTenant, ToTenant},
		{"SR-IOV VF as its PF tells", TenantSide, ToTenant, FromTenant},
		{"device of an OVS internal port", TenantSide, ToTenant, FromTenant},
	} {
		if r, x := tc.view.Directions(); r != tc.received || x != tc.transmitted {
			t.Errorf("%s: received is %s, transmitted is %s", tc.where, r, x)
		}
	}
}

func TestReasonsAddUpToTheDevicesCount(t *testing.T) {
	r := NewRemainders()
	settle := func(device, within, beside uint64) (rest, sum uint64) {
		d := NewDrops()
		d.Device("p", "t", ToTenant, device)
		d.Add("p", "t", ToTenant, VhostBackpressure, within, Within)
		d.Add("p", "t", ToTenant, QueueFull, beside, Beside)
		d.Settle(r)
		for _, n := range d.Counts {
			sum += n
		}
		return d.Counts[DropKey{"p", "t", ToTenant, Unattributed}], sum
	}
	for _, tc := range []struct {
		name                         string
		device, within, beside, want uint64
		sum                          uint64
	}{
		{"a remainder", 10, 4, 100, 6, 110},
		{"the parts are newer than the device's count", 10, 5, 0, 6, 11}, // never back
		{"it grows", 20, 5, 0, 15, 20},
		{"the counters started again", 3, 1, 0, 2, 3},
		{"more is known than the device counts", 3, 9, 0, 2, 11},
	} {
		if rest, sum := settle(tc.device, tc.within, tc.beside); rest != tc.want || sum != tc.sum {
			t.Errorf("%s: remainder %d of %d, want %d of %d", tc.name, rest, sum, tc.want, tc.sum)
		}
	}
	NewDrops().Settle(r)
	if len(r.last) != 0 {
		t.Error("the remainder of a port that is gone is kept")
	}
}

func TestUnknownReasonPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	NewDrops().Add("p", "t", ToTenant, "bad_weather", 1, Within)
}

func TestViewFindsPortsByIndex(t *testing.T) {
	v := new(Views).Next([]ports.Port{{ID: "a", Index: 4}, {ID: "b", Index: 7}}, nil, nil, time.Now())
	if p := v.ByIndex(7); p == nil || p.ID != "b" {
		t.Errorf("got %+v", p)
	}
	if v := new(Views).Next([]ports.Port{{ID: "vhost-user"}}, nil, nil, time.Now()); v.ByIndex(0) != nil || v.Deviceless != 1 {
		t.Error("a port without a device has an index")
	}
	if v.ByIndex(5) != nil {
		t.Error("found a port that is none")
	}
}

func TestViewsFollowTheListAndForgetTheScrapeBefore(t *testing.T) {
	var w Views
	list := []ports.Port{{ID: "a", Index: 4, Tenant: "red", Device: "tap4"}, {ID: "b", Index: 7, Tenant: "blue"}, {ID: "c", Tenant: "red"}}
	v := w.Next(list, nil, nil, time.Now())
	if v.Carried != nil {
		t.Error("somebody has read what ports carried")
	}
	v.Carry(1, 10, 100)
	v.Drops.Add("a", "red", ToTenant, MTU, 3, Within)
	if got := v.Carried; len(got) != 3 || got[0].Known || got[1] != (Carried{10, 100, true}) {
		t.Errorf("carried %+v", got)
	}
	if names, of := v.Tenants(); !slices.Equal(names, []string{"red", "blue"}) || !slices.Equal(of, []int{0, 1, 0}) {
		t.Errorf("tenants %v, %v", names, of)
	}
	v = w.Next(list, []ports.Port{{ID: "z"}}, nil, time.Now())
	if v.Carried != nil || len(v.Drops.Counts) != 0 {
		t.Errorf("left from the scrape before: %+v, %+v", v.Carried, v.Drops.Counts)
	}
	if ids := v.IDs(); len(ids) != 4 || !ids["z"] || !ids["c"] {
		t.Errorf("ids %v", ids)
	}
	if i, ok := v.ByDevice("tap4"); i != 0 || !ok {
		t.Errorf("tap4 is at %d, %v", i, ok)
	}
	v = w.Next([]ports.Port{{ID: "b", Index: 4, Tenant: "blue"}}, nil, nil, time.Now())
	if p := v.ByIndex(4); p == nil || p.ID != "b" || v.ByIndex(7) != nil || v.IDs()["a"] || v.Deviceless != 0 {
		t.Error("the view is of a list that was")
	}
	if _, ok := v.ByDevice("tap4"); ok {
		t.Error("found a device that went")
	}
	v.Carry(0, 1, 1)
	if v = w.Next(nil, nil, nil, time.Now()); len(v.IDs()) != 0 || v.Carried != nil {
		t.Error("an empty list has ports")
	}
}

func TestPollerKeepsReadingAndForgetsNothingButAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, broken := 0, atomic.Bool{}
		p := NewPoller(10*time.Second, func(context.Context) (int, error) {
			reads++
			if broken.Load() {
				return 0, errors.New("gone")
			}
			return reads, nil
		})
		if _, err := p.Latest(); !errors.Is(err, ErrNotYet) {
			t.Errorf("before the first read: %v", err)
		}
		if _, ok := p.Age(); ok {
			t.Error("there is an age before there are data")
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.Run(ctx)
		time.Sleep(13 * time.Second)
		if n, err := p.Latest(); n != 2 || err != nil {
			t.Errorf("after 13 s: %d, %v; want the second read", n, err)
		}
		if age, ok := p.Age(); !ok || age != 3*time.Second {
			t.Errorf("age %s, %v", age, ok)
		}
		broken.Store(true)
		time.Sleep(10 * time.Second)
		if _, err := p.Latest(); err == nil {
			t.Error("an old result is shown as if it were new")
		}
		if age, _ := p.Age(); age != 13*time.Second {
			t.Errorf("age %s while reads fail, want 13s", age)
		}
		broken.Store(false)
		time.Sleep(1100 * time.Millisecond)
		if _, err := p.Latest(); err != nil {
			t.Errorf("a second after it works again: %v", err)
		}
	})
}

// TestFailedReadsAreRepeatedSoon holds what a recovery within five seconds depends on:
// however rarely a daemon is asked, once it has failed it is asked again soon.
func TestFailedReadsAreRepeatedSoon(t *testing.T) {
	const recovery = 5 * time.Second
	for _, interval := range []time.Duration{time.Millisecond, 5 * time.Second, 10 * time.Minute} {
		p := NewPoller(interval, func(context.Context) (int, error) { return 0, nil })
		if got := p.pause(nil); got != interval {
			t.Errorf("every %s: read again after %s", interval, got)
		}
		for _, err := range []error{io.ErrUnexpectedEOF, ErrPartial} {
			if got := p.pause(err); got > interval || got >= recovery/2 {
				t.Errorf("every %s: after %v read again after %s", interval, err, got)
			}
		}
	}
}

func TestPollerEndsASlowRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPoller(time.Second, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.Run(ctx)
		time.Sleep(minReadTime + time.Second)
		if _, err := p.Latest(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestPollerKeepsAPartialResultAndReadsAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		p := NewPoller(time.Minute, func(context.Context) (int, error) {
			if reads++; reads < 3 {
				return reads, ErrPartial
			}
			return reads, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.Run(ctx)
		for want := 1; want <= 3; want++ {
			synctest.Wait()
			if n, err := p.Latest(); n != want || err != nil {
				t.Errorf("%d, %v; want %d", n, err, want)
			}
			time.Sleep(time.Second)
		}
		if n, _ := p.Latest(); n != 3 {
			t.Errorf("%d reads within the interval after a whole one", n)
		}
	})
}
