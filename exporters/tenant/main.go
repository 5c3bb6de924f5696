// Command vigia-exporter exports what every tenant's ports carry and drop.
package main

import (
	"os"
	"runtime/debug"

	"vigia/exporters/tenant/app"
	"vigia/internal/daemon"
)

// gcPercent keeps the memory of a node with thousands of ports small. A scrape
// leaves little garbage behind, so that collecting it twice as often costs nothing
// that could be measured. The variable GOGC goes before it.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(daemon.Main(app.Program()))
}
