package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"

	"github.com/google/uuid"

	"vigia/isolation-agent/enforcer/refusal"
)

const maxBody = 64 << 10

// decode reads a body that is one JSON object with the keys of into, each at most once
// and written as there.
func decode(r *http.Request, into any) error {
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return refusal.New(refusal.BadBody, "", "the body cannot be read")
	}
	if len(raw) > maxBody {
		return refusal.New(refusal.TooLarge, "", "the body is larger than %d bytes", maxBody)
	}
	if err := checkKeys(raw, keysOf(into)); err != nil {
		return refusal.New(refusal.BadBody, "", "the body is not as documented: %v", err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return refusal.New(refusal.BadBody, "", "the body is not as documented: %v", err)
	}
	return nil
}

// keysOf returns the keys of the struct that into points to.
func keysOf(into any) map[string]bool {
	t := reflect.TypeOf(into).Elem()
	keys := make(map[string]bool, t.NumField())
	for i := range t.NumField() {
		keys[t.Field(i).Tag.Get("json")] = true
	}
	return keys
}

// checkKeys refuses what encoding/json lets through: keys that are repeated, of which it
// takes the last, keys in another case, which it takes for known ones, and what follows
// the object.
func checkKeys(raw []byte, known map[string]bool) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	first, err := dec.Token()
	if err != nil {
		return err
	}
	if first != json.Delim('{') {
		return errors.New("it is not an object")
	}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		key := token.(string) // of an object nothing else comes here
		if !known[key] {
			return fmt.Errorf("key %q is not known", clip(key))
		}
		if seen[key] {
			return fmt.Errorf("key %q appears twice", key)
		}
		seen[key] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil { // the end of the object
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}

// parseID reads an action's UUID.
func parseID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil || id == uuid.Nil {
		return uuid.Nil, refusal.New(refusal.BadField, "id", "id %q is not a UUID", clip(s))
	}
	return id, nil
}

// termOf returns the term of the leader that asks, nil without one.
func termOf(r *http.Request) (*uint64, error) {
	given := r.URL.Query().Get("term")
	if given == "" {
		return nil, nil
	}
	term, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		return nil, refusal.New(refusal.BadField, "term", "term %q is not a number", clip(given))
	}
	return &term, nil
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64]
	}
	return s
}
