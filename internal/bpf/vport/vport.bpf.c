//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// One program per hook of a tenant's vport: counts bytes and packets by protocol,
// keeps flood signals in 100 ms windows, and polices what the tenant sends beside TCP, or
// all of it, while a limit that has not expired is set. Exporter and enforcer share the pinned maps.
//
// "from_tenant" is what the tenant sends, whatever the hook calls it.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bucket.h"
#include "maps.h"
#include "packet.h"
#include "wire.h"
#include "count.h"
#include "flood.h"
#include "limit.h"
#include "mac.h"

/* lets_send holds what the tenant sends to its contract and its limits, and enters it
 * into the signals; it returns 0 if the packet must be dropped, and sets class if an
 * HTB class of the uplink shall shape it. */
static __always_inline int lets_send(struct counters *c, __u32 slot, const struct packet *p, const struct wire *w, __u32 *class)
{
	struct contract *contract;
	struct settings *set;
	struct pairs_spent *spent;
	struct pairs *pairs;
	struct limit *limit;
	struct state *s;
	int watched = p->is_udp || p->is_start;
	int capped = p->protocol != TCP && p->protocol != ARP_ND; /* whatever it is: a limit must not be escaped by a header */
	int pass = 1, begins = 0, bound;
	__u64 now, flow = 0;
	__u32 zero = 0, place = EVERYTHING + 1; /* of the limit of its destination: none */

	contract = bpf_map_lookup_elem(&vport_contract, &slot);
	if (!contract)
		return 1;
	bound = contract->packets || contract->new_flows || contract->everything;
	if (!watched && !capped && !bound && !contract->pairs)
		return 1;
	s = bpf_map_lookup_elem(&vport_state, &slot);
	set = bpf_map_lookup_elem(&vport_set, &zero);
	limit = bpf_map_lookup_elem(&vport_limit, &slot);
	pairs = bpf_map_lookup_elem(&vport_pairs, &slot);
	spent = bpf_map_lookup_elem(&vport_pairs_spent, &slot);
	if (!s || !set || !limit || !pairs || !spent)
		return 1;
	now = bpf_ktime_get_ns();
	if (contract->pairs) /* before the lock, under which nothing can be called */
		place = place_of_limit(slot, p->destination, now);
	bpf_spin_lock(&s->lock);
	if (s->current.id < now / WINDOW_NS) /* another CPU may be ahead */
		close_window(s, now / WINDOW_NS);
	if (watched && !p->is_fragment) {
		flow = flow_hash(p);
		see_flow(s, flow);
		begins = !may_go_on(s, flow);
	}
	if (p->is_udp)
		enter_udp(s, p, set, contract->guarantee, now, w);
	if (bound)
		pass = keeps_pace(&s->contract_pace, contract->packets, contract->new_flows, w, begins, now);
	if (pass && limit->expires_ns > now && (capped || limit->everything)) {
		*class = limit->class;
		pass = conforms(s, limit, now, w, begins);
	}
	if (pass && watched && !p->is_fragment)
		let_go_on(s, flow);
	if (pass && place <= EVERYTHING)
		pass = pair_conforms(&pairs->to[place], &spent->to[place], now, w, class);
	bpf_spin_unlock(&s->lock);
	if (!pass) {
		c->policed_bytes += w->bytes;
		c->policed_packets += w->packets;
	}
	return pass;
}

/* lets_receive holds what the tenant receives to the packets per second of its
 * contract; replies make a flood less likely. */
static __always_inline int lets_receive(__u32 slot, const struct packet *p, const struct wire *w)
{
	struct contract *contract = bpf_map_lookup_elem(&vport_contract, &slot);
	int held = contract && contract->receive_packets;
	struct state *s;
	int pass = 1;
	__u64 now;

	if (!p->is_udp && !held)
		return 1;
	s = bpf_map_lookup_elem(&vport_state, &slot);
	if (!s)
		return 1;
	now = held ? bpf_ktime_get_ns() : 0;
	bpf_spin_lock(&s->lock);
	if (held)
		pass = take_packets(&s->received, contract->receive_packets, w->packets, now);
	if (p->is_udp)
		enter_reply(s, p, w);
	bpf_spin_unlock(&s->lock);
	return pass;
}

/* take_seed gives the parser what hosts are hashed by. */
static __always_inline void take_seed(struct packet *p)
{
	__u32 zero = 0;
	struct seed *seed = bpf_map_lookup_elem(&vport_seed, &zero);

	if (seed)
		p->seed = *seed;
}

/* headers parses a socket buffer, pulling the headers into the linear part if they are not there. */
static __always_inline void headers(struct __sk_buff *skb, struct packet *p)
{
	const __u32 want = sizeof(struct ethhdr) + MAX_TAGS * TAG_BYTES + sizeof(struct ipv6hdr) + sizeof(struct tcphdr);
	__u32 there = skb->data_end - skb->data;

	if (there < want && there < skb->len)
		bpf_skb_pull_data(skb, skb->len < want ? skb->len : want);
	parse(p, (void *)(long)skb->data, (void *)(long)skb->data_end);
}

/* stream_of returns the header of a TCP segment, and where it begins, if it is where it
 * mostly is: behind IPv4 without options or IPv6 without extensions, in a frame without
 * a tag in it. */
static __always_inline struct tcphdr *stream_of(struct __sk_buff *skb, __u32 *at)
{
	void *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = (void *)(long)skb->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct ipv6hdr *ip6 = (void *)(eth + 1);
	struct tcphdr *tcp = (void *)(ip + 1);
	__be16 type;

	if ((void *)(tcp + 1) > end)
		return 0;
	type = ethertype(eth);
	if (type == bpf_htons(ETH_P_IP)) {
		if (*(__u8 *)ip != 0x45 || ip->protocol != IPPROTO_TCP || ip->frag_off & bpf_htons(0x1fff))
			return 0;
		*at = sizeof(*eth) + sizeof(*ip);
		return tcp;
	}
	tcp = (void *)(ip6 + 1);
	*at = sizeof(*eth) + sizeof(*ip6);
	if (type != bpf_htons(ETH_P_IPV6) || ip6->nexthdr != IPPROTO_TCP || (void *)(tcp + 1) > end)
		return 0;
	return tcp;
}

/* count_stream enters a segment, or a super-frame of them. */
static __always_inline void count_stream(struct carried *c, const struct __sk_buff *skb, const struct tcphdr *tcp, __u32 at)
{
	struct wire w;

	measure_stream(&w, skb, at + tcp->doff * 4);
	count(c, TCP, &w);
}

/* bound tells whether a vport is held to anything that concerns more than UDP. */
static __always_inline int bound(__u32 slot)
{
	struct contract *c = bpf_map_lookup_elem(&vport_contract, &slot);

	return c && (c->packets | c->new_flows | c->pairs | c->everything);
}

/* from_any handles whatever the tenant sends. */
static __always_inline int from_any(struct __sk_buff *skb, struct counters *c, __u32 slot)
{
	struct packet p = {};
	struct wire w;
	__u32 class = 0;

	take_seed(&p);
	headers(skb, &p);
	measure(&w, skb);
	count(&c->carried[FROM_TENANT], p.protocol, &w);
	if (!lets_send(c, slot, &p, &w, &class))
		return TC_ACT_SHOT;
	/* HTB takes a priority for a class. A container can set it: it must not choose its class. */
	if (class || skb->priority >> 16 == HTB_MAJOR)
		skb->priority = class;
	return TC_ACT_UNSPEC;
}

SEC("tcx/ingress")
int vport_tcx_from(struct __sk_buff *skb)
{
	__u32 slot, at;
	struct counters *c = find(skb->ifindex, &slot);
	struct tcphdr *tcp;

	if (!c)
		return TC_ACT_UNSPEC;
	tcp = stream_of(skb, &at);
	if (!tcp || (tcp->syn && !tcp->ack) || bound(slot))
		return from_any(skb, c, slot);
	count_stream(&c->carried[FROM_TENANT], skb, tcp, at);
	if (skb->priority >> 16 == HTB_MAJOR)
		skb->priority = 0;
	return TC_ACT_UNSPEC;
}

/* to_any handles whatever the tenant receives. */
static __noinline int to_any(struct __sk_buff *skb, struct counters *c, __u32 slot)
{
	struct packet p = {};
	struct wire w;

	take_seed(&p);
	headers(skb, &p);
	measure(&w, skb);
	if (skb->priority >> 16 == HTB_MAJOR && !within_shape(skb->priority, &w)) {
		c->refused_packets += w.packets;
		return TC_ACT_SHOT;
	}
	if (!lets_receive(slot, &p, &w)) {
		c->refused_packets += w.packets;
		return TC_ACT_SHOT;
	}
	count(&c->carried[TO_TENANT], p.protocol, &w);
	return TC_ACT_UNSPEC;
}

/* held tells whether anything may keep a packet from the vport: its contract, or the
 * limit of a sender on the same node. */
static __always_inline int held(const struct __sk_buff *skb, __u32 slot)
{
	struct contract *c = bpf_map_lookup_elem(&vport_contract, &slot);

	return skb->priority >> 16 == HTB_MAJOR || (c && c->receive_packets);
}

SEC("tcx/egress")
int vport_tcx_to(struct __sk_buff *skb)
{
	__u32 slot, at;
	struct counters *c = find(skb->ifindex, &slot);
	struct tcphdr *tcp;

	if (!c)
		return TC_ACT_UNSPEC;
	tcp = stream_of(skb, &at);
	if (!tcp || held(skb, slot))
		return to_any(skb, c, slot);
	count_stream(&c->carried[TO_TENANT], skb, tcp, at);
	return TC_ACT_UNSPEC;
}

/* lets_learn holds what the tenant sends to the new pairs of MAC addresses per second of its
 * contract: the thread of Open vSwitch's userspace datapath is everybody's. */
static __always_inline int lets_learn(struct xdp_md *ctx, struct counters *c, __u32 slot, const struct packet *p, const struct wire *w)
{
	struct contract *contract = bpf_map_lookup_elem(&vport_contract, &slot);

	if (!contract || !contract->mac_pairs ||
	    spares_switch(slot, contract->mac_pairs, (void *)(long)ctx->data, (void *)(long)ctx->data_end, &p->seed))
		return 1;
	c->policed_bytes += w->bytes;
	c->policed_packets += w->packets;
	return 0;
}

/* On Open vSwitch's userspace datapath packet sockets are served before tc, so that only
 * XDP can drop. It knows neither a tag that is kept beside the frame nor segments: what
 * it lets pass is counted at the next hook, what it drops is counted here. */
SEC("xdp.frags")
int vport_xdp_from(struct xdp_md *ctx)
{
	struct packet p = {};
	struct wire w;
	__u32 class = 0; /* there is no priority before the socket buffer: limits police here */
	__u32 slot;
	struct counters *c = find(ctx->ingress_ifindex, &slot);

	if (!c)
		return XDP_PASS;
	take_seed(&p);
	parse(&p, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	single(&w, bpf_xdp_get_buff_len(ctx));
	if (!lets_send(c, slot, &p, &w, &class) || !lets_learn(ctx, c, slot, &p, &w)) {
		count(&c->carried[FROM_TENANT], p.protocol, &w);
		return XDP_DROP;
	}
	if (p.is_cut) /* the kernel will drop it before the next hook */
		count(&c->carried[FROM_TENANT], p.protocol, &w);
	return XDP_PASS;
}

static __noinline int count_any(struct __sk_buff *skb, struct counters *c)
{
	struct packet p = {};
	struct wire w;

	headers(skb, &p);
	measure(&w, skb);
	count(&c->carried[FROM_TENANT], p.protocol, &w);
	return TC_ACT_UNSPEC;
}

/* The next hook behind XDP: it counts what the tenant sent and XDP let pass. */
SEC("tcx/ingress")
int vport_tcx_passed(struct __sk_buff *skb)
{
	__u32 slot, at;
	struct counters *c = find(skb->ifindex, &slot);
	struct tcphdr *tcp;

	if (!c)
		return TC_ACT_UNSPEC;
	tcp = stream_of(skb, &at);
	if (!tcp)
		return count_any(skb, c);
	count_stream(&c->carried[FROM_TENANT], skb, tcp, at);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
