/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef VIGIA_ADDRESS_H
#define VIGIA_ADDRESS_H

/* fold makes 32 bits of an IPv6 address, by exclusive or. */
static __always_inline __u32 fold(const struct in6_addr *a)
{
	return a->s6_addr32[0] ^ a->s6_addr32[1] ^ a->s6_addr32[2] ^ a->s6_addr32[3];
}

#endif
