package clockerror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The command and monitoring protocol of chronyd, version 6 (candm.h of chrony 2 to 4).
const (
	chronyVersion  = 6
	chronyRequest  = 1
	chronyReply    = 2
	chronyTracking = 33 // REQ_TRACKING
	replyTracking  = 5  // RPY_TRACKING
	replyHeader    = 28
	trackingSize   = 76
	leapUnsynced   = 3
)

// DefaultChrony is where chronyd answers everybody on the host.
const DefaultChrony = "127.0.0.1:323"

// Chrony asks chronyd, at an address IP:port or at the path of its unix socket, how far
// the system's clock may be from true time: its offset, the dispersion, and half of the
// delay to the root (chronyc(1), tracking).
func Chrony(ctx context.Context, address string) (Reading, error) {
	conn, err := dialDatagram(ctx, address, filepath.Join(filepath.Dir(address), ourSocket()))
	if err != nil {
		return Reading{}, fmt.Errorf("ask chronyd at %s: %w", address, err)
	}
	defer conn.Close()
	sequence := rand.Uint32()
	if _, err := conn.Write(encodeTracking(sequence)); err != nil {
		return Reading{}, fmt.Errorf("ask chronyd at %s: %w", address, err)
	}
	b := make([]byte, 1024)
	n, err := conn.Read(b)
	if err != nil {
		return Reading{}, fmt.Errorf("hear from chronyd at %s: %w", address, err)
	}
	r, err := parseTracking(b[:n], sequence)
	if err != nil {
		return Reading{}, fmt.Errorf("read the answer of chronyd at %s: %w", address, err)
	}
	return r, nil
}

// datagrams is a datagram socket of which a file may have to go.
type datagrams struct {
	net.Conn
	path string
}

// Close closes the socket.
func (d *datagrams) Close() error {
	err := d.Conn.Close()
	if d.path != "" {
		_ = os.Remove(d.path)
	}
	return err
}

// ourSocket makes a name for a unix socket of ours.
func ourSocket() string { return fmt.Sprintf("vigia-probe.%d.%d", os.Getpid(), rand.Uint32()) }

// dialDatagram connects to IP:port or to the unix socket of a path. Answers from there
// go to a unix socket of ours: its path, or an abstract name (unix(7)).
func dialDatagram(ctx context.Context, address, ours string) (*datagrams, error) {
	d := &datagrams{}
	dialer, network := net.Dialer{}, "udp"
	if filepath.IsAbs(address) {
		network = "unixgram"
		dialer.LocalAddr = &net.UnixAddr{Name: ours, Net: network}
		if filepath.IsAbs(ours) {
			d.path = ours
		}
	}
	var err error
	if d.Conn, err = dialer.DialContext(ctx, network, address); err != nil {
		return nil, err
	}
	if d.path != "" { // so that a daemon without root may answer
		if err := os.Chmod(d.path, 0o666); err != nil {
			d.Close()
			return nil, err
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = d.SetDeadline(deadline)
	}
	return d, nil
}

// encodeTracking makes a request, of the size of its answer: chronyd is no amplifier.
func encodeTracking(sequence uint32) []byte {
	b := make([]byte, replyHeader+trackingSize)
	b[0], b[1] = chronyVersion, chronyRequest
	binary.BigEndian.PutUint16(b[4:], chronyTracking)
	binary.BigEndian.PutUint32(b[8:], sequence)
	return b
}

var errForeign = errors.New("it is not an answer to the question")

// parseTracking reads an answer.
func parseTracking(b []byte, sequence uint32) (Reading, error) {
	if len(b) < replyHeader || b[1] != chronyReply || binary.BigEndian.Uint16(b[4:]) != chronyTracking || binary.BigEndian.Uint32(b[16:]) != sequence {
		return Reading{}, errForeign
	}
	if b[0] != chronyVersion {
		return Reading{}, fmt.Errorf("its protocol has version %d, and %d is known here", b[0], chronyVersion)
	}
	if status := binary.BigEndian.Uint16(b[8:]); status != 0 || binary.BigEndian.Uint16(b[6:]) != replyTracking {
		return Reading{}, fmt.Errorf("it refuses with status %d", status)
	}
	if len(b) < replyHeader+trackingSize {
		return Reading{}, errors.New("it is too short")
	}
	data := b[replyHeader:]
	float := func(at int) float64 { return chronyFloat(binary.BigEndian.Uint32(data[at:])) }
	// Reference identifier, address (20 bytes), stratum, leap status, reference
	// time (12 bytes), then floats.
	const leap, correction, rootDelay, rootDispersion = 26, 40, 64, 68
	bound := math.Abs(float(correction)) + float(rootDispersion) + float(rootDelay)/2
	return Reading{
		Bound:        time.Duration(math.Ceil(min(bound, unknown.Seconds()) * 1e9)),
		Synchronized: binary.BigEndian.Uint16(data[leap:]) != leapUnsynced && bound >= 0 && bound < unknown.Seconds(),
		Source:       SourceChrony,
	}, nil
}

// chronyFloat decodes chronyd's floats: 7 bits of exponent and 25 of coefficient, both
// in two's complement.
func chronyFloat(v uint32) float64 {
	exponent := int32(v) >> 25
	coefficient := int32(v<<7) >> 7
	return math.Ldexp(float64(coefficient), int(exponent)-25)
}

// isAddress reports whether a setting is where a daemon can be asked.
func isAddress(s string) bool {
	if filepath.IsAbs(s) {
		return true
	}
	host, port, err := net.SplitHostPort(s)
	return err == nil && net.ParseIP(host) != nil && port != "" && !strings.Contains(port, " ")
}
