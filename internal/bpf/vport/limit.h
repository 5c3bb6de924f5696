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

/* place_of_limit returns the place of the limit on what the vport sends to a destination, or to
 * all; -1 if there is none. It is a global function so that the verifier looks at what follows
 * once, and not for every place. */
__noinline int place_of_limit(__u32 slot, __u32 destination, __u64 now)
{
	struct pairs *pairs = bpf_map_lookup_elem(&vport_pairs, &slot);

	if (!pairs)
		return -1;
	for (__u32 i = 0; i < DESTINATION_LIMITS && i < pairs->places; i++) {
		if (pairs->destination[i] == destination && pairs->to[i].expires_ns > now)
			return i;
	}
	return pairs->to[EVERYTHING].expires_ns > now ? EVERYTHING : -1;
}

/* pair_conforms holds the packet to the limit of its destination. What the vport's own limit
 * has given a class keeps it: a peer node must not lead out of that. Called under the lock. */
static __always_inline int pair_conforms(const struct pair *limit, struct spent *s, __u64 now, const struct wire *w, __u32 *class)
{
	int shaped = limit->class && !*class;

	if (s->since_ns != limit->since_ns) { /* a new limit */
		s->since_ns = limit->since_ns;
		fill(&s->bytes, limit->start, now);
		fill(&s->packets, packet_burst(limit->packets), now);
		s->offered_bytes = s->dropped_bytes = s->dropped_packets = 0;
	}
	s->offered_bytes += w->bytes;
	if (shaped) /* the class takes care of the bytes */
		*class = limit->class;
	if (shaped || take(&s->bytes, limit->rate, limit->burst, w->bytes, now)) {
		if (!limit->packets || take_packets(&s->packets, limit->packets, w->packets, now))
			return 1;
		if (!shaped)
			give_back(&s->bytes, w->bytes);
	}
	s->dropped_bytes += w->bytes;
	s->dropped_packets += w->packets;
	return 0;
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
