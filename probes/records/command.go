package records

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"vigia/internal/daemon"
)

// Path is where the daemon serves records.
const Path = "/debug/records"

// Selectors are the labels by which records are selected.
func Selectors() []string { return []string{"dst", "path", "tenant", "probe"} }

// maxError bounds how much of an error page is shown.
const maxError = 512

// Command returns the command dump.
func Command(address string) daemon.Command {
	return daemon.Command{
		Name: "dump",
		Help: "Print the raw records of the last 60 s of a running instance as JSON Lines.",
		Register: func(cmd *kingpin.CmdClause) func(context.Context, io.Writer, io.Writer) error {
			base := cmd.Flag("url", "The instance.").Default("http://" + address).String()
			values := make(map[string]*string)
			for _, name := range Selectors() {
				values[name] = cmd.Flag(name, "Only targets with this label "+name+".").PlaceHolder("VALUE").String()
			}
			return func(ctx context.Context, stdout, _ io.Writer) error {
				query := url.Values{}
				for name, v := range values {
					if *v != "" {
						query.Set(name, *v)
					}
				}
				return dump(ctx, *base, query, stdout)
			}
		},
	}
}

func dump(ctx context.Context, base string, query url.Values, out io.Writer) error {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return &daemon.UsageError{Err: fmt.Errorf("--url %q is not the address of an instance; write for example http://127.0.0.1:9871", base)}
	}
	u = u.JoinPath(Path)
	u.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("ask for records: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask for records: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxError)) // the status is what matters
		return fmt.Errorf("ask for records: %s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	if _, err := io.Copy(out, response.Body); err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	return nil
}
