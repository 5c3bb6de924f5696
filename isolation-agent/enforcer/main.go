// Command vigia-enforcer limits tenants' ports in the kernel of this node.
package main

import (
	"os"

	"vigia/internal/exporterkit"
	"vigia/isolation-agent/enforcer/app"
)

func main() { os.Exit(exporterkit.Main(app.Program())) }
