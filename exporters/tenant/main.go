// Command vigia-exporter exports what every tenant's ports carry and drop.
package main

import (
	"os"

	"vigia/exporters/tenant/app"
	"vigia/internal/exporterkit"
)

func main() { os.Exit(exporterkit.Main(app.Program())) }
