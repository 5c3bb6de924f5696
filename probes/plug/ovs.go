package plug

import (
	"context"
	"fmt"
	"time"

	"vigia/internal/ovsdb"
)

const (
	database = "Open_vSwitch"
	// mark is the key of external_ids by which our interfaces are known; its value is the prefix of their namespaces.
	mark = "vigia-plug"
	// infra is the tenant of what the operator measures with: external_ids say so, and go before all else.
	infra = "_infra"
	// settling is how long ovs-vswitchd may take to do what its database says.
	settling = 10 * time.Second
	polling  = 50 * time.Millisecond
)

// vswitch changes the ports of a node's Open vSwitch.
type vswitch struct {
	remote string
	tls    ovsdb.TLS
	owner  string // the value of mark
	settle time.Duration
}

func (v *vswitch) transact(ctx context.Context, operations ...ovsdb.Operation) ([]ovsdb.Result, error) {
	return ovsdb.Transact(ctx, v.remote, v.tls, database, operations...)
}

// where makes the condition of an operation.
func where(column, function string, value any) []any { return []any{[]any{column, function, value}} }

// ready returns nil where devices can be plugged into a bridge.
func (v *vswitch) ready(ctx context.Context, bridge string) error {
	done, err := v.transact(ctx, ovsdb.Operation{"op": "select", "table": "Bridge", "where": where("name", "==", bridge), "columns": []string{"name"}})
	if err != nil {
		return fmt.Errorf("look for bridge %s: %w; start Open vSwitch, or say where it is: --ovsdb", bridge, err)
	}
	if len(done[0].Rows) == 0 {
		return &noBridge{bridge}
	}
	return nil
}

// noBridge says that Open vSwitch has no bridge of a name.
type noBridge struct{ name string }

func (e *noBridge) Error() string {
	return fmt.Sprintf("there is no bridge %s in Open vSwitch; start Neutron's agent or ovn-controller, which makes it", e.name)
}

// ours returns the port's id that each of our interfaces has, by the interface's name.
func (v *vswitch) ours(ctx context.Context) (map[string]string, error) {
	marked := ovsdb.MapOf(map[string]string{mark: v.owner})
	done, err := v.transact(ctx, ovsdb.Operation{
		"op": "select", "table": "Interface", "where": where("external_ids", "includes", marked), "columns": []string{"name", "external_ids"},
	})
	if err != nil {
		return nil, fmt.Errorf("list interfaces of Open vSwitch: %w", err)
	}
	found := make(map[string]string)
	for _, row := range done[0].Rows {
		found[row.String("name")] = row.Map("external_ids")["iface-id"]
	}
	return found, nil
}

// add plugs a device into a bridge as Nova does. Whoever has an interface of that name already keeps it.
func (v *vswitch) add(ctx context.Context, e *Endpoint) error {
	identity := ovsdb.MapOf(map[string]string{
		"iface-id": e.Port, "iface-status": "active", "attached-mac": e.MAC, "vigia-tenant": infra, mark: v.owner,
	})
	named := func(name string) []any { return []any{"named-uuid", name} }
	device := e.device()
	done, err := v.transact(ctx,
		// Two interfaces of one name fail as a whole: names are an index.
		ovsdb.Operation{"op": "insert", "table": "Interface", "uuid-name": "interface", "row": map[string]any{"name": device, "external_ids": identity}},
		ovsdb.Operation{"op": "insert", "table": "Port", "uuid-name": "port", "row": map[string]any{"name": device, "interfaces": named("interface")}},
		ovsdb.Operation{"op": "mutate", "table": "Bridge", "where": where("name", "==", e.Bridge), "mutations": []any{[]any{"ports", "insert", named("port")}}},
		ovsdb.Operation{"op": "comment", "comment": "vigia-probe plug: " + e.Network},
	)
	if err != nil {
		return fmt.Errorf("plug %s into bridge %s: %w", device, e.Bridge, err)
	}
	if done[2].Count != 1 { // without a bridge that has them, the server forgets both rows
		return &noBridge{e.Bridge}
	}
	return nil
}

// remove takes an interface out of its bridge, if there is one of ours of that name, and waits until it is out.
func (v *vswitch) remove(ctx context.Context, device string) error {
	known, err := v.ours(ctx)
	if err != nil {
		return err
	}
	if _, there := known[device]; !there {
		return nil
	}
	done, err := v.transact(ctx, ovsdb.Operation{"op": "select", "table": "Port", "where": where("name", "==", device), "columns": []string{"_uuid"}})
	for i := 0; err == nil && i < len(done[0].Rows); i++ {
		port := []any{"uuid", string(done[0].Rows[i].UUID("_uuid"))}
		_, err = v.transact(ctx, ovsdb.Operation{
			"op": "mutate", "table": "Bridge", "where": where("ports", "includes", port), "mutations": []any{[]any{"ports", "delete", port}},
		})
	}
	if err != nil {
		return fmt.Errorf("take %s out of Open vSwitch: %w", device, err)
	}
	return v.wait(ctx)
}

// wait waits until ovs-vswitchd has done what its database says, as ovs-vsctl(8) does.
func (v *vswitch) wait(ctx context.Context) error {
	numbers := ovsdb.Operation{"op": "select", "table": database, "where": []any{}, "columns": []string{"next_cfg", "cur_cfg"}}
	done, err := v.transact(ctx, ovsdb.Operation{"op": "mutate", "table": database, "where": []any{}, "mutations": []any{[]any{"next_cfg", "+=", 1}}}, numbers)
	var wanted int64
	if err == nil && len(done[1].Rows) == 1 {
		wanted, _ = done[1].Rows[0].Int("next_cfg")
	}
	for end := time.Now().Add(v.settle); err == nil && time.Now().Before(end) && ctx.Err() == nil; time.Sleep(polling) {
		done, err = v.transact(ctx, numbers)
		if err == nil && len(done[0].Rows) == 1 {
			if current, _ := done[0].Rows[0].Int("cur_cfg"); current >= wanted {
				return nil
			}
		}
	}
	if err != nil {
		return fmt.Errorf("wait for Open vSwitch: %w", err)
	}
	return fmt.Errorf("ovs-vswitchd has not done what its database says within %v; start it", v.settle)
}
