package ports

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// Bounds on what libvirt's files may be.
const (
	maxDomains   = 4096
	maxDomainXML = 1 << 20 // bytes
)

// domain is what matters of a libvirt domain, in the form of a definition
// (domain) and inside a status file (domstatus/domain).
type domain struct {
	UUID string `xml:"uuid"`
	Nova struct {
		Project struct {
			UUID string `xml:"uuid,attr"`
		} `xml:"owner>project"`
		Ports []struct {
			UUID string `xml:"uuid,attr"`
		} `xml:"ports>port"`
	} `xml:"metadata>instance"`
	OpenNebula struct {
		GID string `xml:"gid"`
	} `xml:"metadata>vm"`
	Interfaces []struct {
		Target struct {
			Device string `xml:"dev,attr"`
		} `xml:"target"`
		VirtualPort struct {
			Parameters struct {
				InterfaceID string `xml:"interfaceid,attr"`
			} `xml:"parameters"`
		} `xml:"virtualport"`
	} `xml:"devices>interface"`
}

// parseDomain reads a domain's XML and returns what it says by device.
func parseDomain(r io.Reader) (map[string]identity, error) {
	var d struct {
		XMLName xml.Name
		domain
		Status domain `xml:"domain"`
	}
	if err := xml.NewDecoder(io.LimitReader(r, maxDomainXML)).Decode(&d); err != nil {
		return nil, err
	}
	dom := d.domain
	switch d.XMLName.Local {
	case "domain":
	case "domstatus":
		dom = d.Status
	default:
		return nil, fmt.Errorf("the root is <%s>, not <domain> or <domstatus>", d.XMLName.Local)
	}
	out := make(map[string]identity)
	for _, i := range dom.Interfaces {
		if i.Target.Device == "" {
			continue // a VF has none: it is known by its PCI address
		}
		id := identity{Port: i.VirtualPort.Parameters.InterfaceID, Workload: dom.UUID, Source: "libvirt"}
		id.Tenant = dom.Nova.Project.UUID
		if id.Tenant == "" {
			id.Tenant = dom.OpenNebula.GID
		}
		for _, p := range dom.Nova.Ports {
			if id.Port == "" && isTapOf(i.Target.Device, p.UUID) {
				id.Port = p.UUID
			}
		}
		out[i.Target.Device] = id
	}
	return out, nil
}

// isTapOf tells whether Nova named the device for the Neutron port. The name holds
// 11 characters of the port's id, too few to be unique in a cloud but enough
// within one domain.
func isTapOf(device, port string) bool {
	return len(port) >= 11 && device == "tap"+port[:11]
}

// libvirtDomains reads the status files that libvirt keeps of running domains, or the
// definitions of all, whichever folder it is given. Nothing is asked of libvirtd.
func libvirtDomains(dir string) folder {
	return folder{
		dir: dir, key: "libvirt_dir", usual: "/run/libvirt/qemu", platform: "libvirt", what: "domain",
		most: maxDomains, parse: parseDomain,
		wanted: func(name string) bool { return strings.HasSuffix(name, ".xml") },
	}
}
