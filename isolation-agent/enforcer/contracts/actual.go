package contracts

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
func (k *Keeper) Actual() ([]Device, error) {
	links, list := k.Desired()
	names := make(map[uint16]string, 2*len(list))
	for name, minor := range Minors(list) {
		names[minor], names[minor+leafOffset] = name, name
	}
	out := []Device{}
	for i := range links {
		uplink, err := k.conn.LinkIndex(links[i].Device)
		if err != nil {
			return nil, fmt.Errorf("read schedulers: %w", err)
		}
		for _, d := range []Device{{Device: links[i].Device, Direction: "from_tenant"}, {Device: IFBName(uplink), Direction: "to_tenant"}} {
			index, err := k.conn.LinkIndex(d.Device)
			if err != nil {
				return nil, fmt.Errorf("read schedulers: %w", err)
			}
			classes, err := k.conn.Classes(index, nil)
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
