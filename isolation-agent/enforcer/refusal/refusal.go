// Package refusal says why the enforcer does not do what it is asked to. A refusal
// has a code, which programs act upon, and a message for people.
package refusal

import (
	"errors"
	"fmt"
	"strconv"
)

// Code is the reason of a refusal. Its String is the code of the API's answers.
type Code uint8

// The codes.
const (
	_              Code = iota
	BadBody             // 400
	BadField            // 400
	Unauthorized        // 401
	UnknownPort         // 404
	TenantMismatch      // 409
	NoContract          // 409
	BelowFloor          // 409
	NotAttached         // 409
	OtherLimit          // 409
	StaleTerm           // 409
	TooLarge            // 413
	Kernel              // 500
	NotReady            // 503
	end
)

// description of each code: its name on the wire, and its text.
var description = [end]struct{ name, text string }{
	BadBody:        {"bad_body", "the body is not one JSON object with known keys, each at most once"},
	BadField:       {"bad_field", "a field has a value that is out of range"},
	Unauthorized:   {"unauthorized", "send Authorization: Bearer with the token of token_file"},
	UnknownPort:    {"unknown_port", "this node has no such port"},
	TenantMismatch: {"tenant_mismatch", "the port belongs to another tenant"},
	NoContract:     {"no_contract", "the tenant has no contract on this node, so its floor is unknown"},
	BelowFloor:     {"below_floor", "the limit is below what the tenant bought, and no person approved it"},
	NotAttached:    {"not_attached", "nothing on the port would enforce the limit"},
	OtherLimit:     {"other_limit", "the port is limited by another action"},
	StaleTerm:      {"stale_term", "a later leader has given commands already"},
	TooLarge:       {"too_large", "the body is too large"},
	NotReady:       {"not_ready", "the enforcer has just begun and does not know its ports yet; ask again"},
	Kernel:         {"kernel", "the kernel did not do it; nothing may count as applied"},
}

// String returns the code as the API writes it.
func (c Code) String() string {
	if c == 0 || c >= end {
		return "refusal(" + strconv.Itoa(int(c)) + ")"
	}
	return description[c].name
}

// Text says what the code means.
func (c Code) Text() string {
	if c == 0 || c >= end {
		return "unknown"
	}
	return description[c].text
}

// Error is a refusal.
type Error struct {
	Code    Code
	Field   string // of the request; empty if no field is to blame
	Message string // what is wrong; empty for the code's text
}

// New returns a refusal. field is the request's field that is to blame, or empty.
func New(code Code, field, format string, args ...any) *Error {
	return &Error{Code: code, Field: field, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Text()
	}
	return e.Message
}

// CodeOf returns the code of a refusal anywhere in err's chain; 0 if it is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}
