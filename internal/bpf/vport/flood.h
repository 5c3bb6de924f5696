/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The signals of a flood: what a vport's UDP does in windows of 100 ms, and which
 * flows it begins. Everything here is called under the lock of the vport's state. */
#ifndef VIGIA_VPORT_FLOOD_H
#define VIGIA_VPORT_FLOOD_H

#include "maps.h"
#include "packet.h"

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

/* close_window files the finished window away. */
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
 * meets a bit that is free (incremental linear counting). */
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

/* destination_of finds or claims the place that follows an address. */
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

/* enter_udp enters UDP that the tenant sends into the window. */
static __always_inline void enter_udp(struct state *s, const struct packet *p, const struct settings *set, __u64 now, const struct wire *w)
{
	struct destination *d;

	s->current.udp_bytes += w->bytes;
	s->current.udp_packets += w->packets;
	if (p->is_fragment)
		s->current.fragments += w->packets;
	d = destination_of(s, p->destination, (__u32)s->current.id);
	if (!d)
		return;
	d->packets += w->packets;
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

/* enter_reply enters UDP that a destination sends back. */
static __always_inline void enter_reply(struct state *s, const struct packet *p, const struct wire *w)
{
	struct destination *d = &s->destinations[hash32(p->source) >> 29 & (DESTINATIONS - 1)];

	if (d->address == p->source && d->window == (__u32)s->current.id)
		d->replies += w->packets;
}

#endif
