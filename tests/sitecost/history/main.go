// Command history gives a Prometheus a past. It reads what a Prometheus has stored in a few minutes of scrapes and rule
// evaluations, and writes another data directory in which the same series reach back for hours or weeks: blocks as
// compaction leaves them, and the newest hours in the head and its write-ahead log.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	kitlog "github.com/go-kit/log"
	"github.com/prometheus/prometheus/tsdb"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		slog.Error("cannot write the history", "err", err)
		os.Exit(1)
	}
}

// options say what the past is to be.
type options struct {
	from, to string
	age      time.Duration // how far it reaches back
	dense    time.Duration // as far back every sample is there; beyond, one in thin
	thin     time.Duration
	life     time.Duration // of a tenant's port
}

func run(args []string) error {
	var o options
	flags := flag.NewFlagSet("history", flag.ContinueOnError)
	flags.StringVar(&o.from, "from", "", "data directory to learn from; no Prometheus may run on it")
	flags.StringVar(&o.to, "to", "", "data directory to write; must not exist")
	flags.DurationVar(&o.age, "age", time.Hour, "how far back")
	flags.DurationVar(&o.dense, "dense", 24*time.Hour, "how far back every sample is there")
	flags.DurationVar(&o.thin, "thin", 5*time.Minute, "time between samples before that")
	flags.DurationVar(&o.life, "port-life", 24*time.Hour, "how long a tenant's port stays; 0: for ever")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := os.Stat(o.to); err == nil {
		return fmt.Errorf("--to %s: exists; name a new directory", o.to)
	}
	learned, err := learn(o.from)
	if err != nil {
		return fmt.Errorf("learn from %s: %w", o.from, err)
	}
	if len(learned) == 0 {
		return fmt.Errorf("--from %s: has no series", o.from)
	}
	if err := os.MkdirAll(o.to, 0o755); err != nil {
		return err
	}
	ctx := context.Background()
	now := time.Now().UnixMilli()
	head := headStart(now, o.age.Milliseconds())
	blocks, err := writeBlocks(ctx, o, learned, now-o.age.Milliseconds(), head, now)
	if err != nil {
		return fmt.Errorf("write blocks: %w", err)
	}
	samples, err := writeHead(o, learned, max(head, now-o.age.Milliseconds()))
	if err != nil {
		return fmt.Errorf("write the head: %w", err)
	}
	fmt.Printf(`{"series": %d, "blocks": %d, "head_samples": %d}`+"\n", len(learned), blocks, samples)
	return nil
}

const (
	hour       = 60 * 60 * 1000 // milliseconds
	blockRange = 2 * hour       // as Prometheus cuts them from its head
)

// compacted are the sizes to which blocks grow, for a month of retention, the largest first.
var compacted = []int64{54 * hour, 18 * hour, 6 * hour, blockRange}

// headStart returns from when on samples are in the head: between one and three hours, as in a Prometheus that runs.
func headStart(now, age int64) int64 {
	if age <= blockRange {
		return now - age
	}
	start := now / blockRange * blockRange
	if now-start < blockRange/2 {
		start -= blockRange
	}
	return start
}

// writeBlocks writes what lies before the head.
func writeBlocks(ctx context.Context, o options, learned []*series, begin, end, now int64) (blocks int, err error) {
	dense := now - o.dense.Milliseconds()
	for start := begin; start < end; {
		// As compaction leaves them, so that the Prometheus has none to do: the largest that is over.
		size := int64(blockRange)
		for _, s := range compacted {
			if (start/s+1)*s <= end {
				size = s
				break
			}
		}
		stop := min((start/size+1)*size, end)
		if err := writeBlock(ctx, o, learned, start, stop, size, dense); err != nil {
			return blocks, err
		}
		blocks++
		start = stop
	}
	return blocks, nil
}

// batch is how many series share an appender.
const batch = 500

func writeBlock(ctx context.Context, o options, learned []*series, start, stop, size, dense int64) (err error) {
	// A writer takes no sample older than half its size before the newest: so it is told twice the size.
	w, err := tsdb.NewBlockWriter(kitlog.NewNopLogger(), o.to, 2*size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for len(learned) > 0 {
		app := w.Appender(ctx)
		for _, s := range learned[:min(batch, len(learned))] {
			if _, err := s.write(app, span{start, stop, dense, o.thin.Milliseconds()}, o.life); err != nil {
				return errors.Join(err, app.Rollback())
			}
		}
		if err := app.Commit(); err != nil {
			return err
		}
		learned = learned[min(batch, len(learned)):]
	}
	_, err = w.Flush(ctx)
	return err
}

// slice is how much time the head gets at once, of all series: within half a block, for its head takes nothing older.
const slice = 10 * 60 * 1000

// near is how close to the present the head is filled.
const near = 5 * 1000

func writeHead(o options, learned []*series, start int64) (samples int, err error) {
	opts := tsdb.DefaultOptions()
	opts.RetentionDuration = int64(365 * 24 * time.Hour / time.Millisecond)
	opts.EnableNativeHistograms = true
	db, err := tsdb.Open(o.to, kitlog.NewNopLogger(), nil, opts, nil)
	if err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, db.Close())
		_ = os.Remove(filepath.Join(o.to, "lock"))
	}()
	db.DisableCompactions()
	for now := time.Now().UnixMilli(); now-start > near; now = time.Now().UnixMilli() {
		stop := min(start+slice, now)
		for rest := learned; len(rest) > 0; rest = rest[min(batch, len(rest)):] {
			app := db.Appender(context.Background())
			for _, s := range rest[:min(batch, len(rest))] {
				n, err := s.write(app, span{start, stop, start, 0}, o.life)
				if err != nil {
					return samples, errors.Join(err, app.Rollback())
				}
				samples += n
			}
			if err := app.Commit(); err != nil {
				return samples, err
			}
		}
		start = stop
	}
	return samples, nil
}
