package clockerror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// DefaultPTP is where ptp4l has its management socket (uds_address), and ReadOnlyPTP the
// one that since version 4 anybody may ask (uds_ro_address).
const (
	DefaultPTP  = "/var/run/ptp4l"
	ReadOnlyPTP = "/var/run/ptp4lro"
)

// PTP management messages (IEEE 1588-2019 clause 15), and the identifiers that
// linuxptp adds.
const (
	ptpHeader      = 34
	ptpManagement  = 48 // header, target, hops, action
	ptpTLV         = 6  // type, length, identifier
	ptpMessage     = 0x0d
	ptpVersion     = 2
	ptpControl     = 4
	actionGet      = 0
	actionResponse = 2
	tlvManagement  = 1
	currentDataSet = 0x2001
	timeStatus     = 0xc000 // TIME_STATUS_NP
	portProperties = 0xc004 // PORT_PROPERTIES_NP
	// A port is uncalibrated before its servo has settled, and for good when ptp4l is
	// told to leave the clock alone; the offset is known in both states.
	portUncalibrated, portSlave = 8, 9
)

// ptpAnswers are what ptp4l says.
type ptpAnswers struct {
	offset, delay time.Duration // from the master, to the master
	present       bool          // there is a grandmaster, and it is another
	slave         bool
	software      bool // stamps, so that it is the system's clock that is measured
}

// PTP asks ptp4l, at the path of its management socket, how far the clock that it
// measures may be from the grandmaster's: the offset, and the whole of the path's
// delay, of which nothing says how it is split. Where ptp4l stamps in hardware that is
// the clock of the device; system then says how far the system's is from it.
func PTP(ctx context.Context, path string, system func() Reading) (Reading, error) {
	a, err := askPTP(ctx, path)
	if err != nil {
		return Reading{}, fmt.Errorf("ask ptp4l at %s: %w", path, err)
	}
	r := Reading{Bound: a.offset.Abs() + a.delay.Abs(), Synchronized: a.present && a.slave && a.delay > 0, Source: SourcePTP}
	if !a.software {
		s := system()
		r.Bound, r.Synchronized = r.Bound+s.Bound, r.Synchronized && s.Synchronized
	}
	r.Synchronized = r.Synchronized && r.Bound < unknown
	return r, nil
}

func askPTP(ctx context.Context, path string) (a ptpAnswers, err error) {
	// A name without a file: the daemon's directory is often not ours to write to.
	conn, err := dialDatagram(ctx, path, "@"+ourSocket())
	if err != nil {
		return a, err
	}
	defer conn.Close()
	b := make([]byte, 1500)
	for _, id := range []uint16{currentDataSet, timeStatus, portProperties} {
		sequence := uint16(rand.Uint32())
		if _, err := conn.Write(encodePTP(id, sequence)); err != nil {
			return a, err
		}
		for answered := false; !answered; { // each port answers about itself
			n, err := conn.Read(b)
			if err != nil {
				return a, err
			}
			data, err := parsePTP(b[:n], id, sequence)
			if errors.Is(err, errForeign) {
				continue
			}
			if err != nil {
				return a, err
			}
			answered = true
			if err := a.read(id, data); err != nil {
				return a, err
			}
		}
	}
	return a, nil
}

// encodePTP makes a GET to all ports.
func encodePTP(id, sequence uint16) []byte {
	const size = ptpManagement + ptpTLV
	b := make([]byte, size)
	b[0], b[1] = ptpMessage, ptpVersion
	binary.BigEndian.PutUint16(b[2:], size)
	binary.BigEndian.PutUint16(b[30:], sequence)
	b[32], b[33] = ptpControl, 0x7f
	for i := ptpHeader; i < ptpHeader+10; i++ {
		b[i] = 0xff // every clock and port
	}
	b[46] = actionGet
	binary.BigEndian.PutUint16(b[48:], tlvManagement)
	binary.BigEndian.PutUint16(b[50:], 2)
	binary.BigEndian.PutUint16(b[52:], id)
	return b
}

// parsePTP returns the data of a response.
func parsePTP(b []byte, id, sequence uint16) ([]byte, error) {
	if len(b) < ptpManagement+ptpTLV || b[0]&0x0f != ptpMessage || binary.BigEndian.Uint16(b[30:]) != sequence || b[46]&0x0f != actionResponse {
		return nil, errForeign
	}
	length := int(binary.BigEndian.Uint16(b[50:]))
	if kind := binary.BigEndian.Uint16(b[48:]); kind != tlvManagement || length < 2 || ptpManagement+4+length > len(b) {
		return nil, fmt.Errorf("it refuses %#x", id)
	}
	if binary.BigEndian.Uint16(b[52:]) != id {
		return nil, errForeign
	}
	return b[ptpManagement+ptpTLV : ptpManagement+4+length], nil
}

// read takes the data of an answer.
func (a *ptpAnswers) read(id uint16, data []byte) error {
	scaled := func(at int) time.Duration { // nanoseconds times 2^16
		return time.Duration(int64(binary.BigEndian.Uint64(data[at:])) >> 16)
	}
	least := map[uint16]int{currentDataSet: 18, timeStatus: 50, portProperties: 12}[id]
	if len(data) < least {
		return fmt.Errorf("its answer to %#x is too short", id)
	}
	switch id {
	case currentDataSet: // steps removed, offset, mean path delay
		a.offset, a.delay = scaled(2), scaled(10)
	case timeStatus: // offset, time, rate, phase, base, phase change, then presence
		a.present = binary.BigEndian.Uint32(data[38:]) != 0
	case portProperties: // port identity, state, stamps
		a.slave, a.software = data[10] == portSlave || data[10] == portUncalibrated, data[11] == 0
	}
	return nil
}
