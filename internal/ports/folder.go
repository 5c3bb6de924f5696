package ports

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// folder is a source of files that each say whose some devices are, which the platform
// writes and removes as machines come and go.
type folder struct {
	dir      string
	key      string // of the configuration
	usual    string // what is written there as a rule
	platform string
	what     string // a file is about
	most     int    // files
	parse    func(io.Reader) (map[string]identity, error)
	wanted   func(name string) bool
	// exclusive tells that a device that two files name is nobody's: a bridge.
	exclusive bool
	// settles is how long a file may be half written.
	settles time.Duration

	files map[string]folderFile
}

type folderFile struct {
	stamp   time.Time
	size    int64
	devices map[string]identity
}

// read returns what the files say by device, and the first problem. Files that
// did not change are not read again; one that turns bad keeps what it said.
func (l *folder) read() (map[string]identity, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s %s does not exist; write %s, or remove it without %s", l.key, l.dir, l.usual, l.platform)
		}
		return l.devices(), err
	}
	files := make(map[string]folderFile, len(entries))
	var failed error
	for _, e := range entries {
		if !e.Type().IsRegular() || !l.wanted(e.Name()) {
			continue
		}
		if len(files) == l.most {
			failed = fmt.Errorf("%s has more than %d %ss; the rest is not read", l.dir, l.most, l.what)
			break
		}
		f, err := l.file(e)
		if err != nil && failed == nil && !errors.Is(err, fs.ErrNotExist) { // it may go while we look
			failed = fmt.Errorf("%s %s %s: %w", l.platform, l.what, e.Name(), err)
		}
		files[e.Name()] = f
	}
	l.files = files
	return l.devices(), failed
}

func (l *folder) file(e os.DirEntry) (folderFile, error) {
	f := l.files[e.Name()]
	info, err := e.Info()
	if err != nil {
		return folderFile{}, err
	}
	if f.devices != nil && info.ModTime().Equal(f.stamp) && info.Size() == f.size {
		return f, nil
	}
	r, err := os.Open(filepath.Join(l.dir, e.Name()))
	if err != nil {
		return f, err
	}
	defer r.Close()
	devices, err := l.parse(r)
	if err != nil && l.settles > 0 && time.Since(info.ModTime()) < l.settles {
		return f, nil // it is read again
	}
	if err != nil {
		return f, err
	}
	return folderFile{stamp: info.ModTime(), size: info.Size(), devices: devices}, nil
}

func (l *folder) devices() map[string]identity {
	out := make(map[string]identity)
	var shared []string
	for _, f := range l.files {
		for device, id := range f.devices {
			if _, taken := out[device]; taken {
				shared = append(shared, device)
			}
			out[device] = id
		}
	}
	for _, device := range shared {
		if l.exclusive {
			delete(out, device)
		}
	}
	return out
}
