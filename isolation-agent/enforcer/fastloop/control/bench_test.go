package control

import (
	"strconv"
	"testing"
	"time"
)

// BenchmarkSample prints what a tick's decisions take on a link with 64 tenants, all of which
// or one of which receive.
func BenchmarkSample(b *testing.B) {
	const tenants = 64
	for _, moving := range []int{1, tenants} {
		b.Run(strconv.Itoa(moving), func(b *testing.B) {
			r := NewReceiver(Vigia, 95*mbit, 2.5*mbit)
			classes, readings := map[uint32]ClassConfig{}, make([]ClassReading, tenants)
			for id := range uint32(tenants) {
				classes[id] = ClassConfig{Tenant: "t", GuaranteeBytesPerSecond: 185_546}
				readings[id].ID = id
			}
			r.SetClasses(classes)
			now := time.Now()
			r.Sample(now, readings)
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(Tick)
				for i := range moving {
					readings[i].Arrived += uint64(mbit * Tick.Seconds())
					readings[i].Left += uint64(mbit * Tick.Seconds())
				}
				r.Sample(now, readings[:moving])
			}
		})
	}
}
