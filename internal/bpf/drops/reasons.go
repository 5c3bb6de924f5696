package drops

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// Reasons are the running kernel's drop reasons. Their numbers change from one
// kernel to the next, so they are never written down.
type Reasons struct {
	names   map[uint32]string
	numbers map[string]uint32
}

// Name returns the kernel's name of a reason without SKB_DROP_REASON_, or
// REASON_n if it has none.
func (r Reasons) Name(number uint32) string {
	if name, ok := r.names[number]; ok {
		return name
	}
	return "REASON_" + strconv.FormatUint(uint64(number), 10)
}

// Number returns a reason's number, 0 if this kernel does not have it.
func (r Reasons) Number(name string) uint32 { return r.numbers[name] }

func (r Reasons) add(number uint32, name string) {
	r.names[number], r.numbers[name] = name, number
}

// How the kernel's enumerations name reasons and subsystems.
const (
	coreEnum        = "skb_drop_reason"
	corePrefix      = "SKB_DROP_REASON_"
	subsystemEnum   = "skb_drop_reason_subsys"
	subsystemPrefix = "SKB_DROP_REASON_SUBSYS_"
	subsystemShift  = 16
	ovsSubsystem    = "OPENVSWITCH"
	ovsEnum         = "ovs_drop_reason"
	ovsModule       = "openvswitch"
)

// tracefsFormats are where the tracepoint's format is, if tracefs is mounted.
var tracefsFormats = []string{
	"/sys/kernel/tracing/events/skb/kfree_skb/format",
	"/sys/kernel/debug/tracing/events/skb/kfree_skb/format",
}

// KernelReasons reads the reasons from the kernel's BTF, or from tracefs.
func KernelReasons() (Reasons, error) {
	r, err := fromBTF()
	if err == nil {
		return r, nil
	}
	for _, path := range tracefsFormats {
		format, readErr := os.ReadFile(path)
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		return parseFormat(string(format))
	}
	return Reasons{}, fmt.Errorf("learn the kernel's drop reasons: %w", err)
}

func newReasons() Reasons {
	return Reasons{names: make(map[uint32]string), numbers: make(map[string]uint32)}
}

func fromBTF() (Reasons, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return Reasons{}, err
	}
	var core *btf.Enum
	if err := kernel.TypeByName(coreEnum, &core); err != nil {
		return Reasons{}, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	r := newReasons()
	for _, v := range core.Values {
		r.add(uint32(v.Value), strings.TrimPrefix(v.Name, corePrefix))
	}
	r.addOpenVSwitch(kernel)
	return r, nil
}

// addOpenVSwitch adds the reasons of the kernel datapath, if its module is there.
func (r Reasons) addOpenVSwitch(kernel *btf.Spec) {
	var subsystems, ovs *btf.Enum
	if kernel.TypeByName(subsystemEnum, &subsystems) != nil {
		return
	}
	if kernel.TypeByName(ovsEnum, &ovs) != nil { // not built in: look into the module
		module, err := btf.LoadKernelModuleSpec(ovsModule)
		if err != nil || module.TypeByName(ovsEnum, &ovs) != nil {
			return
		}
	}
	for _, s := range subsystems.Values {
		if s.Name != subsystemPrefix+ovsSubsystem {
			continue
		}
		for _, v := range ovs.Values {
			// Kernels differ in whether the values hold the subsystem.
			r.add(uint32(s.Value)<<subsystemShift|uint32(v.Value)&(1<<subsystemShift-1), v.Name)
		}
	}
}

// symbolRE matches { 0x5, "SOCKET_FILTER" } of a tracepoint's print format.
var symbolRE = regexp.MustCompile(`\{ *(0x[0-9a-fA-F]+|[0-9]+), *"([A-Z0-9_]+)" *\}`)

func parseFormat(format string) (Reasons, error) {
	r := newReasons()
	for _, m := range symbolRE.FindAllStringSubmatch(format, -1) {
		n, err := strconv.ParseUint(m[1], 0, 32)
		if err != nil {
			return Reasons{}, fmt.Errorf("tracepoint format: reason %q: %w", m[1], err)
		}
		r.add(uint32(n), m[2])
	}
	if len(r.names) == 0 {
		return Reasons{}, ErrUnsupported
	}
	return r, nil
}
