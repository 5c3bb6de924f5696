package classify

import (
	"math/rand/v2"
	"testing"
)

// FuzzFrames looks for a frame for which the programs find another class than the reference does.
func FuzzFrames(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		f.Add(randomFrame(r))
	}
	matches := map[Match]uint32{
		{VXLAN, 1, vmNone}: classA, {VXLAN, 1, vmA}: classB, {Geneve, 1, vmNone}: classA, {GRE, 1, vmB}: classB, {GRE, 2, vmNone}: classA,
		{VLAN, 3, vmNone}: classA, {VLAN, 2, vmA}: classB, {Network: Plain, MAC: vmB}: classA,
	}
	p := open(f, matches)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 14 || len(data) > 3000 || !runs(data) {
			return
		}
		v := look(data)
		if got, want := run(t, p.Send(), data), v.queue(matches, v.from); got != want {
			t.Errorf("sent: % x\nfinds class %x, want %x by %+v", data, got, want, v)
		}
		if got, want := run(t, p.Receive(), data), v.queue(matches, v.to); got != want {
			t.Errorf("received: % x\nfinds class %x, want %x by %+v", data, got, want, v)
		}
	})
}
