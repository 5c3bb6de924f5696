/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The protocols that packets are counted by, and what all programs say of them. */
#ifndef VIGIA_PROTOCOL_H
#define VIGIA_PROTOCOL_H

enum protocol { TCP, UDP, ICMP, ARP_ND, FRAGMENT, OTHER, PROTOCOLS };

/* icmpv6 returns the protocol of an ICMPv6 type: 133 to 137 are neighbour
 * discovery (RFC 4861). */
static __always_inline __u32 icmpv6(__u8 type)
{
	return type >= 133 && type <= 137 ? ARP_ND : ICMP;
}

#endif
