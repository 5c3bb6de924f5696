package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Unchanged holds what a running program cannot change against what a new
// configuration says. Both are the same struct, with yaml tags as in the
// configuration, that has what is fixed and nothing else. They are compared whole;
// for every key that differs there is a *FieldError that says so and to restart the
// program.
func Unchanged(program string, running, wanted any) error {
	if reflect.DeepEqual(running, wanted) {
		return nil
	}
	var errs []error
	differences("", reflect.ValueOf(running), reflect.ValueOf(wanted), func(key string, was, is any) {
		errs = append(errs, &FieldError{
			Field: key, Value: is, Problem: fmt.Sprintf("cannot change while %s runs with %q", program, fmt.Sprint(was)),
			Fix: fmt.Sprintf("restart %s, or change it back", program),
		})
	})
	if errs == nil { // in a field without a tag
		return fmt.Errorf("the configuration differs in what cannot change while %s runs; restart %s", program, program)
	}
	return errors.Join(errs...)
}

// differences calls report for every key, as a dotted path, whose values differ.
func differences(path string, running, wanted reflect.Value, report func(key string, was, is any)) {
	if reflect.DeepEqual(running.Interface(), wanted.Interface()) {
		return
	}
	if running.Kind() == reflect.Pointer && !running.IsNil() && !wanted.IsNil() {
		running, wanted = running.Elem(), wanted.Elem()
	}
	if running.Kind() != reflect.Struct {
		report(path, presence(running), presence(wanted))
		return
	}
	t := running.Type()
	for i := range t.NumField() {
		key, options, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		switch {
		case strings.Contains(options, "inline"):
			differences(path, running.Field(i), wanted.Field(i), report)
		case key == "":
		case path == "":
			differences(key, running.Field(i), wanted.Field(i), report)
		default:
			differences(path+"."+key, running.Field(i), wanted.Field(i), report)
		}
	}
}

// presence returns what to show of a value: of a section whether it is there.
func presence(v reflect.Value) any {
	switch {
	case v.Kind() != reflect.Pointer:
		return v.Interface()
	case v.IsNil():
		return "no such section"
	}
	return "such a section"
}
