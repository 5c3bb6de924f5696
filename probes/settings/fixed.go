package settings

import (
	"errors"
	"fmt"
	"reflect"

	"vigia/internal/config"
)

// Fixed is what stays as it is while the program runs. The tags name the keys.
type Fixed struct {
	// BulkState is the file that remembers what bulk tests have sent over a restart;
	// empty for none.
	BulkState string `key:"bulk.state"`
	// ObjectivesState does so for the objectives that were learned.
	ObjectivesState string `key:"objectives_state"`
}

// Refuse returns an error that names what next would change, or nil when it changes
// nothing.
func (f Fixed) Refuse(next Fixed) error {
	if reflect.DeepEqual(f, next) {
		return nil
	}
	var errs []error
	was, is := reflect.ValueOf(f), reflect.ValueOf(next)
	for i := range was.NumField() {
		before, after := was.Field(i).Interface(), is.Field(i).Interface()
		if reflect.DeepEqual(before, after) {
			continue
		}
		errs = append(errs, &config.FieldError{
			Field: was.Type().Field(i).Tag.Get("key"), Value: after, Problem: "cannot change while vigia-probe runs",
			Fix: fmt.Sprintf("restart it, or keep %q", before),
		})
	}
	return errors.Join(errs...)
}
