// Package pathmtu finds the largest IP packet that a path carries whole, by
// Packetization Layer Path MTU Discovery for datagrams (RFC 8899): probes of
// different sizes that nothing may fragment.
//
// A size counts as too large only when several of its probes are missing and
// a small control probe came through after each of them. What
// the kernel and ICMP messages say chooses the next size to try and decides
// nothing, so neither a black hole nor a forged message misleads the search.
package pathmtu
