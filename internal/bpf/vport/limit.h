/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What holds a vport to its contract and its limits. */
#ifndef VIGIA_VPORT_LIMIT_H
#define VIGIA_VPORT_LIMIT_H

#include "maps.h"
#include "packet.h"

/* packet_burst is what a limit in packets, or flows, lets through at once: 50 ms, but
 * never fewer than the fragments of the largest datagram. */
static __always_inline __u64 packet_burst(__u64 packets)
{
	return packets / 20 < 64 ? 64 : packets / 20;
}

static __always_inline int take_packets(struct bucket *b, __u64 rate, __u64 n, __u64 now)
{
	return take(b, rate, packet_burst(rate), n, now);
}

/* keeps_pace holds what is sent to packets and to new flows per second; 0 is any number. */
static __always_inline int keeps_pace(struct pace *p, __u64 packets, __u64 new_flows, const struct wire *w, int begins, __u64 now)
{
	if (packets && !take_packets(&p->packets, packets, w->packets, now))
		return 0;
	if (!new_flows || !begins || take_packets(&p->flows, new_flows, 1, now))
		return 1;
	if (packets)
		give_back(&p->packets, w->packets);
	return 0;
}

/* conforms holds the packet to the limit of its vport. A class takes care of the
 * bytes, but not of packets and flows. Called under the lock. */
static __always_inline int conforms(struct state *s, const struct limit *limit, __u64 now, const struct wire *w, int begins)
{
	if (s->limit_since_ns != limit->since_ns) { /* a new limit begins with full buckets */
		s->limit_since_ns = limit->since_ns;
		fill(&s->limit_bytes, limit->burst, now);
		fill(&s->limit_pace.packets, packet_burst(limit->packets), now);
		fill(&s->limit_pace.flows, packet_burst(limit->new_flows), now);
	}
	if (!limit->class && !take(&s->limit_bytes, limit->rate, limit->burst, w->bytes, now))
		return 0;
	if (keeps_pace(&s->limit_pace, limit->packets, limit->new_flows, w, begins, now))
		return 1;
	if (!limit->class)
		give_back(&s->limit_bytes, w->bytes);
	return 0;
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

/* pair_lets_pass takes the packet from the limit's buckets; a class takes care of the bytes
 * if the packet is shaped by this limit. Called under the lock. */
static __always_inline int pair_lets_pass(struct pair *p, __u64 now, const struct wire *w, int shaped)
{
	if (!shaped && !take(&p->bytes, p->rate, p->burst, w->bytes, now))
		return 0;
	if (!p->packets || take_packets(&p->packet_bucket, p->packets, w->packets, now))
		return 1;
	if (!shaped)
		give_back(&p->bytes, w->bytes);
	return 0;
}

/* pair_conforms holds the packet to the limit of its destination, if there is one. What the
 * vport's own limit has given a class keeps it: a peer node must not lead out of that. */
static __always_inline int pair_conforms(__u32 slot, __u32 destination, __u64 now, const struct wire *w, __u32 *class)
{
	struct pair *p = pair_of(slot, destination, now);
	int pass, shaped;

	if (!p)
		return 1;
	bpf_spin_lock(&p->lock);
	p->offered_bytes += w->bytes;
	shaped = p->class && !*class;
	if (shaped)
		*class = p->class;
	pass = pair_lets_pass(p, now, w, shaped);
	if (!pass) {
		p->dropped_bytes += w->bytes;
		p->dropped_packets += w->packets;
	}
	bpf_spin_unlock(&p->lock);
	return pass;
}

/* within_shape polices a frame that an uplink's class would have shaped, had it
 * not stayed on this node. */
static __always_inline int within_shape(__u32 priority, const struct wire *w)
{
	__u32 key = (priority & 0xffff) - FIRST_SHAPE;
	__u64 now = bpf_ktime_get_ns();
	struct shape *s;
	int pass;

	if (priority >> 16 != HTB_MAJOR || key >= SHAPES)
		return 1;
	s = bpf_map_lookup_elem(&vport_shape, &key);
	if (!s || !s->rate)
		return 1;
	bpf_spin_lock(&s->lock);
	pass = take(&s->bytes, s->rate, s->burst, w->bytes, now);
	bpf_spin_unlock(&s->lock);
	return pass;
}

#endif
