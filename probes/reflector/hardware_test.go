package reflector

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"

	"vigia/internal/testutil"
	"vigia/probes/sockets"
	"vigia/probes/stamp"
	"vigia/probes/timestamping"
	"vigia/probes/tsinfo"
)

// TestHardwareStampsOfAnswers: who asks gets both stamps of an answer by the device,
// or both by the kernel, or no follow-up; who does not ask gets the kernel's.
func TestHardwareStampsOfAnswers(t *testing.T) {
	const card, kernel = int64(5e9), int64(1_700_000_000e9)
	for _, tc := range []struct {
		name                    string
		asks                    bool
		arrival, sent, sentByUs int64 // stamps: the device's, the device's, the kernel's
		receive                 int64
		followUp                stamp.FollowUp
	}{
		{"both by the device", true, card, card + 9000, kernel + 8000, card, stamp.FollowUp{Timestamp: stamp.FromUnixNano(card + 9000), Method: stamp.HardwareAssist}},
		{"nobody asked", false, card, card + 9000, kernel + 8000, kernel, stamp.FollowUp{Timestamp: stamp.FromUnixNano(kernel + 8000), Method: stamp.SoftwareLocal}},
		{"the device did not stamp the arrival", true, 0, card + 9000, kernel + 8000, kernel, stamp.FollowUp{Timestamp: stamp.FromUnixNano(kernel + 8000), Method: stamp.SoftwareLocal}},
		{"the device did not stamp the departure", true, card, 0, kernel + 8000, card, stamp.FollowUp{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, _ := newReflector(t, 0)
			defer r.Close()
			r.responder.allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
			r.responder.limiter.setRate(1_000_000)
			l := &listener{counters: silentCounters{}, id: 1}
			answer := func(sequence uint32) (stamp.Reply, stamp.FollowUp) {
				b := request(64, sequence, 7)
				layout, _ := stamp.NewLayout(stamp.Unauthenticated, 64)
				layout.AskHardware(b, tc.asks)
				r.outbox.Reset()
				r.respond(l, 0, &timestamping.Datagram{Payload: b, From: alice, Stamp: kernel, Hardware: tc.arrival}, r.clock.Now())
				r.handed(l, &r.replies[0])
				reply, _ := stamp.ParseReply(b)
				tlvs := stamp.Unauthenticated.TLVs(b)
				tlv, _ := tlvs.Next()
				f, _ := stamp.ParseFollowUp(tlv)
				return reply, f
			}
			reply, _ := answer(0)
			if got := reply.ReceiveTimestamp.UnixNano(stamp.NTP, tc.receive); got != tc.receive {
				t.Errorf("received at %d, want %d", got, tc.receive)
			}
			for _, report := range []timestamping.Report{{Stamp: tc.sentByUs}, {Hardware: tc.sent}} {
				l.stamped(&report, r.steps)
			}
			if _, f := answer(1); f != tc.followUp {
				t.Errorf("%+v, want %+v", f, tc.followUp)
			}
		})
	}
}

// TestSurveyOfListeners looks at real devices, which stamp in software, and at a
// survey that says otherwise. Run looks by itself at any moment, so what the survey
// finds is changed, and never what was found.
func TestSurveyOfListeners(t *testing.T) {
	ns := testutil.NewNetNS(t)
	at := netip.MustParseAddrPort("127.0.0.1:862")
	var stampsInHardware atomic.Bool
	r, _ := newReflector(t, 0)
	r.options.Survey = func(ns string, mode tsinfo.Mode, locals []netip.Addr) ([]bool, error) {
		pretended := stampsInHardware.Load()
		use, err := tsinfo.SurveyLocal(ns, mode, locals)
		for i := range use {
			use[i] = use[i] || pretended
		}
		return use, err
	}
	start(t, r, Config{Listeners: []sockets.Key{{Netns: ns, Local: at}}, MaxRate: 1000})
	asked := func() (yes bool) {
		r.do(func() { yes = r.listeners[0].Hardware() })
		return yes
	}
	r.SetHardware(tsinfo.Enable)
	r.surveyOnce()
	if asked() {
		t.Error("lo is taken to stamp in hardware")
	}
	for _, want := range []bool{true, false} {
		stampsInHardware.Store(want)
		r.surveyor.Soon()
		testutil.WaitFor(t, fmt.Sprintf("the socket's use of hardware stamps to be %t", want), func() bool { return asked() == want })
	}
}
