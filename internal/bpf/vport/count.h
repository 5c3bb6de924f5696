/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is counted of every frame. */
#ifndef VIGIA_VPORT_COUNT_H
#define VIGIA_VPORT_COUNT_H

#include "maps.h"
#include "packet.h"

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

/* count enters a frame, or the frames of a super-frame. Where their sizes are not
 * known, all have the mean. */
static __always_inline void count(struct carried *c, __u32 protocol, const struct wire *w)
{
	__u32 last = w->bytes;

	if (protocol >= PROTOCOLS)
		return;
	c->protocols[protocol].bytes += w->bytes;
	c->protocols[protocol].packets += w->packets;
	if (w->packets > 1) {
		__u32 before = (w->packets - 1) * w->frame;
		__u32 each = w->frame;

		last -= before;
		if (!before || before > w->bytes)
			each = last = w->bytes / w->packets;
		c->sizes[size_range(each) & (SIZES - 1)] += w->packets - 1;
	}
	c->sizes[size_range(last) & (SIZES - 1)]++;
}

#endif
