// Package app puts vigia-probe together: the daemon and its commands.
package app

import (
	"context"

	"vigia/internal/exporterkit"
	"vigia/probes/flight"
	"vigia/probes/once"
	"vigia/probes/plan"
	"vigia/probes/settings"
)

// address is where metrics are served.
const address = "127.0.0.1:9871"

// Program returns vigia-probe.
func Program() exporterkit.Program {
	return exporterkit.Program{
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
		Start: func(_ context.Context, env exporterkit.Env) (exporterkit.Service, error) {
			return newService(env)
		},
		Commands: []exporterkit.Command{once.Command(), flight.Command(address), plan.Command(seriesOfATarget)},
	}
}
