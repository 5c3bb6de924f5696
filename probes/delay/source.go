package delay

// Source is what took a time stamp.
type Source uint8

// The sources. A device's clock and the system's have nothing in common: a stamp of
// one is never subtracted from a stamp of the other.
const (
	Kernel   Source = iota // on CLOCK_REALTIME
	Hardware               // the network device, on its PTP hardware clock
)

// String names the source.
func (s Source) String() string { return [...]string{"kernel", "hardware"}[s] }

// Choose decides by which stamps of our own the sample is measured: by the device's
// where T2 and T3 are a device's, too, or of no consequence. A single one of our
// device's stamps is of no use; the two of the kernel then stand. hardware says
// whether the device's are wanted.
func (s *Stamps) Choose(hardware bool) {
	s.Source = Kernel
	if !hardware || s.Device1 == 0 || s.Device4 == 0 || s.Far != Hardware && !s.OneClock {
		return
	}
	s.kernelTime = s.T4 - s.T1
	if s.Kernel&T1 == 0 || s.Kernel&T4 == 0 {
		s.kernelTime = 0
	}
	s.T1, s.T4, s.Source = s.Device1, s.Device4, Hardware
	s.Kernel |= T1 | T4
}

// stepSlack is by how much a device's clock may be off the system's over the time that
// a probe takes, in nanoseconds; beyond that it was set.
const stepSlack = int64(1e6)

// deviceStepped reports whether the device's clock was set while the probe was under
// way. The device stamps a packet after the kernel when it leaves, and before the
// kernel when it arrives, so by its clock the probe takes less time, never more.
func (s *Stamps) deviceStepped() bool {
	if s.Source != Hardware || s.kernelTime == 0 {
		return false
	}
	device := s.T4 - s.T1
	return device > s.kernelTime+s.kernelTime/1000+stepSlack || device < 0
}

// Admission lets samples of one source alone into a target's statistics.
type Admission struct {
	source   Source
	admitted int // up to changeAfter
	others   int // of another source in a row
}

// So many samples of another source in a row make it the target's: as many as were
// admitted before, within these bounds. A lost stamp now and then does not, and a device
// that is found just after the start soon does.
const changeAtLeast, changeAfter = 3, 100

// Admit says whether a sample of the source belongs to the target's, and whether the
// target's source has just changed to it, so that its statistics must begin anew.
func (a *Admission) Admit(s Source) (ok, changed bool) {
	switch {
	case a.admitted == 0:
		a.source, a.admitted = s, 1
		return true, false
	case s == a.source:
		a.others, a.admitted = 0, min(a.admitted+1, changeAfter)
		return true, false
	}
	a.others++
	if a.others < max(a.admitted, changeAtLeast) {
		return false, false
	}
	a.source, a.others, a.admitted = s, 0, 1
	return true, true
}

// Source returns the target's source.
func (a *Admission) Source() Source { return a.source }
