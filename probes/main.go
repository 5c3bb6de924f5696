// Command vigia-probe measures the paths between nodes and answers the probes of
// others.
package main

import (
	"os"

	"vigia/internal/daemon"
	"vigia/probes/app"
)

func main() { os.Exit(daemon.Main(app.Program())) }
