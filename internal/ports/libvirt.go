package ports

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
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

// libvirtSource reads the status files that libvirt keeps of running domains, or
// the definitions of all, whichever folder it is given. Nothing is asked of libvirtd.
type libvirtSource struct {
	dir   string
	files map[string]libvirtFile
}

type libvirtFile struct {
	stamp   time.Time
	size    int64
	devices map[string]identity
}

// read returns what the files say by device, and the first problem. Files that
// did not change are not read again; one that turns bad keeps what it said.
func (l *libvirtSource) read() (map[string]identity, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("libvirt_dir %s does not exist; write /run/libvirt/qemu, or remove it without libvirt", l.dir)
		}
		return l.devices(), err
	}
	files := make(map[string]libvirtFile, len(entries))
	var failed error
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".xml") {
			continue
		}
		if len(files) == maxDomains {
			failed = fmt.Errorf("%s has more than %d domains; the rest is not read", l.dir, maxDomains)
			break
		}
		f, err := l.file(e)
		if err != nil && failed == nil && !errors.Is(err, fs.ErrNotExist) { // it may go while we look
			failed = fmt.Errorf("libvirt domain %s: %w", e.Name(), err)
		}
		files[e.Name()] = f
	}
	l.files = files
	return l.devices(), failed
}

func (l *libvirtSource) file(e os.DirEntry) (libvirtFile, error) {
	f := l.files[e.Name()]
	info, err := e.Info()
	if err != nil {
		return libvirtFile{}, err
	}
	if f.devices != nil && info.ModTime().Equal(f.stamp) && info.Size() == f.size {
		return f, nil
	}
	r, err := os.Open(filepath.Join(l.dir, e.Name()))
	if err != nil {
		return f, err
	}
	defer r.Close()
	devices, err := parseDomain(r)
	if err != nil {
		return f, err
	}
	return libvirtFile{stamp: info.ModTime(), size: info.Size(), devices: devices}, nil
}

func (l *libvirtSource) devices() map[string]identity {
	out := make(map[string]identity)
	for _, f := range l.files {
		for device, id := range f.devices {
			out[device] = id
		}
	}
	return out
}
