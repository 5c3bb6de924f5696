/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the programs of a vport need to know of a packet, and how they find it. */
#ifndef VIGIA_VPORT_PACKET_H
#define VIGIA_VPORT_PACKET_H

#include "../include/address.h"
#include "../include/protocol.h"
#include "maps.h"
#include "wire.h"

/* What the parser learned about a packet. A host is an IPv4 address, or 64 bits of hash of
 * an IPv6 one, by the seed. */
struct packet {
	struct seed seed; /* set before; 0 = hosts are of no use */
	__u64 from_host;
	__u64 to_host;
	__u32 protocol; /* enum protocol */
	__u32 is_udp; /* UDP, non-first fragments included */
	__u32 is_fragment; /* not the first fragment: no ports */
	__u32 destination; /* IPv4 address, or the IPv6 address folded to 32 bits */
	__u16 destination_port; /* host order */
	__u16 source_port; /* host order */
	__u32 is_start; /* TCP SYN without ACK */
	__u32 is_cut; /* ends within its VLAN tag, or right behind it */
};

/* ethertype reads a MAC header's type in one go: the kernel's struct is packed. */
static __always_inline __be16 ethertype(const void *eth)
{
	return *(const __be16 *)(eth + 2 * ETH_ALEN);
}

/* host makes 64 bits of an IPv6 address. What differs in its second half alone never meets. */
static __always_inline __u64 host(const struct in6_addr *a, const struct seed *seed)
{
	__u64 network = (__u64)a->s6_addr32[0] << 32 | a->s6_addr32[1];
	__u64 interface = (__u64)a->s6_addr32[2] << 32 | a->s6_addr32[3];

	return ((network * seed->times + seed->add) | 1) * interface + network;
}

static __always_inline void parse_transport(struct packet *p, __u8 next, void *at, void *end)
{
	switch (next) {
	case IPPROTO_TCP: {
		struct tcphdr *tcp = at;

		p->protocol = TCP;
		if ((void *)(tcp + 1) > end)
			return;
		p->source_port = bpf_ntohs(tcp->source);
		p->destination_port = bpf_ntohs(tcp->dest);
		p->is_start = tcp->syn && !tcp->ack;
		return;
	}
	case IPPROTO_ICMP:
		p->protocol = ICMP;
		return;
	case IPPROTO_ICMPV6: {
		__u8 *type = at;

		p->protocol = type + 1 <= (__u8 *)end ? icmpv6(*type) : ICMP;
		return;
	}
	case IPPROTO_UDP: {
		struct udphdr *udp = at;
		p->protocol = UDP;
		p->is_udp = 1;
		if ((void *)(udp + 1) > end)
			return;
		p->source_port = bpf_ntohs(udp->source);
		p->destination_port = bpf_ntohs(udp->dest);
		return;
	}
	}
}

static __always_inline void parse_ipv4(struct packet *p, void *at, void *end)
{
	struct iphdr *ip = at;

	if ((void *)(ip + 1) > end)
		return;
	p->from_host = ip->saddr;
	p->to_host = p->destination = ip->daddr;
	if (ip->frag_off & bpf_htons(0x1fff)) {
		p->protocol = FRAGMENT;
		p->is_fragment = 1;
		p->is_udp = ip->protocol == IPPROTO_UDP;
		return;
	}
	parse_transport(p, ip->protocol, at + ip->ihl * 4, end);
}

static __always_inline void parse_ipv6(struct packet *p, void *at, void *end)
{
	struct ipv6hdr *ip = at;
	__u8 next;

	if ((void *)(ip + 1) > end)
		return;
	p->from_host = host(&ip->saddr, &p->seed);
	p->to_host = host(&ip->daddr, &p->seed);
	p->destination = fold(&ip->daddr);
	next = ip->nexthdr;
	at = ip + 1;
	for (int i = 0; i < MAX_IPV6_EXTENSIONS; i++) {
		__u8 *h = at;

		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS && next != IPPROTO_FRAGMENT)
			break;
		if (h + 8 > (__u8 *)end)
			return;
		if (next == IPPROTO_FRAGMENT) {
			if (*(__be16 *)(h + 2) & bpf_htons(0xfff8)) {
				p->protocol = FRAGMENT;
				p->is_fragment = 1;
				p->is_udp = h[0] == IPPROTO_UDP;
				return;
			}
			next = h[0];
			at += 8;
			continue;
		}
		next = h[0];
		at += ((__u32)h[1] + 1) * 8;
	}
	parse_transport(p, next, at, end);
}

static __always_inline void parse(struct packet *p, void *data, void *end)
{
	struct ethhdr *eth = data;
	__be16 type;
	void *at = eth + 1;

	p->protocol = OTHER;
	if ((void *)(eth + 1) > end)
		return;
	type = ethertype(eth);
	for (int i = 0; i < MAX_TAGS && is_tag(type); i++) {
		if (at + TAG_BYTES + sizeof(type) > end) {
			p->is_cut = !i;
			return;
		}
		type = *(__be16 *)(at + 2);
		at += TAG_BYTES;
	}
	if (type == bpf_htons(ETH_P_IP))
		parse_ipv4(p, at, end);
	else if (type == bpf_htons(ETH_P_IPV6))
		parse_ipv6(p, at, end);
	else if (type == bpf_htons(ETH_P_ARP))
		p->protocol = ARP_ND;
}

#endif
