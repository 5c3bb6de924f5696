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

// arrivalsBatch reads entries of a per-CPU hash from a cursor on, which is nil at first,
// into keys and values, which has one for each key and possible processor; last tells
// that these were all. The library makes, and empties, as much memory at every call and
// words an error for the end, which a hundred times a second is most of what it costs.
func arrivalsBatch(m *ebpf.Map, from, next *uint32, keys []classifyClassKey, values []classifyArrival) (n int, last bool, err error) {
	cpus := ebpf.MustPossibleCPU()
	if len(keys) == 0 || len(values) != len(keys)*cpus || uintptr(m.KeySize()) != unsafe.Sizeof(keys[0]) || uintptr(m.ValueSize()) != unsafe.Sizeof(values[0]) {
		return 0, false, unix.EINVAL // the kernel would write beyond their end
	}
	attr := batchAttr{
		in: unsafe.Pointer(from), out: unsafe.Pointer(next), keys: unsafe.Pointer(&keys[0]), values: unsafe.Pointer(&values[0]),
		count: uint32(len(keys)), mapFD: uint32(m.FD()),
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_LOOKUP_BATCH, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(m)
	if errno != 0 && errno != unix.ENOENT { // which says that this was all
		return 0, false, errno
	}
	return int(attr.count), errno == unix.ENOENT, nil
}
