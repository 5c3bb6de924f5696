//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// HTB classifiers for a node's uplink: which tenant's class a frame belongs to,
// also when it travels inside VXLAN, Geneve or GRE. On the receiving side they
// also count what arrives, by class and by source, before the queue drops.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../include/address.h"

#define VXLAN_PORT 4789
#define GENEVE_PORT 6081
#define GRE_TEB 0x6558
#define GRE_CSUM 0x8000
#define GRE_KEY 0x2000
#define GRE_SEQ 0x1000
#define MATCH_ALL -1
/* The class of what belongs to no contract and asks for less than best effort (RFC 8622):
 * bulk tests among others, which so fill no queue that probes wait in. */
#define LOWER_EFFORT_CLASS 0x11500003
#define LOWER_EFFORT_DSCP 1

/* How a network is told apart on the wire. */
enum network { PLAIN, VLAN, VXLAN, GRE, GENEVE };

struct match {
	__u32 network; /* enum network */
	__u32 id; /* VLAN, VNI or key; 0 for PLAIN */
	__u64 mac; /* of the tenant's interface; 0 = all of the network */
};

/* What a source sends into a class. */
struct source {
	__u32 ifindex;
	__u32 class; /* major:minor */
	__u32 host; /* outer IPv4 source, or the IPv6 one folded; 0 outside a tunnel */
	__u32 destination; /* inner IPv4 destination, or the IPv6 one folded; 0 = no IP */
	__u8 from[ETH_ALEN];
	__u8 to[ETH_ALEN];
};

struct arrival {
	__u64 bytes; /* as the queue reckons them */
	__u64 packets;
};

struct class_key {
	__u32 ifindex;
	__u32 class;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct match);
	__type(value, __u32); /* major:minor */
} class_match SEC(".maps");

/* What came from each source since it was last read, which empties the table: so it has
 * room for whoever sends now, whatever was sent before. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct source);
	__type(value, struct arrival);
} class_source SEC(".maps");

/* The same of all sources together for which there was no room, by host: their
 * destination and addresses are 0. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256);
	__type(key, struct source);
	__type(value, struct arrival);
} class_rest SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1); /* resized at load: what reads it walks all its buckets, a hundred times a second */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct class_key);
	__type(value, struct arrival);
} class_arrival SEC(".maps");

/* Between whom a packet is the operator's tunnel and not one that a tenant wrote. */
struct endpoint {
	__u32 address[4]; /* an IPv4 address mapped (RFC 4291) */
};

enum { HERE = 1, ELSEWHERE }; /* of this node, of another */

/* Where the operator's tunnels are. */
struct tunnels {
	__u16 listed; /* 0 = between any addresses */
	__u16 vlan; /* of the underlay; 0 = untagged */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tunnels);
} class_tunnels SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct endpoint);
	__type(value, __u8); /* HERE or ELSEWHERE */
} class_endpoint SEC(".maps");

/* A frame and where in it the reader is. */
struct frame {
	struct __sk_buff *skb;
	__u32 at;
	struct match match; /* mac is the interface's that the direction is about */
	struct match inner; /* the VLAN inside a tunnel without VNI or key */
	__u32 host;
	__u32 destination;
	__be16 type;
	__u8 dscp; /* of the innermost IP header */
	__u8 from[ETH_ALEN];
	__u8 to[ETH_ALEN];
};

static __always_inline __u64 mac_value(const __u8 *m)
{
	__u64 v = 0;

	for (int i = 0; i < ETH_ALEN; i++)
		v = v << 8 | m[i];
	return v;
}

/* ethernet reads a MAC header with at most one tag (tags beyond are the tenant's own), and
 * returns how many tags that were, or -1. */
static __always_inline int ethernet(struct frame *f, __u32 *vlan)
{
	struct ethhdr eth;

	*vlan = 0;
	if (bpf_skb_load_bytes(f->skb, f->at, &eth, sizeof(eth)))
		return -1;
	__builtin_memcpy(f->to, eth.h_dest, ETH_ALEN);
	__builtin_memcpy(f->from, eth.h_source, ETH_ALEN);
	f->type = eth.h_proto;
	f->at += sizeof(eth);
	if (f->type == bpf_htons(ETH_P_8021Q) || f->type == bpf_htons(ETH_P_8021AD)) {
		__be16 tag[2];

		if (bpf_skb_load_bytes(f->skb, f->at, tag, sizeof(tag)))
			return -1;
		*vlan = bpf_ntohs(tag[0]) & 0xfff;
		f->type = tag[1];
		f->at += sizeof(tag);
		return 1;
	}
	return 0;
}

/* addresses reads an IP header and returns its protocol, or -1 for none that tunnels. */
static __always_inline int addresses(struct frame *f, __u32 *source, __u32 *destination)
{
	if (f->type == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(f->skb, f->at, &ip, sizeof(ip)))
			return -1;
		*source = ip.saddr;
		*destination = ip.daddr;
		f->dscp = ip.tos >> 2;
		f->at += ip.ihl * 4;
		return ip.frag_off & bpf_htons(0x1fff) ? -1 : ip.protocol;
	}
	if (f->type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(f->skb, f->at, &ip, sizeof(ip)))
			return -1;
		*source = fold(&ip.saddr);
		*destination = fold(&ip.daddr);
		f->dscp = (ip.priority << 2 | ip.flow_lbl[0] >> 6) & 0x3f;
		f->at += sizeof(ip);
		return ip.nexthdr;
	}
	return -1;
}

/* ends reads the addresses of an IP header, IPv4 mapped. */
static __always_inline int ends(struct __sk_buff *skb, __u32 at, __be16 type, struct endpoint *from, struct endpoint *to)
{
	if (type == bpf_htons(ETH_P_IP)) {
		__be32 pair[2];

		if (bpf_skb_load_bytes(skb, at + __builtin_offsetof(struct iphdr, saddr), pair, sizeof(pair)))
			return -1;
		from->address[2] = to->address[2] = bpf_htonl(0xffff);
		from->address[3] = pair[0];
		to->address[3] = pair[1];
		return 0;
	}
	at += __builtin_offsetof(struct ipv6hdr, saddr);
	return bpf_skb_load_bytes(skb, at, from, sizeof(*from)) || bpf_skb_load_bytes(skb, at + sizeof(*from), to, sizeof(*to));
}

/* has_class tells whether a network, or one of two interfaces in it, is a tenant's. What has
 * no tag is nobody's as a whole. */
static __always_inline int has_class(const struct match *network, __u64 sender, __u64 receiver)
{
	struct match m = *network;

	m.mac = sender;
	if (bpf_map_lookup_elem(&class_match, &m))
		return 1;
	m.mac = receiver;
	if (bpf_map_lookup_elem(&class_match, &m))
		return 1;
	if (m.network == PLAIN)
		return 0;
	m.mac = 0;
	return bpf_map_lookup_elem(&class_match, &m) != 0;
}

/* is_operators tells whether what looks like a tunnel is one between this node and
 * another: a tenant may write any port and any VNI into its own packets. The underlay has no
 * tag, or one that is listed. What has a class already is a tenant's, and so is what the node
 * forwards from another interface: what it puts into a tunnel of IPv4 itself has forgotten
 * where it came from (skb_scrub_packet). Where no ends are listed, nothing more is known. */
static __always_inline int is_operators(struct __sk_buff *skb, const struct match *outer, __u64 sender, __u64 receiver, __u32 at, __be16 type, int receives)
{
	struct endpoint from = {}, to = {};
	struct tunnels *tunnels;
	__u32 zero = 0;
	__u8 *where;

	tunnels = bpf_map_lookup_elem(&class_tunnels, &zero);
	if (!tunnels || outer->id != tunnels->vlan || has_class(outer, sender, receiver))
		return 0;
	if (!receives && type == bpf_htons(ETH_P_IP) && skb->ingress_ifindex)
		return 0;
	if (!tunnels->listed)
		return 1;
	if (ends(skb, at, type, &from, &to))
		return 0;
	where = bpf_map_lookup_elem(&class_endpoint, receives ? &to : &from);
	if (!where || *where != HERE)
		return 0;
	where = bpf_map_lookup_elem(&class_endpoint, receives ? &from : &to);
	return where && *where == ELSEWHERE;
}

/* tunnel reads a tunnel header; it returns 0 and leaves the reader at the inner frame. */
static __always_inline int tunnel(struct frame *f, int protocol)
{
	__be32 word;

	if (protocol == IPPROTO_UDP) {
		struct udphdr udp;

		if (bpf_skb_load_bytes(f->skb, f->at, &udp, sizeof(udp)))
			return -1;
		f->at += sizeof(udp);
		if (bpf_skb_load_bytes(f->skb, f->at + 4, &word, sizeof(word)))
			return -1;
		if (udp.dest == bpf_htons(VXLAN_PORT)) { /* RFC 7348 */
			f->match.network = VXLAN;
		} else if (udp.dest == bpf_htons(GENEVE_PORT)) { /* RFC 8926 */
			__u8 options;

			if (bpf_skb_load_bytes(f->skb, f->at, &options, 1))
				return -1;
			f->match.network = GENEVE;
			f->at += (options & 0x3f) * 4;
		} else {
			return -1;
		}
		f->match.id = bpf_ntohl(word) >> 8;
		f->at += 8;
		return 0;
	}
	if (protocol == IPPROTO_GRE) { /* RFC 2784, RFC 2890 */
		__be16 head[2];

		if (bpf_skb_load_bytes(f->skb, f->at, head, sizeof(head)) || head[1] != bpf_htons(GRE_TEB))
			return -1;
		f->at += sizeof(head);
		if (head[0] & bpf_htons(GRE_CSUM))
			f->at += 4;
		word = 0; /* without a key */
		if (head[0] & bpf_htons(GRE_KEY)) {
			if (bpf_skb_load_bytes(f->skb, f->at, &word, sizeof(word)))
				return -1;
			f->at += 4;
		}
		f->match.network = GRE;
		f->match.id = bpf_ntohl(word);
		if (head[0] & bpf_htons(GRE_SEQ))
			f->at += 4;
		return 0;
	}
	return -1;
}

/* read_frame finds the tenant's network and addresses. */
static __always_inline void read_frame(struct frame *f, int receives)
{
	__u32 vlan, at, source = 0, destination = 0;
	struct match plain;
	__be16 type;
	int tags, protocol;

	tags = ethernet(f, &vlan);
	if (tags < 0)
		return;
	if (f->skb->vlan_present) {
		vlan = f->skb->vlan_tci & 0xfff;
		tags++;
	}
	if (vlan) {
		f->match.network = VLAN;
		f->match.id = vlan;
	}
	plain = f->match;
	at = f->at;
	type = f->type;
	protocol = addresses(f, &source, &destination);
	f->destination = destination;
	if (tags > 1 || protocol < 0 || tunnel(f, protocol))
		return;
	if (!is_operators(f->skb, &plain, mac_value(f->from), mac_value(f->to), at, type, receives)) {
		f->match = plain;
		return;
	}
	f->host = source;
	f->destination = 0;
	f->dscp = 0;
	if (ethernet(f, &vlan) < 0)
		return;
	if (vlan && !f->match.id) {
		f->inner.network = VLAN;
		f->inner.id = vlan;
	}
	addresses(f, &source, &f->destination);
}

/* class_of returns major:minor, or 0 for the default class. The network that the
 * operator's tunnel names goes before a VLAN tag, which the tenant may have written: that
 * counts only inside a tunnel that names none, and so carries networks by their tags. */
static __always_inline __u32 class_of(struct frame *f, __u64 mac)
{
	struct match m = f->match;
	__u32 *class;

	m.mac = mac;
	class = bpf_map_lookup_elem(&class_match, &m);
	if (class)
		return *class;
	m.mac = 0;
	class = bpf_map_lookup_elem(&class_match, &m);
	if (class)
		return *class;
	if (!f->inner.network)
		return 0;
	m = f->inner;
	m.mac = mac;
	class = bpf_map_lookup_elem(&class_match, &m);
	if (class)
		return *class;
	m.mac = 0;
	class = bpf_map_lookup_elem(&class_match, &m);
	return class ? *class : 0;
}

/* queue_of returns where a packet of the class waits. */
static __always_inline __u32 queue_of(const struct frame *f, __u32 class)
{
	return !class && f->dscp == LOWER_EFFORT_DSCP ? LOWER_EFFORT_CLASS : class;
}

static __always_inline void count_arrival(struct __sk_buff *skb, const struct frame *f, __u32 class)
{
	struct class_key key = {.ifindex = skb->ifindex, .class = class};
	struct source source = {.ifindex = skb->ifindex, .class = class, .host = f->host, .destination = f->destination};
	struct arrival one = {.bytes = skb->wire_len ?: skb->len, .packets = skb->gso_segs ?: 1};
	struct arrival *a = bpf_map_lookup_elem(&class_arrival, &key);

	if (a) {
		a->bytes += one.bytes;
		a->packets += one.packets;
	} else {
		bpf_map_update_elem(&class_arrival, &key, &one, BPF_NOEXIST);
	}
	__builtin_memcpy(source.from, f->from, ETH_ALEN);
	__builtin_memcpy(source.to, f->to, ETH_ALEN);
	a = bpf_map_lookup_elem(&class_source, &source);
	if (!a && bpf_map_update_elem(&class_source, &source, &one, BPF_NOEXIST)) { /* full, or another CPU was first */
		source.destination = 0;
		__builtin_memset(source.from, 0, sizeof(source.from));
		__builtin_memset(source.to, 0, sizeof(source.to));
		a = bpf_map_lookup_elem(&class_rest, &source);
		if (!a)
			bpf_map_update_elem(&class_rest, &source, &one, BPF_NOEXIST);
	}
	if (a) {
		__sync_fetch_and_add(&a->bytes, one.bytes);
		__sync_fetch_and_add(&a->packets, one.packets);
	}
}

/* The uplink's egress: the tenant is the sender. */
SEC("classifier/send")
int classify_send(struct __sk_buff *skb)
{
	struct frame f = {.skb = skb};

	read_frame(&f, 0);
	return queue_of(&f, class_of(&f, mac_value(f.from)));
}

/* Egress of the IFB device behind the uplink's ingress: the tenant is the receiver. */
SEC("classifier/receive")
int classify_receive(struct __sk_buff *skb)
{
	struct frame f = {.skb = skb};
	__u32 class;

	read_frame(&f, 1);
	class = class_of(&f, mac_value(f.to));
	count_arrival(skb, &f, class);
	return queue_of(&f, class);
}

/* The uplink's ingress: everything goes on to the IFB device by the filter's action. */
SEC("classifier/all")
int classify_all(struct __sk_buff *skb)
{
	return MATCH_ALL;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
