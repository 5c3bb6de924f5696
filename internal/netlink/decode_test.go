package netlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	library "github.com/mdlayher/netlink"
)

// collected are the attributes of a message as a decoder tells them.
func collected(b []byte, header int) (kinds []uint16, values [][]byte, err error) {
	for kind, value := range Attributes(b, header, &err) {
		kinds, values = append(kinds, kind), append(values, value)
	}
	return kinds, values, err
}

func TestAttributesAreChecked(t *testing.T) {
	good := []byte{5, 0, 1, 0, 'a', 0, 0, 0, 8, 0, 2, 0x80, 'b', 'c', 'd', 'e'}
	kinds, values, err := collected(good, 0)
	if err != nil || len(kinds) != 2 || kinds[0] != 1 || kinds[1] != 2 || string(values[0]) != "a" || string(values[1]) != "bcde" {
		t.Errorf("%v, %q, %v", kinds, values, err)
	}
	for name, tc := range map[string]struct {
		bytes  []byte
		header int
		before int // attributes before the error
	}{
		"of nothing":                 {[]byte{1, 0, 0, 0}, 0, 0},
		"past the end":               {[]byte{9, 0, 1, 0, 0}, 0, 0},
		"past the end, the second":   {append(bytes.Clone(good[:8]), 9, 0, 2, 0, 'b'), 0, 1},
		"a header that is not there": {good[:3], 4, 0},
		"no header at all":           {nil, 1, 0},
	} {
		if kinds, _, err := collected(tc.bytes, tc.header); !errors.Is(err, ErrShort) || len(kinds) != tc.before {
			t.Errorf("an attribute %s: %v, %v", name, kinds, err)
		}
	}
	for name, fine := range map[string][]byte{"nothing": nil, "less than a header": {1, 2, 3}} {
		if kinds, _, err := collected(fine, 0); err != nil || len(kinds) != 0 {
			t.Errorf("%s: %v, %v", name, kinds, err)
		}
	}
}

func TestAnErrorInsideIsAnErrorOutside(t *testing.T) {
	e := NewEncoder(nil)
	e.Nested(1, func() { e.Bytes(2, []byte{1, 2, 3, 4}) })
	e.Uint32(3, 7)
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	b[4] = 60 // the length of the one inside
	seen := 0
	for kind, value := range Attributes(b, 0, &err) {
		seen++
		if kind != 1 {
			continue
		}
		for kind := range Attributes(value, 0, &err) {
			t.Errorf("an attribute %d that is cut short", kind)
		}
	}
	if !errors.Is(err, ErrShort) || seen != 2 {
		t.Errorf("%d attributes, %v", seen, err)
	}
}

func TestALoopMayBeLeft(t *testing.T) {
	var err error
	for kind := range Attributes([]byte{4, 0, 1, 0, 4, 0, 2, 0, 1, 0, 0, 0}, 0, &err) {
		if kind == 2 {
			break // before what is wrong
		}
	}
	if err != nil {
		t.Errorf("what was not read is wrong: %v", err)
	}
}

func TestNumbersAndTexts(t *testing.T) {
	e := NewEncoder([]byte{9, 9, 9, 9})
	e.Uint32(1, 0xdeadbeef)
	e.Uint64(2, 1<<60+1)
	e.String(3, "eth0")
	e.Bytes(4, []byte{1, 2})
	e.Bytes(5, nil)
	e.Bytes(6, []byte("no NUL"))
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		a      uint32
		b      uint64
		c, f   string
		d      uint16
		others int
	}
	for kind, value := range Attributes(b, 4, &err) {
		switch kind {
		case 1:
			got.a = Uint32(value, 0)
		case 2:
			got.b = Uint64(value, 0)
		case 3:
			got.c = Text(value)
		case 4:
			got.d = Uint16(value, 0)
		case 6:
			got.f = Text(value)
		default:
			got.others++
		}
	}
	if err != nil || got.a != 0xdeadbeef || got.b != 1<<60+1 || got.c != "eth0" || got.f != "no NUL" || got.others != 1 ||
		got.d != binary.NativeEndian.Uint16([]byte{1, 2}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFieldsOfStructuresEndWhereTheyEnd(t *testing.T) {
	b := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint32(nil, 7), 8)
	if Uint32(b, 0) != 7 || Uint64(b, 4) != 8 {
		t.Errorf("%d, %d", Uint32(b, 0), Uint64(b, 4))
	}
	if Uint16(b, 11) != 0 || Uint32(b, 9) != 0 || Uint64(b, 5) != 0 || Uint32(nil, 0) != 0 {
		t.Error("what is not there is not 0")
	}
	for text, want := range map[string]string{"": "", "\x00": "", "a\x00b": "a", "a": "a"} {
		if got := Text([]byte(text)); got != want {
			t.Errorf("%q reads %q", text, got)
		}
	}
}

// randomAttributes writes the same attributes by this package and by the library.
func randomAttributes(r *rand.Rand, e *Encoder, l *library.AttributeEncoder, depth int) {
	for range r.IntN(5) {
		kind := uint16(r.IntN(64))
		switch r.IntN(5) {
		case 0:
			v := r.Uint32()
			e.Uint32(kind, v)
			l.Uint32(kind, v)
		case 1:
			v := r.Uint64()
			e.Uint64(kind, v)
			l.Uint64(kind, v)
		case 2:
			v := strings.Repeat("x", r.IntN(20))
			e.String(kind, v)
			l.String(kind, v)
		case 3:
			v := make([]byte, r.IntN(20))
			e.Bytes(kind, v)
			l.Bytes(kind, v)
		default:
			if depth == 0 {
				continue
			}
			e.Nested(kind, func() {
				l.Nested(kind, func(inner *library.AttributeEncoder) error {
					randomAttributes(r, e, inner, depth-1)
					return nil
				})
			})
		}
	}
}

// TestTheLibraryWritesTheSame compares what both write, of random attributes.
func TestTheLibraryWritesTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		head := make([]byte, 4*r.IntN(5))
		e, l := NewEncoder(bytes.Clone(head)), library.NewAttributeEncoder()
		randomAttributes(r, e, l, 3)
		want, err := l.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Encode()
		if err != nil || !bytes.Equal(got, append(head, want...)) {
			t.Fatalf("%x, %v\nwant %x", got, err, want)
		}
	}
}

func TestAnAttributeThatIsTooLongIsRefused(t *testing.T) {
	e := NewEncoder(nil)
	e.Bytes(1, make([]byte, 1<<16-5))
	if _, err := e.Encode(); err != nil {
		t.Errorf("65535 bytes with the header: %v", err)
	}
	for name, fill := range map[string]func(e *Encoder){
		"bytes":  func(e *Encoder) { e.Bytes(1, make([]byte, 1<<16-4)) },
		"a text": func(e *Encoder) { e.String(1, strings.Repeat("x", 1<<16)) },
		"a nest": func(e *Encoder) {
			e.Nested(1, func() {
				e.Bytes(1, make([]byte, 40000))
				e.Bytes(2, make([]byte, 40000))
			})
		},
	} {
		e := NewEncoder(nil)
		fill(e)
		e.Uint32(2, 1)
		if b, err := e.Encode(); err == nil {
			t.Errorf("%s: %d bytes were written", name, len(b))
		}
	}
}

// FuzzAttributes reads what anybody sends as the library does: the same attributes, or
// an error. The library takes a length of 0 for an empty attribute, which here is an error.
func FuzzAttributes(f *testing.F) {
	f.Add([]byte{5, 0, 1, 0, 'a', 0, 0, 0, 8, 0, 2, 0x80, 'b', 'c', 'd', 'e'})
	f.Add([]byte{8, 0, 1, 0, 1, 2, 3, 4, 1})
	f.Add([]byte{1, 0, 0, 0})
	f.Add([]byte{0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		kinds, values, err := collected(b, 0)
		total := 0
		for _, v := range values {
			total += 4 + len(v)
		}
		if total > len(b) {
			t.Errorf("%d bytes of attributes in %d", total, len(b))
		}
		d, failed := library.NewAttributeDecoder(b)
		if failed != nil || len(b) < 4 || len(b)%4 != 0 { // the library wants whole words
			return
		}
		i := 0
		for ; i < len(kinds) && d.Next(); i++ {
			if d.Type() != kinds[i] || !bytes.Equal(d.Bytes(), values[i]) {
				t.Fatalf("attribute %d is %d, %x for the library; here %d, %x", i, d.Type(), d.Bytes(), kinds[i], values[i])
			}
		}
		if i != len(kinds) || err == nil && (d.Next() || d.Err() != nil) {
			t.Errorf("%d attributes here, %v; %d for the library, %v", len(kinds), err, i, d.Err())
		}
	})
}
