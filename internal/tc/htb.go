package tc

import (
	"encoding/binary"
	"math"
)

// Attributes of linux/pkt_sched.h, linux/pkt_cls.h and linux/tc_act/tc_mirred.h
// that golang.org/x/sys does not name.
const (
	tcaHTBParms  = 1
	tcaHTBInit   = 2
	tcaHTBRate64 = 6
	tcaHTBCeil64 = 7

	tcaBPFAct   = 1
	tcaBPFFD    = 6
	tcaBPFName  = 7
	tcaBPFFlags = 8
	tcaBPFID    = 11

	tcaBPFFlagActDirect = 1

	tcaActKind     = 1
	tcaActOptions  = 2
	tcaMirredParms = 2

	tcaStatsBasic = 1
	tcaStatsQueue = 3
	tcaStatsPkt64 = 8
)

const (
	htbVersion       = 3
	linkLayerEther   = 1 // TC_LINKLAYER_ETHERNET: the kernel reckons itself, no rate table is needed
	sizeofRateSpec   = 12
	sizeofHTBOpt     = 2*sizeofRateSpec + 5*4
	schedTickShift   = 6 // PSCHED_SHIFT: a tick is 64 ns
	nanosecondsPerS  = 1_000_000_000
	defaultR2Q       = 10
	sizeofHTBGlobMsg = 20
)

// htbGlob encodes struct tc_htb_glob.
func htbGlob(defaultMinor uint32) []byte {
	b := make([]byte, sizeofHTBGlobMsg)
	binary.NativeEndian.PutUint32(b, htbVersion)
	binary.NativeEndian.PutUint32(b[4:], defaultR2Q)
	binary.NativeEndian.PutUint32(b[8:], defaultMinor)
	return b
}

// htbOpt encodes struct tc_htb_opt. The 64-bit rates travel beside it.
func htbOpt(k *Class) []byte {
	b := make([]byte, sizeofHTBOpt)
	rateSpec(b, k.Rate)
	rateSpec(b[sizeofRateSpec:], k.Ceil)
	at := b[2*sizeofRateSpec:]
	binary.NativeEndian.PutUint32(at, burstTicks(k.Burst, k.Rate))
	binary.NativeEndian.PutUint32(at[4:], burstTicks(k.Burst, k.Ceil))
	binary.NativeEndian.PutUint32(at[8:], k.Quantum)
	binary.NativeEndian.PutUint32(at[16:], k.Prio)
	return b
}

func rateSpec(b []byte, rate uint64) {
	b[1] = linkLayerEther
	binary.NativeEndian.PutUint32(b[8:], uint32(min(rate, math.MaxUint32)))
}

// burstTicks returns the time that a burst takes at a rate, in scheduler ticks.
func burstTicks(burst uint32, rate uint64) uint32 {
	if rate == 0 {
		return 0
	}
	ns := uint64(burst) * nanosecondsPerS / rate
	return uint32(min(ns>>schedTickShift, math.MaxUint32))
}

// KeptBurst returns the bytes that Burst is read back as: the kernel keeps it as the time that it takes at Rate, in ticks,
// and no more of them than it has a number for.
func (k *Class) KeptBurst() uint32 { return ticksBurst(burstTicks(k.Burst, k.Rate), k.Rate) }

// ticksBurst is the reverse of burstTicks.
func ticksBurst(ticks uint32, rate uint64) uint32 {
	bytes := float64(ticks) * (1 << schedTickShift) * float64(rate) / nanosecondsPerS
	return uint32(min(math.Round(bytes), math.MaxUint32))
}
