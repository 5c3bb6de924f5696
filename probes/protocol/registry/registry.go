// Package registry is the table of the protocols that probes can be of.
package registry

import (
	"vigia/probes/protocol"
	"vigia/probes/protocol/connect"
	"vigia/probes/protocol/echo"
	"vigia/probes/protocol/get"
	"vigia/probes/protocol/lookup"
	"vigia/probes/protocol/stamp"
)

// All returns the protocols, in the order in which people are told of them.
func All() []protocol.Protocol {
	return []protocol.Protocol{
		stamp.Protocol{},
		echo.Protocol{},
		connect.Protocol{},
		get.Protocol{},
		lookup.Protocol{},
	}
}
