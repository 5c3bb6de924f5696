package vport

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// HTB classes that shape limits, as the programs know them.
const (
	ClassMajor = 0x1150
	FirstShape = 0x8000 // minor number of the first
	Shapes     = 0x4000 // classes
)

const (
	// shapeBurst of the rate passes at once, but never less than a datagram of the
	// largest size.
	shapeBurst    = 50 * time.Millisecond
	minShapeBurst = 64 << 10
)

// setShape tells the programs what a class lets through. The scheduler of an uplink
// shapes what leaves the node; what goes to a guest of the same node never comes
// there and is policed where it is delivered.
func (m *Manager) setShape(class uint32, rate uint64) error {
	key := class&0xffff - FirstShape
	if class>>16 != ClassMajor || key >= Shapes {
		return nil
	}
	v := vportShape{Rate: rate, Burst: max(minShapeBurst, rate*uint64(shapeBurst)/uint64(time.Second))}
	v.Bytes = filled(v.Burst, Monotonic())
	var old vportShape
	if err := m.objects.VportShape.LookupWithFlags(key, &old, ebpf.LookupLock); err != nil {
		return fmt.Errorf("read class %x: %w", class, err)
	}
	if old.Rate != 0 { // what is in the bucket stays there
		v.Bytes = carriedOver(old.Bytes, v.Burst)
	}
	if err := m.objects.VportShape.Update(key, &v, ebpf.UpdateLock); err != nil {
		return fmt.Errorf("write class %x: %w", class, err)
	}
	return nil
}
