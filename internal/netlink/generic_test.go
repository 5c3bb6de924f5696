package netlink

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFamiliesOfTheKernel(t *testing.T) {
	s := New("", unix.NETLINK_GENERIC)
	defer s.Close()
	control, err := s.Family("nlctrl", 1)
	if err != nil || control.id != unix.GENL_ID_CTRL { // the controller knows itself
		t.Fatalf("nlctrl: %+v, %v; want %d", control, err, unix.GENL_ID_CTRL)
	}
	for _, absent := range []string{"vigia-absent", strings.Repeat("x", 100)} {
		if f, err := s.Family(absent, 1); err == nil || strings.HasPrefix(absent, "vigia") && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a family that is not there: %+v, %v", f, err)
		}
	}
	// All families, by the family that lists them.
	names := make(map[string]bool)
	err = control.Dump(getFamily, nil, func(data []byte) (err error) {
		for kind, value := range Attributes(data, 0, &err) {
			if kind == familyName {
				names[Text(value)] = true
			}
		}
		return err
	})
	if err != nil || !names["nlctrl"] || len(names) < 2 {
		t.Errorf("families %v, %v", names, err)
	}
}

func TestAMessageWithoutItsGenericHeaderIsRefused(t *testing.T) {
	var got []byte
	take := behindHeader(func(data []byte) error { got = data; return nil })
	for n := range genericHeader {
		if err := take(0, make([]byte, n)); !errors.Is(err, ErrShort) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if err := take(0, []byte{1, 1, 0, 0, 7}); err != nil || len(got) != 1 || got[0] != 7 {
		t.Errorf("%v, %v", got, err)
	}
	f := Family{version: 2}
	if got := f.body(3, []byte{9}); string(got) != "\x03\x02\x00\x00\x09" {
		t.Errorf("a request is % x", got)
	}
}
