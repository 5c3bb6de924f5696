package refusal

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

func TestEveryCodeHasANameAndATextOfItsOwn(t *testing.T) {
	names, texts := map[string]Code{}, map[string]Code{}
	for c := Code(1); c < end; c++ {
		if !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(c.String()) {
			t.Errorf("code %d is called %q", uint8(c), c)
		}
		if text := c.Text(); len(text) < 10 || strings.HasSuffix(text, ".") {
			t.Errorf("%s means %q", c, text)
		}
		if other, taken := names[c.String()]; taken {
			t.Errorf("%q is code %d and %d", c, uint8(other), uint8(c))
		}
		if other, taken := texts[c.Text()]; taken {
			t.Errorf("%s and %s mean the same: %q", other, c, c.Text())
		}
		names[c.String()], texts[c.Text()] = c, c
	}
	if len(names) != int(end)-1 {
		t.Errorf("%d of %d codes are listed", len(names), end-1)
	}
}

func TestWhatIsNoCodeSaysSo(t *testing.T) {
	for _, c := range []Code{0, end, 255} {
		if got := c.String(); got != fmt.Sprintf("refusal(%d)", uint8(c)) {
			t.Errorf("%d is called %q", uint8(c), got)
		}
		if got := c.Text(); got != "unknown" {
			t.Errorf("%d means %q", uint8(c), got)
		}
	}
}

func TestTheNamesOnTheWireStay(t *testing.T) {
	for code, want := range map[Code]string{
		BadBody: "bad_body", BadField: "bad_field", Unauthorized: "unauthorized", UnknownPort: "unknown_port", TenantMismatch: "tenant_mismatch",
		NoContract: "no_contract", BelowFloor: "below_floor", NotAttached: "not_attached", OtherLimit: "other_limit", StaleTerm: "stale_term",
		TooLarge: "too_large", Kernel: "kernel",
	} {
		if code.String() != want {
			t.Errorf("%q is now %q: the isolation agent acts upon it", want, code)
		}
	}
}

func TestTheCodeIsFoundInAChainOfErrors(t *testing.T) {
	refused := New(BelowFloor, "rate_bytes_per_second", "rate %d is below %d", 1, 2)
	if refused.Error() != "rate 1 is below 2" || refused.Field != "rate_bytes_per_second" {
		t.Errorf("%+v", refused)
	}
	if got := (&Error{Code: NoContract}).Error(); got != NoContract.Text() {
		t.Errorf("without a message it says %q", got)
	}
	for name, tc := range map[string]struct {
		err  error
		want Code
	}{
		"itself":                {refused, BelowFloor},
		"wrapped":               {fmt.Errorf("limit port p: %w", refused), BelowFloor},
		"joined":                {errors.Join(errors.New("x"), fmt.Errorf("y: %w", refused)), BelowFloor},
		"the first of two":      {errors.Join(New(StaleTerm, "", "x"), refused), StaleTerm},
		"another error":         {errors.New("below_floor"), 0},
		"no error":              {nil, 0},
		"without a message":     {&Error{Code: NoContract}, NoContract},
		"a message with a sign": {New(Kernel, "", "%s", "100% sure"), Kernel},
	} {
		if got := CodeOf(tc.err); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
