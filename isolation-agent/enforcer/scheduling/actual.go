package scheduling

import "fmt"

// Device is a scheduler as the kernel has it.
type Device struct {
	Device    string        `json:"device"`
	Direction string        `json:"direction"` // from_tenant or to_tenant
	Classes   []ActualClass `json:"classes"`
}

// ActualClass is a class as the kernel has it.
type ActualClass struct {
	Class     string `json:"class"`
	Parent    string `json:"parent"`
	Contract  string `json:"contract,omitempty"`
	Guarantee uint64 `json:"guarantee_bytes_per_second"`
	Ceiling   uint64 `json:"ceiling_bytes_per_second"`
	Bytes     uint64 `json:"bytes"`
	Drops     uint32 `json:"drops"`
	Backlog   uint32 `json:"backlog_bytes"`
}

// Actual reads every scheduler from the kernel.
func (r *Reconciler) Actual() ([]Device, error) {
	desired := r.Desired()
	names := make(map[uint16]string, 2*len(desired.minors))
	for owner, minor := range desired.minors {
		names[minor], names[minor+leafOffset] = owner.String(), owner.String()
	}
	out := []Device{}
	for i := range desired.Links {
		uplink, err := r.conn.LinkIndex(desired.Links[i].Device)
		if err != nil {
			return nil, fmt.Errorf("read schedulers: %w", err)
		}
		for _, d := range []Device{{Device: desired.Links[i].Device, Direction: "from_tenant"}, {Device: IFBName(uplink), Direction: "to_tenant"}} {
			index, err := r.conn.LinkIndex(d.Device)
			if err != nil {
				return nil, fmt.Errorf("read schedulers: %w", err)
			}
			classes, err := r.conn.Classes(index, nil)
			if err != nil {
				return nil, fmt.Errorf("read schedulers: %w", err)
			}
			d.Classes = []ActualClass{}
			for _, c := range classes {
				if c.Handle.Major() != Major {
					continue
				}
				d.Classes = append(d.Classes, ActualClass{
					Class: c.Handle.String(), Parent: c.Parent.String(), Contract: names[c.Handle.Minor()], Guarantee: c.Rate, Ceiling: c.Ceil,
					Bytes: c.Stats.Bytes, Drops: c.Stats.Drops, Backlog: c.Stats.Backlog,
				})
			}
			out = append(out, d)
		}
	}
	return out, nil
}
