package config

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watched is what happens in a folder when a file of it has been written, replaced or removed, or the folder itself goes. A
// file that has just been made is told of once it has been written.
const watched = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// Watch has the kernel tell when a file may have changed (inotify(7)). It costs nothing until then.
type Watch struct {
	file    *os.File // of inotify; nil where the kernel has none left
	changes chan struct{}

	mu     sync.Mutex
	path   string      // what is watched, "" for nothing
	folder os.FileInfo // of it
	id     int         // of the folder's watch
}

// NewWatch returns a watch of nothing yet.
func NewWatch() *Watch {
	w := &Watch{changes: make(chan struct{}, 1)}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil { // fs.inotify.max_user_instances
		return w
	}
	w.file = os.NewFile(uintptr(fd), "inotify")
	go w.read()
	return w
}

// Close ends the watch.
func (w *Watch) Close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// Changes has a value when the file may have changed since the last one.
func (w *Watch) Changes() <-chan struct{} { return w.changes }

// On watches the file at path from now on, in place of any other, and says whether the kernel tells of its changes. It
// cannot where links lead to the file, as in volumes of Kubernetes, and where the folder does not exist; and it does not
// where another machine changes the file. An empty path is no file. On has to be called again now and then: what is
// mounted over the folder, or takes its place, is watched from then on.
func (w *Watch) On(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil || path == "" || !direct(path) {
		w.forget()
		return false
	}
	folder, err := os.Stat(filepath.Dir(path))
	if err == nil && path == w.path && os.SameFile(folder, w.folder) {
		return true
	}
	w.forget()
	if err != nil {
		return false
	}
	err = w.control(func(fd int) (err error) {
		w.id, err = unix.InotifyAddWatch(fd, filepath.Dir(path), watched)
		return err
	})
	if err != nil {
		return false
	}
	w.path, w.folder = path, folder
	return true
}

// direct tells whether no link leads to a path. The file itself need not be there.
func direct(path string) bool {
	folder := filepath.Dir(path)
	if found, err := filepath.EvalSymlinks(folder); err != nil || found != folder {
		return false
	}
	info, err := os.Lstat(path)
	return err != nil || info.Mode()&os.ModeSymlink == 0
}

// forget watches nothing; mu is held.
func (w *Watch) forget() {
	if w.path == "" {
		return
	}
	w.path = ""
	_ = w.control(func(fd int) error { // it fails where the folder is gone, and the watch with it
		_, err := unix.InotifyRmWatch(fd, uint32(w.id))
		return err
	})
}

// control calls with the descriptor, which stays one that does not block.
func (w *Watch) control(call func(fd int) error) error {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = call(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// read takes in what the kernel tells until the watch is closed.
func (w *Watch) read() {
	buffer := make([]byte, 16<<10)
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			return
		}
		if w.concerned(buffer[:n]) {
			select {
			case w.changes <- struct{}{}:
			default:
			}
		}
	}
}

// concerned reads struct inotify_event, one after the other, and tells whether one is about the file.
func (w *Watch) concerned(events []byte) (yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	const head = int(unsafe.Sizeof(unix.InotifyEvent{}))
	for len(events) >= head {
		id, mask := int(int32(binary.NativeEndian.Uint32(events))), binary.NativeEndian.Uint32(events[4:])
		end := min(len(events), head+int(binary.NativeEndian.Uint32(events[12:])))
		name := unix.ByteSliceToString(events[head:end])
		events = events[end:]
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			yes = true
		case w.path == "" || id != w.id:
		case mask&(unix.IN_IGNORED|unix.IN_MOVE_SELF) != 0: // the folder is gone, or has another name
			w.forget()
			yes = true
		case name == filepath.Base(w.path):
			yes = true
		}
	}
	return yes
}
