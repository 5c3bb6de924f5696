// Package pairs is the command by which people look at the pairs of a mesh, and give some of
// them series of their own for a while.
package pairs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"vigia/internal/daemon"
	"vigia/probes/export"
)

// Path is where the daemon tells its pairs, and is asked for series of some.
const Path = "/debug/pairs"

// Bounds of what is read of an answer.
const (
	maxError  = 512
	maxAnswer = 64 << 20
)

// Command returns the command pairs.
func Command(address string) daemon.Command {
	return daemon.Command{
		Name: "pairs",
		Help: "Print the pairs of a running instance that have series of their own or cannot be reached; or give those with a node series for a while.",
		Register: func(cmd *kingpin.CmdClause) func(context.Context, io.Writer, io.Writer) error {
			base := cmd.Flag("url", "The instance.").Default("http://" + address).String()
			dst := cmd.Flag("dst", "Give the pairs with this node series of their own.").PlaceHolder("NODE").String()
			ttl := cmd.Flag("ttl", "For how long.").Default("10m").Duration()
			all := cmd.Flag("all", "Print all pairs.").Bool()
			return func(ctx context.Context, stdout, _ io.Writer) error {
				u, err := url.Parse(*base)
				if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
					return &daemon.UsageError{Err: fmt.Errorf("--url %q is not the address of an instance; write for example http://%s", *base, address)}
				}
				u = u.JoinPath(Path)
				if *dst != "" {
					u.RawQuery = url.Values{"dst": {*dst}, "ttl": {ttl.String()}}.Encode()
					return ask(ctx, u, *dst, *ttl, stdout)
				}
				return list(ctx, u, *all, stdout)
			}
		},
	}
}

// ask asks for series of the pairs with a node.
func ask(ctx context.Context, u *url.URL, dst string, ttl time.Duration, out io.Writer) error {
	if _, err := exchange(ctx, http.MethodPost, u); err != nil {
		return fmt.Errorf("ask for series: %w", err)
	}
	_, err := fmt.Fprintf(out, "The pairs with %s have series of their own for %v, as far as mesh.pair_series goes.\n", dst, ttl)
	return err
}

// list prints pairs.
func list(ctx context.Context, u *url.URL, all bool, out io.Writer) error {
	raw, err := exchange(ctx, http.MethodGet, u)
	if err != nil {
		return fmt.Errorf("ask for pairs: %w", err)
	}
	var states []export.PairState
	if err := json.Unmarshal(raw, &states); err != nil {
		return fmt.Errorf("ask for pairs: the answer is no list of pairs: %w", err)
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "dst\tpath\ttenant\tprobe\track\tzone\tstate")
	for i := range states {
		if s := &states[i]; all || s.Bad || s.Asked || s.Exported || s.Unreachable {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Dst, s.Path, s.Tenant, s.Probe, s.Rack, s.Zone, words(s))
		}
	}
	return t.Flush()
}

// words says the state of a pair.
func words(s *export.PairState) string {
	var out []string
	for _, w := range []struct {
		is   bool
		word string
	}{
		{s.Unreachable, "unreachable"},
		{s.Bad, "bad"},
		{s.Asked, "asked for"},
		{s.Exported, "with series"},
		{(s.Bad || s.Asked) && !s.Exported, "left out"},
	} {
		if w.is {
			out = append(out, w.word)
		}
	}
	if out == nil {
		return "fine"
	}
	return strings.Join(out, ", ")
}

func exchange(ctx context.Context, method string, u *url.URL) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxError)) // the status is what matters
		return nil, fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return io.ReadAll(io.LimitReader(response.Body, maxAnswer))
}
