// Package timestamping has sockets whose packets the kernel stamps on both
// ways (SO_TIMESTAMPING), with batched system calls and nothing allocated per
// packet.
package timestamping
