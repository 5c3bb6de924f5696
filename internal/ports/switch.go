package ports

import (
	"errors"
	"strconv"
	"strings"

	"vigia/internal/ovsdb"
)

// ErrNoSwitch means that no Open vSwitch is configured.
var ErrNoSwitch = errors.New("no Open vSwitch is configured")

// Bridge is a bridge of Open vSwitch.
type Bridge struct {
	Name      string
	Userspace bool
	Ports     map[uint32]BridgePort // by OpenFlow port number
	Limits    map[uint8]uint64      // flows that a table may hold, of tables that have a limit
}

// BridgePort is an interface of a bridge.
type BridgePort struct {
	Device string
	Kind   string // system for what the kernel has; internal, vxlan, gre, patch, dpdkvhostuserclient, ...
}

// Bridges returns the bridges of Open vSwitch as its database has them now. They must
// not be altered.
func (inv *Inventory) Bridges() ([]Bridge, error) {
	if inv.replica == nil {
		return nil, ErrNoSwitch
	}
	return inv.bridges.of(inv.replica, bridges)
}

// localPort is OFPP_LOCAL, the port of the bridge's own device; ovsdb-server
// writes the 16 bits of OpenFlow 1.0.
const (
	localPort   = 0xfffffffe
	localPort16 = 0xfffe
)

func bridges(tables map[string]ovsdb.Table) []Bridge {
	var out []Bridge
	for _, row := range tables["Bridge"] {
		b := Bridge{Name: row.String("name"), Userspace: row.String("datapath_type") == "netdev", Ports: make(map[uint32]BridgePort)}
		for _, port := range row.UUIDs("ports") {
			for _, id := range tables["Port"][port].UUIDs("interfaces") {
				ifc := tables["Interface"][id]
				number, ok := ifc.Int("ofport")
				if !ok || number < 0 { // not there yet, or -1: it cannot be
					continue
				}
				if number == localPort16 {
					number = localPort
				}
				kind := ifc.String("type")
				if kind == "" {
					kind = "system"
				}
				b.Ports[uint32(number)] = BridgePort{Device: ifc.String("name"), Kind: kind}
			}
		}
		b.Limits = limits(row, tables["Flow_Table"])
		out = append(out, b)
	}
	return out
}

func limits(bridge ovsdb.Row, tables ovsdb.Table) map[uint8]uint64 {
	out := make(map[uint8]uint64)
	for number, id := range bridge.ByNumber("flow_tables") {
		if limit, ok := tables[id].Int("flow_limit"); ok && limit >= 0 && number >= 0 && number < 255 {
			out[uint8(number)] = uint64(limit)
		}
	}
	return out
}

// zonePrefix is what ovn-controller writes into the integration bridge's
// external_ids: ct-zone-PORT=ZONE.
const zonePrefix = "ct-zone-"

// Zones returns the connection tracking zone of each logical port that OVN says.
func (inv *Inventory) Zones() map[string]uint16 {
	if inv.replica == nil {
		return nil
	}
	tables, err := inv.replica.Tables()
	if err != nil {
		return nil
	}
	return zones(tables)
}

func zones(tables map[string]ovsdb.Table) map[string]uint16 {
	out := make(map[string]uint16)
	for _, bridge := range tables["Bridge"] {
		for key, value := range bridge.Map("external_ids") {
			port, ok := strings.CutPrefix(key, zonePrefix)
			if zone, err := strconv.ParseUint(value, 10, 16); ok && err == nil {
				out[port] = uint16(zone)
			}
		}
	}
	return out
}
