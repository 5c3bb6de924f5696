//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Counts the packets that the kernel drops in one network namespace, by device,
// the interface they came in by, reason and protocol. It runs for drops alone.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../include/protocol.h"

#define VLAN_HLEN 4

/* Why and where packets were dropped. */
struct event {
	__u32 device; /* ifindex; the one the packet was on */
	__u32 arrival; /* ifindex; 0 = it was not received */
	__u32 reason; /* enum skb_drop_reason, with the subsystem in the upper half */
	__u32 protocol; /* enum protocol */
};

/* What to count; set by user space. */
struct settings {
	__u32 netns; /* inode of the namespace */
	__u32 ignored; /* reasons that are no loss, 0 = none */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct event);
	__type(value, __u64);
} drop_count SEC(".maps");

/* Drops that found no place in drop_count. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} drop_lost SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} drop_set SEC(".maps");

/* Numbers of reasons on the running kernel; 0 = it does not have them. */
const volatile __u32 not_specified, pkt_too_big;

/* The kernel's own types, as far as needed; their layout comes from its BTF. */
struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

struct net_device {
	int ifindex;
	unsigned int mtu;
	struct {
		struct net *net;
	} nd_net;
} __attribute__((preserve_access_index));

struct sk_buff {
	struct net_device *dev;
	unsigned int len;
	int skb_iif;
	__be16 protocol;
	__u16 network_header;
	unsigned int end;
	unsigned char *head, *data;
} __attribute__((preserve_access_index));

struct skb_shared_info {
	unsigned short gso_size;
} __attribute__((preserve_access_index));

static __always_inline __u32 transport(__u8 next, const void *at)
{
	__u8 type = 0;

	switch (next) {
	case IPPROTO_TCP:
		return TCP;
	case IPPROTO_UDP:
		return UDP;
	case IPPROTO_ICMP:
		return ICMP;
	case IPPROTO_ICMPV6:
		bpf_probe_read_kernel(&type, sizeof(type), at);
		return icmpv6(type);
	}
	return OTHER;
}

static __always_inline __u32 classify(const struct sk_buff *skb)
{
	const void *at = BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, network_header);

	switch (BPF_CORE_READ(skb, protocol)) {
	case bpf_htons(ETH_P_ARP):
		return ARP_ND;
	case bpf_htons(ETH_P_IP): {
		struct iphdr ip;

		if (bpf_probe_read_kernel(&ip, sizeof(ip), at))
			return OTHER;
		if (ip.frag_off & bpf_htons(0x1fff))
			return FRAGMENT;
		return transport(ip.protocol, at + ip.ihl * 4);
	}
	case bpf_htons(ETH_P_IPV6): {
		struct ipv6hdr ip;
		__be16 fragment = 0;

		if (bpf_probe_read_kernel(&ip, sizeof(ip), at))
			return OTHER;
		if (ip.nexthdr != IPPROTO_FRAGMENT)
			return transport(ip.nexthdr, at + sizeof(ip));
		bpf_probe_read_kernel(&fragment, sizeof(fragment), at + sizeof(ip) + 2);
		if (fragment & bpf_htons(0xfff8))
			return FRAGMENT;
		bpf_probe_read_kernel(&ip.nexthdr, sizeof(ip.nexthdr), at + sizeof(ip));
		return transport(ip.nexthdr, at + sizeof(ip) + 8);
	}
	}
	return OTHER;
}

/* Bridges, veth and macvlan drop packets that are longer than the device's MTU, and do not
 * say why (kernels differ in whether one without a VLAN's tag has the room of one); what is
 * still to be cut into segments is as long as it likes. */
static __always_inline int too_long(const struct sk_buff *skb, const struct net_device *dev)
{
	const struct skb_shared_info *shared;
	const void *at = BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, network_header);
	long link = at - (const void *)BPF_CORE_READ(skb, data); /* bytes of header still before it */
	__be16 protocol = BPF_CORE_READ(skb, protocol);
	__u32 most = BPF_CORE_READ(dev, mtu);

	if (protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD))
		most += VLAN_HLEN;
	if ((long)BPF_CORE_READ(skb, len) - (link > 0 ? link : 0) <= (long)most)
		return 0;
	shared = (const void *)(BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, end));
	return !BPF_CORE_READ(shared, gso_size);
}

static __always_inline int dropped(const struct sk_buff *skb, __u32 reason)
{
	struct event e = { .reason = reason };
	struct settings *set;
	struct net_device *dev;
	__u64 *count, one = 1;
	__u32 zero = 0;

	set = bpf_map_lookup_elem(&drop_set, &zero);
	if (!set || (set->ignored && e.reason == set->ignored))
		return 0;
	dev = BPF_CORE_READ(skb, dev);
	if (!dev || BPF_CORE_READ(dev, nd_net.net, ns.inum) != set->netns)
		return 0;
	if (pkt_too_big && e.reason == not_specified && too_long(skb, dev))
		e.reason = pkt_too_big;
	e.device = BPF_CORE_READ(dev, ifindex);
	e.arrival = BPF_CORE_READ(skb, skb_iif);
	e.protocol = classify(skb);
	count = bpf_map_lookup_elem(&drop_count, &e);
	if (count) {
		(*count)++;
		return 0;
	}
	/* Another CPU may have made the entry; each writes its own value. */
	if (!bpf_map_update_elem(&drop_count, &e, &one, BPF_NOEXIST))
		return 0;
	count = bpf_map_lookup_elem(&drop_count, &e);
	if (!count)
		count = bpf_map_lookup_elem(&drop_lost, &zero);
	if (count)
		(*count)++;
	return 0;
}

/* args: struct sk_buff *skb, void *location, enum skb_drop_reason reason (Linux 5.17), ... */
SEC("raw_tp/kfree_skb")
int drop_event(struct bpf_raw_tracepoint_args *ctx)
{
	return dropped((const void *)ctx->args[0], ctx->args[2]);
}

/* The same where programs can be attached by the tracepoint's types: then the kernel
 * refuses at load what would read an argument that is not there. */
SEC("tp_btf/kfree_skb")
int drop_event_typed(__u64 *args)
{
	return dropped((const void *)args[0], args[2]);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
