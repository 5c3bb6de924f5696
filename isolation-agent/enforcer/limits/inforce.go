package limits

import "vigia/internal/ports"

// InForce is a port with the limit in force on it.
type InForce struct {
	Port  ports.Port
	Limit State
}

// InForce reads from the kernel the limits in force on the node, and asks of no port that
// is known to have none.
func (l *Limits) InForce() ([]InForce, error) {
	list, _ := l.config.Inventory.Ports()
	var out []InForce
	for _, port := range l.mayHaveOne(list) {
		got, err := l.current(port)
		if err != nil {
			return nil, err
		}
		if got.there {
			out = append(out, InForce{*port, got.State})
		}
	}
	return out, nil
}

// mayHaveOne returns the ports that may have a limit.
func (l *Limits) mayHaveOne(list []ports.Port) (out []*ports.Port) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		if l.mayHave(&list[i]) {
			out = append(out, &list[i])
		}
	}
	return out
}

// mayHave tells whether a port has a limit as far as was last seen, or was not looked at for
// limits of an earlier process yet.
func (l *Limits) mayHave(port *ports.Port) bool {
	_, known := l.active[port.ID]
	index, looked := l.looked[port.ID]
	return known || !looked || index != port.Index
}
