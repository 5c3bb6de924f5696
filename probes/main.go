// Command vigia-probe measures the paths between nodes and answers the probes of
// others.
package main

import (
	"os"

	"vigia/internal/exporterkit"
	"vigia/probes/app"
)

func main() { os.Exit(exporterkit.Main(app.Program())) }
