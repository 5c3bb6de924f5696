package control

import (
	"testing"
	"time"
)

// BenchmarkSample prints what a tick's decisions take on a link with 64 tenants.
func BenchmarkSample(b *testing.B) {
	const tenants = 64
	r := NewReceiver(Vigia, 95*mbit, 2.5*mbit)
	classes, readings := map[uint32]ClassConfig{}, map[uint32]Reading{}
	for id := range uint32(tenants) {
		classes[id] = ClassConfig{Tenant: "t", GuaranteeBytesPerSecond: 185_546}
	}
	r.SetClasses(classes)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(Tick)
		for id := range classes {
			v := readings[id]
			v.Arrived += uint64(mbit * Tick.Seconds())
			v.Left += uint64(mbit * Tick.Seconds())
			readings[id] = v
		}
		r.Sample(now, readings)
	}
}
