package ingress

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"vigia/internal/ovsdb"
	"vigia/isolation-agent/enforcer/limits"
)

const (
	schema = "Open_vSwitch"
	table  = "Interface"
	// key is what says in an interface's external_ids whose policing it has.
	key = "vigia-limit"
	// maxRecord bounds what is read of it, in bytes: others may write there.
	maxRecord = 1024

	rateColumn, burstColumn, idsColumn = "ingress_policing_rate", "ingress_policing_burst", "external_ids"
)

// kinds are the types of interfaces without a device in the kernel.
func kinds() []string { return []string{"dpdkvhostuser", "dpdkvhostuserclient"} }

// settings are what the switch polices by, in kbit/s and kbit. Rate 0 is no policing.
type settings struct {
	Rate  int64 `json:"rate"`
	Burst int64 `json:"burst"`
}

// record says in the database what this program has set, and what was there before.
type record struct {
	ID             uuid.UUID       `json:"id"`
	Protocol       limits.Protocol `json:"protocol"`
	BytesPerSecond uint64          `json:"bytes_per_second"`
	BurstBytes     uint64          `json:"burst_bytes"`
	Since          int64           `json:"since_ms"` // Unix time
	Until          int64           `json:"until_ms"`
	Ours           settings        `json:"set"`
	Before         settings        `json:"before"`
}

// policing is what an interface has.
type policing struct {
	settings settings
	record   *record   // nil without one
	row      ovsdb.Row // as it was read
}

// inForce tells whether the switch does what the record says. If not, somebody has set something else.
func (p *policing) inForce() bool { return p.record != nil && p.settings == p.record.Ours }

// database is Open vSwitch's.
type database struct{ remote string }

func selecting(column, value string) ovsdb.Operation {
	return ovsdb.Operation{
		"op": "select", "table": table, "where": [][3]string{{column, "==", value}}, "columns": []string{"name", rateColumn, burstColumn, idsColumn},
	}
}

// all returns what every interface without a device has, by name.
func (d database) all(ctx context.Context) (map[string]policing, error) {
	var ops []ovsdb.Operation
	for _, kind := range kinds() {
		ops = append(ops, selecting("type", kind))
	}
	results, err := ovsdb.Transact(ctx, d.remote, ovsdb.TLS{}, schema, ops...)
	if err != nil {
		return nil, fmt.Errorf("read policing of interfaces: %w", err)
	}
	out := make(map[string]policing)
	for _, r := range results {
		for _, row := range r.Rows {
			out[row.String("name")] = policingOf(row)
		}
	}
	return out, nil
}

// one returns what an interface has: ErrNotAttached if there is none of that name.
func (d database) one(ctx context.Context, device string) (*policing, error) {
	results, err := ovsdb.Transact(ctx, d.remote, ovsdb.TLS{}, schema, selecting("name", device))
	if err != nil {
		return nil, fmt.Errorf("read policing of interface %s: %w", device, err)
	}
	if len(results[0].Rows) != 1 {
		return nil, fmt.Errorf("interface %s: %w", device, limits.ErrNotAttached)
	}
	p := policingOf(results[0].Rows[0])
	return &p, nil
}

// write changes an interface, unless it is not as it was before any more; it tells which.
func (d database) write(ctx context.Context, device string, before, after *policing) (bool, error) {
	ids := before.row.Map(idsColumn)
	if ids == nil {
		ids = make(map[string]string, 1)
	}
	delete(ids, key)
	if after.record != nil {
		text, err := json.Marshal(after.record)
		if err != nil {
			return false, fmt.Errorf("write down a limit: %w", err)
		}
		ids[key] = string(text)
	}
	where := [][3]any{{"name", "==", device}}
	for _, column := range []string{rateColumn, burstColumn, idsColumn} {
		where = append(where, [3]any{column, "==", before.row[column]})
	}
	results, err := ovsdb.Transact(ctx, d.remote, ovsdb.TLS{}, schema, ovsdb.Operation{
		"op": "update", "table": table, "where": where,
		"row": map[string]any{rateColumn: after.settings.Rate, burstColumn: after.settings.Burst, idsColumn: ovsdb.MapOf(ids)},
	})
	if err != nil {
		return false, err
	}
	return results[0].Count == 1, nil
}

// policingOf reads a row. What is no record of this program's is none.
func policingOf(row ovsdb.Row) policing {
	p := policing{row: row}
	p.settings.Rate, _ = row.Int(rateColumn)
	p.settings.Burst, _ = row.Int(burstColumn)
	text := row.Map(idsColumn)[key]
	if text == "" || len(text) > maxRecord {
		return p
	}
	var r record
	if json.Unmarshal([]byte(text), &r) == nil && r.ID != uuid.Nil && (r.Protocol == limits.UDP || r.Protocol == limits.Everything) {
		p.record = &r
	}
	return p
}
