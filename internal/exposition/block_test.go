package exposition

import (
	"strings"
	"testing"
)

func TestABlockIsRepeatedAsItWas(t *testing.T) {
	c, g := counter("vigia_a_total", "port"), gauge("vigia_b", "x")
	emit := func(p *Page) func() {
		return func() {
			p.Emit(c, 1, "p1")
			p.Emit(g, 2, "x\"")
			p.Emit(c, 3, "p2")
		}
	}
	p := NewPage(nil)
	p.Emit(c, 7, "p0")
	block := p.Record(emit(p))
	want := text(t, p)
	for range 2 {
		p.Reset(nil)
		p.Emit(c, 7, "p0")
		if !p.Repeat(block) || p.Series() != 4 || text(t, p) != want {
			t.Errorf("%d series, want 4:\n%s\nwant\n%s", p.Series(), text(t, p), want)
		}
	}
	q := NewPage(nil) // where nothing else is
	q.Repeat(block)
	if got := text(t, q); strings.Contains(got, "p0") || strings.Count(got, "\n") != 3+2*2 {
		t.Errorf("elsewhere it is\n%s", got)
	}
}

func TestABlockKeepsWithinTheQuota(t *testing.T) {
	c := counter("vigia_a_total", "port")
	p := NewPage(nil)
	emit := func() { p.Emit(c, 1, "p1"); p.Emit(c, 1, "p2") }
	block := p.Record(emit)
	p.Reset(nil)
	p.Quota(1)
	if p.Repeat(block) || p.Series() != 0 {
		t.Error("more series than the quota")
	}
	if again := p.Record(emit); again != nil {
		t.Error("what was cut is no block")
	}
	if cut := p.Quota(2); cut != 1 {
		t.Errorf("%d samples were kept out, want 1", cut)
	}
	if !p.Repeat(block) || p.Repeat(block) || p.Series() != 3 {
		t.Errorf("%d series, want 3", p.Series())
	}
}

func TestPortsThatAreSummedAreNoBlock(t *testing.T) {
	c, l := counter("vigia_a_total", "port"), NewLimiter(1)
	l.Admit([]string{"p1", "p2"})
	p := NewPage(l)
	if block := p.Record(func() { p.Emit(c, 1, "p1"); p.Emit(c, 1, "p2") }); block != nil {
		t.Errorf("a block of %d series", block.series)
	}
}
