// Package app puts vigia-probe together: the daemon and its commands.
package app

import (
	"context"
	"encoding/json"
	"io"

	"github.com/alecthomas/kingpin/v2"

	"vigia/internal/daemon"
	"vigia/probes/export"
	"vigia/probes/once"
	"vigia/probes/pairs"
	"vigia/probes/plan"
	"vigia/probes/plug"
	"vigia/probes/records"
	"vigia/probes/settings"
)

// address is where metrics are served.
const address = "127.0.0.1:9871"

// settingsCommand prints the keys of the configuration file.
func settingsCommand() daemon.Command {
	return daemon.Command{
		Name: "settings",
		Help: "Print every key of the configuration file, as Markdown or JSON.",
		Register: func(cmd *kingpin.CmdClause) func(context.Context, io.Writer, io.Writer) error {
			asJSON := cmd.Flag("json", "Print one JSON document instead.").Bool()
			return func(_ context.Context, stdout, _ io.Writer) error {
				if *asJSON {
					return json.NewEncoder(stdout).Encode(settings.Keys())
				}
				return settings.WriteKeys(stdout)
			}
		},
	}
}

// Program returns vigia-probe.
func Program() daemon.Program {
	return daemon.Program{
		Name:           "vigia-probe",
		Part:           "probe",
		Description:    "Measures delay, delay variation and loss between nodes, all the time, with kernel time stamps at both ends.",
		DefaultAddress: address,
		Check: func(path string) (string, error) {
			s, err := settings.Load(path)
			if err != nil {
				return "", err
			}
			return s.Summary(), nil
		},
		Start: func(_ context.Context, env daemon.Env) (daemon.Service, error) {
			return newService(env)
		},
		Commands: []daemon.Command{once.Command(), records.Command(address), pairs.Command(address), plan.Command(plan.Series{Target: export.SeriesPerTarget, AtMost: export.SeriesPerTargetAtMost, Node: export.SeriesPerNode}), plug.Command(), settingsCommand()},
	}
}
