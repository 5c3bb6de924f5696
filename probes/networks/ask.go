package networks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"vigia/probes/stamp"
)

// maxReply is more than a reply has.
const maxReply = stamp.AuthenticatedSize + stamp.NetworksSize + stamp.HMACSize

// errSilent says that a node answers and does not tell of networks.
var errSilent = errors.New("tells nothing of networks")

// ask asks a node for its networks. Nothing that comes from elsewhere than its address and port, or answers
// another question, is an answer.
func ask(ctx context.Context, p *Peer, timeout time.Duration) ([]stamp.Network, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "udp", net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port))))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	mode, keys := p.Keys.Mode(), p.Keys.Keyring()
	question := stamp.Request{
		Sequence: rand.Uint32(), Timestamp: stamp.FromUnixNano(time.Now().UnixNano()),
		ErrorEstimate: stamp.NewErrorEstimate(false, time.Second), SSID: uint16(rand.Uint32()),
	}
	b := stamp.NewNetworksRequest(mode, question)
	if keys != nil {
		keys.Sign(b, 0)
	}
	if _, err := conn.Write(b); err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	for buffer := make([]byte, maxReply); ; {
		n, err := conn.Read(buffer)
		if err != nil {
			return nil, fmt.Errorf("wait for an answer: %w", err)
		}
		reply := buffer[:n]
		if !answers(mode, keys, reply, question) {
			continue
		}
		networks, ok := stamp.NetworksOf(mode, reply)
		if !ok {
			return nil, errSilent
		}
		return networks, nil
	}
}

// answers reports whether a packet is the answer to a question.
func answers(mode stamp.Mode, keys *stamp.Keyring, b []byte, q stamp.Request) bool {
	r, ok := mode.ParseReply(b)
	if !ok || r.SenderSequence != q.Sequence || r.SenderTimestamp != q.Timestamp {
		return false
	}
	if keys == nil {
		return true
	}
	key, ok := keys.Verify(b)
	return ok && keys.VerifyTLVs(b, key)
}
