//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// One program per hook of a tenant's vport: counts bytes and packets by protocol,
// keeps flood signals in 100 ms windows, and polices the tenant's UDP, or all it
// sends, while a limit that has not expired is set. Exporter and enforcer share the pinned maps.
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

#include "packet.h"
#include "maps.h"

/* A vport's place is the slot that the low bits of its interface's number give,
 * unless another vport has it. Set at load: a power of two less one. */
volatile const __u32 place_mask = 0;

/* find_displaced returns the slot of a vport that is not in its place, or -1 if the
 * interface is not a vport. */
static __noinline int find_displaced(__u32 ifindex)
{
	__u32 *slot;

	if (ifindex < LOW_IFINDEX)
		slot = bpf_map_lookup_elem(&vport_slots, &ifindex);
	else
		slot = bpf_map_lookup_elem(&vport_high, &ifindex);
	return slot && *slot ? (int)*slot - 1 : -1;
}

/* find returns the counters and the slot of a vport, or 0 if the interface is none. */
static __always_inline struct counters *find(__u32 ifindex, __u32 *slot)
{
	struct counters *c;
	int elsewhere;

	*slot = ifindex & place_mask;
	c = bpf_map_lookup_elem(&vport_count, slot);
	if (c && c->ifindex == ifindex)
		return c;
	elsewhere = find_displaced(ifindex);
	if (elsewhere < 0)
		return 0;
	*slot = elsewhere;
	return bpf_map_lookup_elem(&vport_count, slot);
}

/* size_range returns where a frame of that size is counted: up to 64, 128, 256,
 * 512, 1024, 1518, 9018 bytes, or more. */
static __always_inline __u32 size_range(__u32 bytes)
{
	if (bytes <= 256)
		return (bytes > 64) + (bytes > 128);
	if (bytes <= 1024)
		return 3 + (bytes > 512);
	return 5 + (bytes > 1518) + (bytes > 9018);
}

/* count enters a packet; a GSO super-frame counts as the frames that it becomes
 * on the wire, each but the last with headers and segment bytes of payload. */
static __always_inline void count(struct carried *c, __u32 protocol, __u32 bytes, __u32 packets, __u32 headers, __u32 segment)
{
	if (protocol >= PROTOCOLS)
		return;
	c->protocols[protocol].bytes += bytes;
	c->protocols[protocol].packets += packets;
	if (packets > 1) {
		__u32 before = (packets - 1) * segment; /* payload of all frames but the last */

		c->sizes[size_range(headers + segment) & (SIZES - 1)] += packets - 1;
		bytes = bytes > before ? bytes - before : 0;
	}
	c->sizes[size_range(bytes) & (SIZES - 1)]++;
}

static __always_inline __u32 hash32(__u32 v)
{
	return v * 0x9e3779b1U; /* Fibonacci hashing: the high bits are well mixed */
}

static __always_inline void clear_flows(struct flows *f, __u32 which)
{
	f->set[which & 1] = 0;
	for (int i = 0; i < FLOW_WORDS; i++)
		f->seen[which & 1][i] = 0;
}

/* close_window files the finished window away. Called under the lock. */
static __always_inline void close_window(struct state *s, __u64 id)
{
	struct window *w = &s->current;
	__u32 busiest = 0;

	if (w->id) {
		for (int i = 0; i < DESTINATIONS; i++) {
			struct destination *d = &s->destinations[i];

			if (d->window != (__u32)w->id || d->packets < busiest || !d->packets)
				continue;
			busiest = d->packets;
			w->ports = d->ports;
			w->packets = d->packets;
			w->replies = d->replies;
		}
		s->closed[w->id & (HISTORY - 1)] = *w;
	}
	/* The bitmap of the window before is of use for one more window alone. */
	clear_flows(&s->flows, id & 1);
	if (w->id + 1 != id)
		clear_flows(&s->flows, !(id & 1));
	s->flows.any = s->flows.set[!(id & 1)];
	__builtin_memset(w, 0, sizeof(*w));
	w->id = id;
}

static __always_inline __u32 flow_hash(const struct packet *p)
{
	__u32 h = hash32(p->source);

	h = hash32((h ^ h >> 15) + p->destination);
	h = hash32((h ^ h >> 15) + ((__u32)p->source_port << 16 | p->destination_port));
	return hash32((h ^ h >> 15) + p->protocol);
}

/* begin_flow tells whether the packet's flow is in neither bitmap, and enters it.
 * Each new bit stands for as many flows as are expected to be tried until one
 * meets a bit that is free (incremental linear counting). Called under the lock. */
static __always_inline int begin_flow(struct state *s, const struct packet *p)
{
	struct flows *f = &s->flows;
	__u32 bit = flow_hash(p) >> 20; /* 12 bits */
	__u32 at = bit >> 6 & (FLOW_WORDS - 1);
	__u32 now = s->current.id & 1;
	__u64 mask = 1ULL << (bit & 63);
	__u64 known = f->seen[!now][at] & mask;

	if (f->seen[now][at] & mask)
		return 0;
	f->seen[now][at] |= mask;
	f->set[now]++;
	if (known)
		return 0;
	if (f->any < FLOW_WORDS * 64)
		s->current.new_flows += FLOW_WORDS * 64 * 256 / (FLOW_WORDS * 64 - f->any);
	f->any++;
	return 1;
}

/* destination_of finds or claims the place that follows an address. Called under the lock. */
static __always_inline struct destination *destination_of(struct state *s, __u32 address, __u32 window)
{
	struct destination *d = &s->destinations[hash32(address) >> 29 & (DESTINATIONS - 1)];

	if (d->window == window && d->address == address) {
		d->hold++;
		return d;
	}
	if (d->window == window && d->hold > 0) {
		d->hold--;
		return 0;
	}
	d->window = window;
	d->address = address;
	d->hold = 1;
	d->packets = 0;
	d->replies = 0;
	d->ports = 0;
	for (int i = 0; i < PORT_WORDS; i++)
		d->spread[i] = 0;
	return d;
}

/* observe enters a UDP packet of the tenant into the window. Called under the lock. */
static __always_inline void observe(struct state *s, const struct packet *p, const struct settings *set, __u64 now, __u32 bytes,
				    __u32 packets)
{
	struct destination *d;

	s->current.udp_bytes += bytes;
	s->current.udp_packets += packets;
	if (p->is_fragment)
		s->current.fragments += packets;
	d = destination_of(s, p->destination, (__u32)s->current.id);
	if (!d)
		return;
	d->packets += packets;
	if (!p->is_fragment) {
		__u32 bit = hash32(p->destination_port) >> 22; /* 10 bits */
		__u64 mask = 1ULL << (bit & 63);
		__u64 *word = &d->spread[bit >> 6 & (PORT_WORDS - 1)];

		if (!(*word & mask)) {
			*word |= mask;
			d->ports++;
		}
	}
	if (d->packets >= set->min_packets && d->ports >= set->min_ports &&
	    (__u64)d->replies * 100 <= (__u64)d->packets * set->max_reply_percent) {
		s->current.flood = 1;
		if (!s->flood_last_ns || now - s->flood_last_ns > set->quiet_ns)
			s->flood_since_ns = now;
		s->flood_last_ns = now;
	}
}

/* refill adds what a bucket gained in a time of at most one second. */
static __always_inline __u64 refill(__u64 tokens, __u64 rate, __u64 elapsed, __u64 burst)
{
	__u64 full = burst * NS_PER_S;

	tokens += rate * elapsed;
	return tokens > full ? full : tokens;
}

/* packet_burst is what a limit in packets lets through at once: 50 ms, but never
 * fewer than the fragments of the largest datagram. */
static __always_inline __u64 packet_burst(__u64 packets)
{
	return packets / 20 < 64 ? 64 : packets / 20;
}

/* conforms takes the packet from the limit's buckets, which hold bytes, packets and
 * flows times NS_PER_S so that refilling is exact. A class takes care of the bytes,
 * but not of packets and flows. Called under the lock. */
static __always_inline int conforms(struct state *s, const struct limit *limit, __u64 now, __u32 bytes, __u32 packets, int begins)
{
	__u64 elapsed = now - s->refilled_ns;
	__u64 cost = limit->class ? 0 : (__u64)bytes * NS_PER_S;
	__u64 packet_cost = limit->packets ? (__u64)packets * NS_PER_S : 0;
	__u64 flow_cost = limit->new_flows && begins ? NS_PER_S : 0;

	if (elapsed > NS_PER_S)
		elapsed = NS_PER_S;
	s->refilled_ns = now;
	if (s->limit_since_ns != limit->since_ns) { /* a new limit begins with full buckets */
		s->tokens = limit->burst * NS_PER_S;
		s->limit_packet_tokens = packet_burst(limit->packets) * NS_PER_S;
		s->limit_flow_tokens = packet_burst(limit->new_flows) * NS_PER_S;
	}
	s->limit_since_ns = limit->since_ns;
	s->tokens = refill(s->tokens, limit->rate, elapsed, limit->burst);
	s->limit_packet_tokens = refill(s->limit_packet_tokens, limit->packets, elapsed, packet_burst(limit->packets));
	s->limit_flow_tokens = refill(s->limit_flow_tokens, limit->new_flows, elapsed, packet_burst(limit->new_flows));
	if (s->tokens < cost || s->limit_packet_tokens < packet_cost || s->limit_flow_tokens < flow_cost)
		return 0;
	s->tokens -= cost;
	s->limit_packet_tokens -= packet_cost;
	s->limit_flow_tokens -= flow_cost;
	return 1;
}

/* within_contract holds what the vport sends to its packets and new flows per
 * second. Called under the lock. */
static __always_inline int within_contract(struct state *s, const struct contract *c, __u64 now, __u32 packets, int begins)
{
	__u64 elapsed = now - s->contract_refilled_ns;
	__u64 packet_cost = c->packets ? (__u64)packets * NS_PER_S : 0;
	__u64 flow_cost = c->new_flows && begins ? NS_PER_S : 0;

	if (elapsed > NS_PER_S)
		elapsed = NS_PER_S;
	s->contract_refilled_ns = now;
	s->contract_packet_tokens = refill(s->contract_packet_tokens, c->packets, elapsed, packet_burst(c->packets));
	s->contract_flow_tokens = refill(s->contract_flow_tokens, c->new_flows, elapsed, packet_burst(c->new_flows));
	if (s->contract_packet_tokens < packet_cost || s->contract_flow_tokens < flow_cost)
		return 0;
	s->contract_packet_tokens -= packet_cost;
	s->contract_flow_tokens -= flow_cost;
	return 1;
}

/* pair_of finds the limit on what the vport sends to a destination, or to all. */
static __always_inline struct pair *pair_of(__u32 slot, __u32 destination, __u64 now)
{
	struct pair_key key = {.slot = slot, .destination = destination};
	struct pair *p = bpf_map_lookup_elem(&vport_pair, &key);

	if (p && p->expires_ns > now)
		return p;
	key.destination = 0;
	p = bpf_map_lookup_elem(&vport_pair, &key);
	return p && p->expires_ns > now ? p : 0;
}

/* pair_conforms holds the packet to the limit of its destination, if there is one. */
static __always_inline int pair_conforms(__u32 slot, __u32 destination, __u64 now, __u32 bytes, __u32 packets, __u32 *class)
{
	struct pair *p = pair_of(slot, destination, now);
	__u64 elapsed, cost, packet_cost;
	int pass = 1;

	if (!p)
		return 1;
	cost = (__u64)bytes * NS_PER_S;
	bpf_spin_lock(&p->lock);
	p->offered_bytes += bytes;
	if (p->class) { /* which takes care of the bytes */
		*class = p->class;
		cost = 0;
	}
	elapsed = now > p->refilled_ns ? now - p->refilled_ns : 0;
	if (elapsed > NS_PER_S)
		elapsed = NS_PER_S;
	packet_cost = p->packets ? (__u64)packets * NS_PER_S : 0;
	p->refilled_ns = now;
	p->tokens = refill(p->tokens, p->rate, elapsed, p->burst);
	p->packet_tokens = refill(p->packet_tokens, p->packets, elapsed, packet_burst(p->packets));
	pass = p->tokens >= cost && p->packet_tokens >= packet_cost;
	if (pass) {
		p->tokens -= cost;
		p->packet_tokens -= packet_cost;
	} else {
		p->dropped_bytes += bytes;
		p->dropped_packets += packets;
	}
	bpf_spin_unlock(&p->lock);
	return pass;
}

/* from_tenant handles what the tenant sends; it returns 0 if the packet must be
 * dropped, and sets class if an HTB class of the uplink shall shape it. */
static __always_inline int from_tenant(struct counters *c, __u32 slot, const struct packet *p, __u32 bytes, __u32 packets, __u32 segment,
				       __u32 *class)
{
	struct contract *contract;
	struct settings *set;
	struct limit *limit;
	struct state *s;
	int watched = p->is_udp || p->is_start;
	int pass = 1, begins = 0, bound;
	__u32 zero = 0;
	__u64 now;

	count(&c->carried[FROM_TENANT], p->protocol, bytes, packets, p->headers, segment);
	contract = bpf_map_lookup_elem(&vport_contract, &slot);
	if (!contract)
		return 1;
	bound = contract->packets || contract->new_flows || contract->everything;
	if (!watched && !bound && !contract->pairs)
		return 1;
	now = bpf_ktime_get_ns();
	if (watched || bound) {
		s = bpf_map_lookup_elem(&vport_state, &slot);
		set = bpf_map_lookup_elem(&vport_set, &zero);
		limit = bpf_map_lookup_elem(&vport_limit, &slot);
		if (!s || !set || !limit)
			return 1;
		bpf_spin_lock(&s->lock);
		if (s->current.id < now / WINDOW_NS) /* another CPU may be ahead */
			close_window(s, now / WINDOW_NS);
		if (watched && !p->is_fragment)
			begins = begin_flow(s, p);
		if (p->is_udp)
			observe(s, p, set, now, bytes, packets);
		if (bound)
			pass = within_contract(s, contract, now, packets, begins);
		if (pass && limit->expires_ns > now && (p->is_udp || limit->everything)) {
			*class = limit->class;
			pass = conforms(s, limit, now, bytes, packets, begins);
		}
		bpf_spin_unlock(&s->lock);
	}
	if (pass && contract->pairs)
		pass = pair_conforms(slot, p->destination, now, bytes, packets, class);
	if (!pass) {
		c->policed_bytes += bytes;
		c->policed_packets += packets;
	}
	return pass;
}

/* delivers holds what the vport receives to the packets per second of its
 * contract. Called under the lock. */
static __always_inline int delivers(struct state *s, const struct contract *c, __u64 now, __u32 packets)
{
	__u64 elapsed = now - s->receive_refilled_ns;
	__u64 cost = (__u64)packets * NS_PER_S;

	if (elapsed > NS_PER_S)
		elapsed = NS_PER_S;
	s->receive_refilled_ns = now;
	s->receive_packet_tokens = refill(s->receive_packet_tokens, c->receive_packets, elapsed, packet_burst(c->receive_packets));
	if (s->receive_packet_tokens < cost)
		return 0;
	s->receive_packet_tokens -= cost;
	return 1;
}

/* to_tenant handles what the tenant receives: replies make a flood less likely. It
 * returns 0 if the packet must be dropped. */
static __always_inline int to_tenant(struct counters *c, __u32 slot, const struct packet *p, __u32 bytes, __u32 packets, __u32 segment)
{
	struct contract *contract = bpf_map_lookup_elem(&vport_contract, &slot);
	int held = contract && contract->receive_packets;
	struct destination *d;
	struct state *s;
	int pass = 1;
	__u64 now;

	if (p->is_udp || held) {
		s = bpf_map_lookup_elem(&vport_state, &slot);
		if (!s)
			return 1;
		now = held ? bpf_ktime_get_ns() : 0;
		bpf_spin_lock(&s->lock);
		if (held)
			pass = delivers(s, contract, now, packets);
		d = &s->destinations[hash32(p->source) >> 29 & (DESTINATIONS - 1)];
		if (p->is_udp && d->address == p->source && d->window == (__u32)s->current.id)
			d->replies += packets;
		bpf_spin_unlock(&s->lock);
	}
	if (pass)
		count(&c->carried[TO_TENANT], p->protocol, bytes, packets, p->headers, segment);
	return pass;
}

/* within_shape polices a frame that an uplink's class would have shaped, had it
 * not stayed on this node. */
static __always_inline int within_shape(__u32 priority, __u32 bytes)
{
	__u32 key = (priority & 0xffff) - FIRST_SHAPE;
	__u64 now = bpf_ktime_get_ns(), elapsed, cost = (__u64)bytes * NS_PER_S;
	struct shape *s;
	int pass;

	if (priority >> 16 != HTB_MAJOR || key >= SHAPES)
		return 1;
	s = bpf_map_lookup_elem(&vport_shape, &key);
	if (!s || !s->rate)
		return 1;
	bpf_spin_lock(&s->lock);
	elapsed = now > s->refilled_ns ? now - s->refilled_ns : 0;
	if (elapsed > NS_PER_S)
		elapsed = NS_PER_S;
	s->refilled_ns = now;
	s->tokens = refill(s->tokens, s->rate, elapsed, s->burst);
	pass = s->tokens >= cost;
	if (pass)
		s->tokens -= cost;
	bpf_spin_unlock(&s->lock);
	return pass;
}

/* headers parses a socket buffer, pulling the headers into the linear part if they are not there. */
static __always_inline void headers(struct __sk_buff *skb, struct packet *p)
{
	const __u32 want = sizeof(struct ethhdr) + 8 + sizeof(struct ipv6hdr) + sizeof(struct udphdr);
	__u32 there = skb->data_end - skb->data;

	if (there < want && there < skb->len)
		bpf_skb_pull_data(skb, skb->len < want ? skb->len : want);
	parse(p, (void *)(long)skb->data, (void *)(long)skb->data_end);
}

/* segments returns how many frames a socket buffer becomes on the wire. What a
 * virtual machine hands over by virtio has gso_size but not yet gso_segs. */
static __always_inline __u32 segments(const struct __sk_buff *skb, __u32 headers)
{
	if (!skb->gso_size)
		return 1;
	if (skb->gso_segs)
		return skb->gso_segs;
	if (skb->len <= headers)
		return 1;
	return (skb->len - headers + skb->gso_size - 1) / skb->gso_size;
}

/* stream_of returns the header of a TCP segment if it is where it mostly is: behind
 * IPv4 without options or IPv6 without extensions, in a frame without a tag. */
static __always_inline struct tcphdr *stream_of(struct __sk_buff *skb)
{
	void *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = (void *)(long)skb->data;
	struct iphdr *ip = (void *)(eth + 1);
	struct ipv6hdr *ip6 = (void *)(eth + 1);
	struct tcphdr *tcp = (void *)(ip + 1);

	if ((void *)(tcp + 1) > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		if (*(__u8 *)ip != 0x45 || ip->protocol != IPPROTO_TCP || ip->frag_off & bpf_htons(0x1fff))
			return 0;
		return tcp;
	}
	tcp = (void *)(ip6 + 1);
	if (eth->h_proto != bpf_htons(ETH_P_IPV6) || ip6->nexthdr != IPPROTO_TCP || (void *)(tcp + 1) > end)
		return 0;
	return tcp;
}

/* count_stream enters a segment, or a super-frame of them. */
static __always_inline void count_stream(struct carried *c, const struct __sk_buff *skb, const struct tcphdr *tcp)
{
	__u32 headers = (__u32)((long)tcp - (long)skb->data) + tcp->doff * 4;

	count(c, TCP, skb->len, segments(skb, headers), headers, skb->gso_size);
}

/* bound tells whether a vport is held to anything that concerns more than UDP. */
static __always_inline int bound(__u32 slot)
{
	struct contract *c = bpf_map_lookup_elem(&vport_contract, &slot);

	return c && (c->packets | c->new_flows | c->pairs | c->everything);
}

/* from_any handles whatever the tenant sends. It is a function of its own so that
 * what the usual segment needs stays together. */
static __noinline int from_any(struct __sk_buff *skb, struct counters *c, __u32 slot)
{
	struct packet p = {};
	__u32 class = 0;

	headers(skb, &p);
	if (!from_tenant(c, slot, &p, skb->len, segments(skb, p.headers), skb->gso_size, &class))
		return TC_ACT_SHOT;
	/* HTB takes a priority for a class. A container can set it: it must not choose its class. */
	if (class || skb->priority >> 16 == HTB_MAJOR)
		skb->priority = class;
	return TC_ACT_UNSPEC;
}

SEC("tcx/ingress")
int vport_tcx_from(struct __sk_buff *skb)
{
	__u32 slot;
	struct counters *c = find(skb->ifindex, &slot);
	struct tcphdr *tcp;

	if (!c)
		return TC_ACT_UNSPEC;
	tcp = stream_of(skb);
	if (!tcp || (tcp->syn && !tcp->ack) || bound(slot))
		return from_any(skb, c, slot);
	count_stream(&c->carried[FROM_TENANT], skb, tcp);
	if (skb->priority >> 16 == HTB_MAJOR)
		skb->priority = 0;
	return TC_ACT_UNSPEC;
}

/* to_any handles whatever the tenant receives. */
static __noinline int to_any(struct __sk_buff *skb, struct counters *c, __u32 slot)
{
	struct packet p = {};

	headers(skb, &p);
	if (skb->priority >> 16 == HTB_MAJOR && !within_shape(skb->priority, skb->len)) {
		c->refused_packets += segments(skb, p.headers);
		return TC_ACT_SHOT;
	}
	if (!to_tenant(c, slot, &p, skb->len, segments(skb, p.headers), skb->gso_size)) {
		c->refused_packets += segments(skb, p.headers);
		return TC_ACT_SHOT;
	}
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
	__u32 slot;
	struct counters *c = find(skb->ifindex, &slot);
	struct tcphdr *tcp;

	if (!c)
		return TC_ACT_UNSPEC;
	tcp = stream_of(skb);
	if (!tcp || held(skb, slot))
		return to_any(skb, c, slot);
	count_stream(&c->carried[TO_TENANT], skb, tcp);
	return TC_ACT_UNSPEC;
}

/* On Open vSwitch's userspace datapath packet sockets are served before tc, so that only XDP can drop. */
SEC("xdp.frags")
int vport_xdp_from(struct xdp_md *ctx)
{
	struct packet p = {};
	__u32 class = 0; /* there is no priority before the socket buffer: limits police here */
	__u32 slot;
	struct counters *c = find(ctx->ingress_ifindex, &slot);

	if (!c)
		return XDP_PASS;
	parse(&p, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	return from_tenant(c, slot, &p, bpf_xdp_get_buff_len(ctx), 1, 0, &class) ? XDP_PASS : XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
