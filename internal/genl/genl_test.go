package genl

import (
	"bytes"
	"errors"
	"io/fs"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

func TestFamiliesOfTheKernel(t *testing.T) {
	c, err := netlink.Dial(unix.NETLINK_GENERIC, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if id, err := Family(c, "nlctrl"); err != nil || id != unix.GENL_ID_CTRL { // the controller knows itself
		t.Errorf("nlctrl is %d, %v; want %d", id, err, unix.GENL_ID_CTRL)
	}
	if id, err := Family(c, "vigia-absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a family that is not there: %d, %v", id, err)
	}
}

func TestHeadersAreWrittenAndSkipped(t *testing.T) {
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(7, 99)
	attributes, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	payload := Body(3, 2, append([]byte{1, 2, 3, 4}, attributes...))
	if !bytes.HasPrefix(payload, []byte{3, 2, 0, 0, 1, 2, 3, 4}) {
		t.Errorf("the request is % x", payload)
	}
	ad, err := Attributes(payload, 4)
	if err != nil || !ad.Next() || ad.Type() != 7 || ad.Uint32() != 99 || ad.Next() {
		t.Errorf("the attribute is lost: %v, %v", err, ad.Err())
	}
	for n := range HeaderLen + 4 {
		if _, err := Attributes(payload[:n], 4); !errors.Is(err, ErrShort) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
