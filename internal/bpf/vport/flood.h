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
	for (int i = 0; i < PASSED_WORDS; i++) {
		f->passed[which & 1][i] = 0;
		asm volatile("" ::: "memory"); /* or clang makes a memset of it that is too long to be in line */
	}
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

/* flow_hash returns 64 well-mixed bits: ports that follow each other differ in the low bits of
 * one factor, so that the last step is not the seed's. */
static __always_inline __u64 flow_hash(const struct packet *p)
{
	__u64 h = (p->from_host + p->seed.add) * p->seed.times;

	h = ((h ^ h >> 32) + p->to_host) * p->seed.times;
	h = ((h ^ h >> 32) + ((__u64)p->protocol << 32 | (__u32)p->source_port << 16 | p->destination_port)) * p->seed.times;
	h = (h ^ h >> 32) * 0x9e3779b97f4a7c15ULL;
	h = (h ^ h >> 29) * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 32;
}

/* place_of returns where a host is followed. */
static __always_inline __u32 place_of(__u64 host, const struct seed *seed)
{
	return (host + seed->add) * seed->times >> 61 & (DESTINATIONS - 1);
}

/* see_flow enters a packet's flow into the estimate of new ones, if it is in neither bitmap.
 * Each new bit stands for as many flows as are expected to be tried until one meets a bit
 * that is free (incremental linear counting). */
static __always_inline void see_flow(struct state *s, __u64 flow)
{
	struct flows *f = &s->flows;
	__u32 at = flow >> 6 & (FLOW_WORDS - 1);
	__u32 now = s->current.id & 1;
	__u64 mask = 1ULL << (flow & 63);
	__u64 known = f->seen[!now][at] & mask;

	if (f->seen[now][at] & mask)
		return;
	f->seen[now][at] |= mask;
	f->set[now]++;
	if (known)
		return;
	if (f->any < FLOW_WORDS * 64)
		s->current.new_flows += FLOW_WORDS * 64 * 256 / (FLOW_WORDS * 64 - f->any);
	f->any++;
}

/* passed_bit returns a flow's bit of PASSED_BITS, by 14 bits of its hash that the others do not use. */
static __always_inline __u32 passed_bit(__u64 flow, __u32 which)
{
	return flow >> (14 * which) & (PASSED_WORDS * 64 - 1);
}

/* passed_in tells whether all bits of a flow are set. */
static __always_inline int passed_in(const __u64 *passed, __u64 flow)
{
	for (__u32 i = 0; i < PASSED_BITS; i++) {
		__u32 bit = passed_bit(flow, i);

		if (!(passed[bit >> 6] >> (bit & 63) & 1))
			return 0;
	}
	return 1;
}

/* may_go_on tells whether packets of a flow have passed, in this window or the last. What was
 * refused has not begun, however often it is sent and whatever else is. */
static __always_inline int may_go_on(const struct state *s, __u64 flow)
{
	return passed_in(s->flows.passed[0], flow) || passed_in(s->flows.passed[1], flow);
}

/* let_go_on keeps that a packet of a flow has passed. One that passed for known by mistake is kept
 * from window to window, too: mistakes must be so rare that these do not make others. */
static __always_inline void let_go_on(struct state *s, __u64 flow)
{
	__u64 *passed = s->flows.passed[s->current.id & 1];

	for (__u32 i = 0; i < PASSED_BITS; i++) {
		__u32 bit = passed_bit(flow, i);

		passed[bit >> 6] |= 1ULL << (bit & 63);
	}
}

/* destination_of finds or claims the place that follows a packet's destination. */
static __always_inline struct destination *destination_of(struct state *s, const struct packet *p, __u32 window)
{
	struct destination *d = &s->destinations[place_of(p->to_host, &p->seed)];

	if (d->window == window && d->host == p->to_host) {
		d->hold++;
		return d;
	}
	if (d->window == window && d->hold > 0) {
		d->hold--;
		return 0;
	}
	d->window = window;
	d->host = p->to_host;
	d->hold = 1;
	d->packets = 0;
	d->replies = 0;
	d->ports = 0;
	for (int i = 0; i < PORT_WORDS; i++)
		d->spread[i] = 0;
	return d;
}

/* lasts tells whether the windows before this one were beyond the contract, too: a burst is
 * no flood. */
static __always_inline int lasts(const struct state *s)
{
	for (int i = 1; i <= BEYOND_BEFORE; i++) {
		const struct window *w = &s->closed[(s->current.id - i) & (HISTORY - 1)];

		if (w->id + i != s->current.id || !w->beyond)
			return 0;
	}
	return 1;
}

/* is_flood judges what a destination got in this window. Many ports without answers are one
 * by their shape. Beyond the contract one of both is enough, while half of the packets are not
 * answered: a single port, and answers that an accomplice writes. */
static __always_inline int is_flood(const struct state *s, const struct destination *d, const struct settings *set)
{
	int silent = (__u64)d->replies * 100 <= (__u64)d->packets * set->max_reply_percent;
	int spread = d->ports >= set->min_ports;

	if (d->packets < set->min_packets)
		return 0;
	if (silent && spread)
		return 1;
	return s->current.beyond && (silent || (spread && d->replies * 2 <= d->packets)) && lasts(s);
}

/* enter_udp enters UDP that the tenant sends into the window. */
static __always_inline void enter_udp(struct state *s, const struct packet *p, const struct settings *set, __u64 guarantee, __u64 now,
				      const struct wire *w)
{
	struct destination *d;

	s->current.udp_bytes += w->bytes;
	s->current.udp_packets += w->packets;
	if (guarantee && s->current.udp_bytes * (NS_PER_S / WINDOW_NS) > guarantee)
		s->current.beyond = 1;
	if (p->is_fragment)
		s->current.fragments += w->packets;
	d = destination_of(s, p, (__u32)s->current.id);
	if (!d)
		return;
	d->packets += w->packets;
	if (!p->is_fragment) {
		__u32 bit = hash32(p->destination_port ^ (__u32)p->seed.add) >> 22; /* 10 bits */
		__u64 mask = 1ULL << (bit & 63);
		__u64 *word = &d->spread[bit >> 6 & (PORT_WORDS - 1)];

		if (!(*word & mask)) {
			*word |= mask;
			d->ports++;
		}
	}
	if (is_flood(s, d, set)) {
		s->current.flood = 1;
		if (!s->flood_last_ns || now - s->flood_last_ns > set->quiet_ns)
			s->flood_since_ns = now;
		s->flood_last_ns = now;
	}
}

/* enter_reply enters UDP that a destination sends back. */
static __always_inline void enter_reply(struct state *s, const struct packet *p, const struct wire *w)
{
	struct destination *d = &s->destinations[place_of(p->from_host, &p->seed)];

	if (d->host == p->from_host && d->window == (__u32)s->current.id)
		d->replies += w->packets;
}

#endif
