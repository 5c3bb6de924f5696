package once

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"

	"vigia/probes/pathmtu"
	"vigia/probes/sender"
	"vigia/probes/settings"
)

// pathMTUSchema names the form of the JSON document.
const pathMTUSchema = "vigia.probe.path-mtu/1"

// pathMTUResult is the JSON document of a search.
type pathMTUResult struct {
	Schema   string  `json:"schema"`
	Address  string  `json:"address"`
	Outcome  string  `json:"outcome"`
	Reason   string  `json:"reason,omitempty"`          // why nothing was found
	PathMTU  *int    `json:"path_mtu_bytes"`            // with the IP header; null unless found
	Payload  *int    `json:"largest_udp_payload_bytes"` // null unless found
	AtMax    bool    `json:"at_max"`                    // the path may carry more than was tried
	Reported *int    `json:"reported_mtu_bytes"`        // by the kernel or ICMP; null when none was
	Min      int     `json:"min_bytes"`
	Max      int     `json:"max_bytes"`
	Packets  int     `json:"packets_sent"`
	Duration float64 `json:"duration_seconds"`
}

func newPathMTUResult(address string, headers int, limits pathmtu.Limits, r *pathmtu.Result) *pathMTUResult {
	out := &pathMTUResult{
		Schema: pathMTUSchema, Address: address, Outcome: string(r.Outcome), AtMax: r.AtMax,
		Min: limits.Min, Max: limits.Max, Packets: r.Probes, Duration: r.Duration.Seconds(),
	}
	if r.Err != nil {
		out.Reason = r.Err.Error()
	}
	if r.Outcome == pathmtu.Found {
		payload := r.MTU - headers
		out.PathMTU, out.Payload = &r.MTU, &payload
	}
	if r.Reported > 0 {
		out.Reported = &r.Reported
	}
	return out
}

func (r *pathMTUResult) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

func (r *pathMTUResult) print(w io.Writer) {
	more := ""
	if r.AtMax {
		more = " or more: larger packets were not tried"
	}
	fmt.Fprintf(w, "%s: path MTU %d bytes, %d of UDP payload%s\n", r.Address, *r.PathMTU, *r.Payload, more)
	reported := "nothing was reported by ICMP or the device"
	if r.Reported != nil {
		reported = fmt.Sprintf("smallest MTU reported by ICMP or the device: %d bytes", *r.Reported)
	}
	fmt.Fprintf(w, "searched %d to %d bytes with %d packets in %.1fs; %s\n", r.Min, r.Max, r.Packets, r.Duration, reported)
}

// limits checks the flags of a search.
func (o *options) limits() (pathmtu.Limits, error) {
	for _, f := range []struct {
		name string
		size int
	}{{"min", o.mtuMin}, {"max", o.mtuMax}} {
		if problem, fix := settings.CheckPacketSize(f.size); problem != "" {
			return pathmtu.Limits{}, usage("--path-mtu-%s %d %s; %s", f.name, f.size, problem, fix)
		}
	}
	if o.mtuMax <= o.mtuMin {
		return pathmtu.Limits{}, usage("--path-mtu-max %d is not above --path-mtu-min %d; write %d to %d", o.mtuMax, o.mtuMin, o.mtuMin+1, pathmtu.GreatestSize)
	}
	return pathmtu.Limits{Min: o.mtuMin, Max: o.mtuMax}, nil
}

// search searches the path MTU and prints it.
func (o *options) search(ctx context.Context, t sender.Target, stdout io.Writer) error {
	limits, err := o.limits()
	if err != nil {
		return err
	}
	var to netip.AddrPort
	var r pathmtu.Result
	switch err := resolve(ctx, &t, net.DefaultResolver.LookupNetIP); {
	case err == nil:
		to = netip.AddrPortFrom(netip.MustParseAddr(t.Host), t.Port)
		r = pathmtu.Search(ctx, t, to, limits)
	case isUsage(err):
		return err
	default:
		r = pathmtu.Result{Outcome: pathmtu.Failed, Err: err}
	}
	address, headers := t.Host, 0
	if to.IsValid() {
		address, headers = addressText(to), pathmtu.Headers(to.Addr())
	}
	document := newPathMTUResult(address, headers, limits, &r)
	if o.json {
		if err := document.writeJSON(stdout); err != nil {
			return err
		}
	}
	if r.Outcome != pathmtu.Found {
		return fmt.Errorf("path MTU of %s: %s: %w", address, r.Outcome, r.Err)
	}
	if !o.json {
		document.print(stdout)
	}
	return nil
}
