// Package version holds what the build stamped into the binary.
package version

import (
	"fmt"
	"runtime"
)

// Set at build time by -ldflags "-X vigia/internal/version.Version=...".
var (
	Version  = "dev"
	Revision = "unknown"
)

// String describes the program called name on one line.
func String(name string) string {
	return fmt.Sprintf("%s %s (revision %s, %s, %s/%s)", name, Version, Revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
