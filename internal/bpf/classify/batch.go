package classify

import (
	"runtime"
	"structs"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// batchAttr is union bpf_attr of the batch commands (bpf(2)), where pointers have 64 bits.
type batchAttr struct {
	_            structs.HostLayout
	in, out      unsafe.Pointer // places where a cursor is
	keys, values unsafe.Pointer
	count        uint32
	mapFD        uint32
	elemFlags    uint64
	flags        uint64
}

const _ = uint(unsafe.Sizeof(uintptr(0)) - 8) // it does not compile elsewhere

// readBatch reads entries of a hash from a cursor on, which is nil at first, into keys and
// values, which has one for each key, or one for each key and possible processor if the map
// has; with BPF_MAP_LOOKUP_AND_DELETE_BATCH it removes them, too. last tells that these were
// all. The library makes, and empties, as much memory at every call and words an error for
// the end, which a hundred times a second is most of what it costs.
func readBatch[K, V any](cmd uintptr, m *ebpf.Map, from, next *uint32, keys []K, values []V) (n int, last bool, err error) {
	each := 1
	if m.Type() == ebpf.PerCPUHash {
		each = ebpf.MustPossibleCPU()
	}
	if len(keys) == 0 || len(values) != len(keys)*each || uintptr(m.KeySize()) != unsafe.Sizeof(keys[0]) || uintptr(m.ValueSize()) != unsafe.Sizeof(values[0]) {
		return 0, false, unix.EINVAL // the kernel would write beyond their end
	}
	attr := batchAttr{
		in: unsafe.Pointer(from), out: unsafe.Pointer(next), keys: unsafe.Pointer(&keys[0]), values: unsafe.Pointer(&values[0]),
		count: uint32(len(keys)), mapFD: uint32(m.FD()),
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, cmd, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(m)
	if errno != 0 && errno != unix.ENOENT { // which says that this was all
		return 0, false, errno
	}
	return int(attr.count), errno == unix.ENOENT, nil
}
