// Command vigia-enforcer limits tenants' ports in the kernel of this node.
package main

import (
	"os"
	"runtime"

	"vigia/internal/daemon"
	"vigia/isolation-agent/enforcer/app"
)

func main() {
	if runtime.GOMAXPROCS(0) == 1 {
		runtime.GOMAXPROCS(2) // the fast loop's thread keeps one to itself while it sleeps
	}
	os.Exit(daemon.Main(app.Program()))
}
