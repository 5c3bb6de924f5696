package reflector

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"
)

// answer is what the independent sender makes of one of our answers.
type answer struct {
	Size           int     `json:"size"`
	Asked          int     `json:"asked"`
	Sequence       int     `json:"sequence"`
	Error          uint16  `json:"error"`
	SSID           uint16  `json:"ssid"`
	SenderSequence int     `json:"sender_sequence"`
	Echo           bool    `json:"echo"`
	Zeros          bool    `json:"zeros"`
	TTL            int     `json:"ttl"`
	Ordered        bool    `json:"ordered"`
	Flags          uint8   `json:"flags"`
	Type           int     `json:"type"`
	Length         int     `json:"length"`
	Followed       int     `json:"followed"`
	FollowUp       float64 `json:"follow_up"`
	Mode           int     `json:"mode"`
	Sent           float64 `json:"sent"`
}

// TestIndependentSender is probed by a sender that shares no code with us.
func TestIndependentSender(t *testing.T) {
	for _, mode := range []string{"plain", "follow-up"} {
		t.Run(mode, func(t *testing.T) {
			c, to := loopbackConfig(t, "127.0.0.1:0")
			run(t, c, 0)
			const n = 20
			out, err := exec.Command("python3", "testdata/plain_sender.py", fmt.Sprint(to.Port()), fmt.Sprint(n), mode).Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var answers []answer
			if err := json.Unmarshal(out, &answers); err != nil || len(answers) != n {
				t.Fatalf("%d answers, %v", len(answers), err)
			}
			for i, a := range answers {
				ssid := uint16(0)
				if mode == "follow-up" {
					ssid = 0xbeef
				}
				if a.Size != a.Asked || a.Sequence != i || a.SenderSequence != i || a.SSID != ssid ||
					!a.Echo || !a.Zeros || !a.Ordered || a.TTL != 64 || a.Error&0xff == 0 {
					t.Errorf("answer %d: %+v", i, a)
				}
				if mode == "follow-up" {
					checkFollowUp(t, answers, i)
				}
			}
		})
	}
}

// checkFollowUp demands that answer i tells when answer i-1 left.
func checkFollowUp(t *testing.T, answers []answer, i int) {
	t.Helper()
	a := answers[i]
	if a.Flags != 0 || a.Type != 7 || a.Length != 16 {
		t.Errorf("answer %d: TLV %+v", i, a)
	}
	if i == 0 {
		if a.FollowUp != 0 {
			t.Errorf("the first answer follows up on %d", a.Followed)
		}
		return
	}
	before := answers[i-1]
	if a.Followed != i-1 || a.Mode != 2 || a.FollowUp < before.Sent || a.FollowUp > a.Sent {
		t.Errorf("answer %d: follow-up on %d at %f, which was sent at %f or later", i, a.Followed, a.FollowUp, before.Sent)
	}
}
